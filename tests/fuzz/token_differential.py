#!/usr/bin/env python3
"""kvr-tokenize against tiktoken and tokenizers on random texts (pip install tiktoken tokenizers).

    token_differential.py TOKENIZERS_FOLDER [SECONDS [SEED]]

Texts are made of pieces of real code points, runs, fragments and tokens of the vocabulary itself.
Prints what differs; the exit status is 1 if anything did.
"""
import base64
import glob
import gzip
import json
import os
import random
import re
import subprocess
import sys
import time

FRAGMENTS = ["'s", "'LL", "'ſ", " ", "  ", "\n", "\r\n", "\t", "the", " The", "camelCase", "123", "12345", "½", "٣", ".", "...", "!?",
             "é", "e\u0301", "\u0323\u0301", "東京", "你好", "の", "ー", "\u30a0", "привет", "ﬁ", "Ａ", "😀", "👩‍👩‍👧", "\u00a0", "\u3000", "\u2028",
             "\u0085", "\u200b", "\u0378", "\ue000", "\0", "<|endoftext|>", "<think>", "</s>", "▁", "Ǆ", "ʰ", "ক্ষ", "한국", "\u1100\u1161"]


def text(words):
    out = []
    for _ in range(random.randint(1, 24)):
        kind = random.random()
        if kind < 0.45:
            out.append(random.choice(FRAGMENTS))
        elif kind < 0.7:
            out.append(random.choice(words))
        elif kind < 0.9:
            c = chr(random.choice([random.randrange(32, 127), random.randrange(0x2ff), random.randrange(0xd800),
                                   random.randrange(0xe000, 0x10000), random.randrange(0x10000, 0x110000)]))
            out.append(c)
        else:
            out.append(random.choice(FRAGMENTS) * random.randint(2, 40))
    return "".join(out)


def reference(path):
    """(encode, words of the vocabulary)"""
    data = gzip.open(path).read()
    name = re.sub(r"\..*", "", os.path.basename(path))
    if ".tiktoken" in path:
        import tiktoken
        from tiktoken_ext import openai_public
        ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in data.splitlines() if line)}
        openai_public.load_tiktoken_bpe = lambda *a, **k: ranks
        openai_public.data_gym_to_mergeable_bpe_ranks = lambda *a, **k: ranks
        encoding = tiktoken.Encoding(**getattr(openai_public, name)())
        words = [w.decode("utf8") for w in ranks if not any(b & 0x80 for b in w)] + \
                [w.decode("utf8", "ignore") for w in list(ranks)[::7]]
        return encoding.encode_ordinary, words
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_str(data.decode())
    tokenizer.encode_special_tokens = True
    words = [tokenizer.decode([i]) for i in range(0, tokenizer.get_vocab_size(), 5)]
    return (lambda s: tokenizer.encode(s, add_special_tokens=False).ids), words


def main():
    folder, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 30
    random.seed(int(sys.argv[3]) if len(sys.argv) > 3 else None)
    program = os.path.join(os.environ.get("BUILD", "build"), "bin", "kvr-tokenize")
    paths = [p for p in sorted(glob.glob(folder + "/*.gz")) if "config" not in p]
    different = count = 0
    for path in paths:
        encode, words = reference(path)
        stop = time.time() + seconds / len(paths)
        while time.time() < stop:
            texts = [text(words) for _ in range(2000)]
            lines = "".join(json.dumps({"prompt": t}) + "\n" for t in texts)
            out = subprocess.run([program, "-t", path, "--ids", "--count", "--bos", "no"], input=lines,
                                 capture_output=True, text=True, check=True).stdout
            for t, line in zip(texts, out.split("\n")[:-1]):
                count += 1
                ids, wanted = json.loads(line)["token_ids"], list(encode(t))
                if ids != wanted:
                    different += 1
                    if different < 10:
                        print(f"{path}: {t!r}\n  {ids}\n  not {wanted}")
    print(f"{count} texts, {different} differ")
    sys.exit(different > 0)


main()
