#!/usr/bin/env python3
"""kvr-tokenize against a worker's /tokenize and /apply-template, one request after the other.

    worker_tokens.py PORT TOKENIZER texts FILE...     {"text": ...} a line, gzip or not
    worker_tokens.py PORT TOKENIZER chats FILE...     {"messages": ..., "tools", "kwargs", "add_generation_prompt"}
    worker_tokens.py merges-by-id TOKENIZER > FILE    the file with all merges there can be, in order of ids

Prints what differs and the counts; the exit status is 1 if anything did. The worker is llama.cpp on this
machine. It does not normalise, and makes control tokens of some names whatever the vocabulary says of
them: texts that NFC changes, for vocabularies that have it, and texts with these names are passed over.
"""
import gzip
import http.client
import json
import subprocess
import sys
import unicodedata


BY_NAME = ("<|fim_", "<|repo_name|>", "<|file_sep|>", "</s>")


def read(path):
    data = open(path, "rb").read()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()


def objects(paths):
    return [json.loads(line) for path in paths for line in read(path).split("\n") if line]


def ours(tokenizer, lines, *options):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    run = subprocess.run(["kvr-tokenize", "-q", "-t", tokenizer, "--count", "--keep-bad", *options], input=text,
                         capture_output=True, text=True)
    if run.returncode > 1:
        sys.exit(run.stderr)
    return [json.loads(line) for line in run.stdout.split("\n")[:-1]]


class Worker:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, path, body):
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return json.loads(self.connection.getresponse().read())


def show(what, theirs, mine):
    at = next((i for i, (a, b) in enumerate(zip(theirs, mine)) if a != b), min(len(theirs), len(mine)))
    around = slice(max(0, at - 5), at + 20)
    print(f"{what!r} at {at}\n  worker {theirs[around]!r}\n  kvr    {mine[around]!r}")


def compare_texts(worker, tokenizer, items):
    normal = '"NFC"' in json.dumps(json.loads(read(tokenizer)).get("normalizer"))
    texts = [item["text"] for item in items]
    texts = [text for text in texts if not normal or unicodedata.normalize("NFC", text) == text
             and not any(name in text for name in BY_NAME)]
    different = 0
    for special in (False, True):
        options = ["--special"] if special else ["--bos", "no"]
        for text, line in zip(texts, ours(tokenizer, [{"prompt": text} for text in texts], "--ids", *options)):
            theirs = worker.ask("/tokenize", {"content": text, "add_special": special, "parse_special": special})["tokens"]
            if theirs != line["token_ids"]:
                different += 1
                if different < 10:
                    show(text[:60], theirs, line["token_ids"])
    print(f"{2 * len(texts)} tokenizations compared, {len(items) - len(texts)} texts passed over, {different} differ")
    return different


def compare_chats(worker, tokenizer, items):
    lines = []
    for item in items:
        line = {"messages": item["messages"], "add_generation_prompt": item.get("add_generation_prompt", True)}
        if item.get("tools"):
            line["tools"] = item["tools"]
        if item.get("kwargs"):
            line["chat_template_kwargs"] = item["kwargs"]
        lines.append(line)
    compared = different = refused = 0
    for line, mine in zip(lines, ours(tokenizer, lines, "--render", "--style", "llamacpp")):
        theirs = worker.ask("/apply-template", line)
        if "prompt" not in theirs or "prompt" not in mine:
            refused += 1  # by one of them: what either cannot do is no prompt that could be wrong
            continue
        compared += 1
        if theirs["prompt"] != mine["prompt"]:
            different += 1
            show(line["messages"][-1:], theirs["prompt"], mine["prompt"])
    print(f"{compared} chats compared, {refused} refused by one side, {different} differ")
    return different


def merges_by_id(tokenizer):
    """What a SentencePiece model does whose scores fall with the ids, as merges."""
    file = json.loads(read(tokenizer))
    vocab = file["model"]["vocab"]
    never = {token["content"] for token in file["added_tokens"]} | {f"<0x{byte:02X}>" for byte in range(256)}
    words = {word for word in vocab if word not in never}
    file["model"]["merges"] = [[word[:cut], word[cut:]] for word in sorted(words, key=vocab.get)
                               for cut in range(1, len(word)) if word[:cut] in words and word[cut:] in words]
    json.dump(file, sys.stdout, ensure_ascii=False)


def main():
    if sys.argv[1] == "merges-by-id":
        return merges_by_id(sys.argv[2])
    worker, tokenizer, what, paths = Worker(int(sys.argv[1])), sys.argv[2], sys.argv[3], sys.argv[4:]
    compare = compare_texts if what == "texts" else compare_chats
    return sys.exit(compare(worker, tokenizer, objects(paths)) > 0)


if __name__ == "__main__":
    main()
