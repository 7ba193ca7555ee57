#!/usr/bin/env python3
"""kvr's tokenizer beside the libraries of the field: MB/s of UTF-8 text, one document a call, by CPU
time, all libraries in one process, one after another on each slice of documents, so that a noisy
machine is noisy for all of them.

    tokenize_peers.py VOCABULARY_FILE CORPUS.ndjson[.gz] LIBRARY.so WORK_FOLDER [PEER,PEER...]

cold: the first quarter of the corpus in a fresh process; fresh: the other quarters, text never seen
before, after that warm-up; warm: the same text again. Prints one NDJSON line a library, and at the
end the ratio of kvr to the best peer of each column. Tokens are compared with the first peer's.
"""
import base64
import ctypes
import gc
import gzip
import json
import os
import re
import subprocess
import sys
import time

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACE
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PREFIX = r"[^\r\n\p{L}\p{N}]?"
O200K = (PREFIX + UPPER + "*" + LOWER + "+" + CONTRACTION + "?|" + PREFIX + UPPER + "+" + LOWER + "*" +
         CONTRACTION + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACE)
PATTERNS = {"cl100k_base": CL100K, "o200k_base": O200K}
SPECIALS = {"cl100k_base": {"<|endoftext|>": 100257}, "o200k_base": {"<|endoftext|>": 199999}}


def read(path):
    return (gzip.open if path.endswith(".gz") else open)(path, "rb").read()


def alphabet():
    printable = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    others = [b for b in range(256) if b not in printable]
    return dict(zip(printable + others, map(chr, printable + list(range(256, 256 + len(others))))))


class Vocabulary:
    def __init__(self, path, folder):
        self.path = path
        self.name = re.sub(r"\.(tiktoken|tokenizer\.json)(\.gz)?$", "", os.path.basename(path))
        self.is_ranks = ".tiktoken" in path
        self.plain = os.path.join(folder, self.name + (".tiktoken" if self.is_ranks else ".json"))
        self.json = os.path.join(folder, self.name + ".json")
        if not os.path.exists(self.plain):
            with open(self.plain, "wb") as out:
                out.write(read(path))
        if not os.path.exists(self.json):
            self.convert()

    def ranks(self):
        lines = (line.split() for line in open(self.plain, "rb") if line.strip())
        return {base64.b64decode(token): int(rank) for token, rank in lines}

    def convert(self):
        """tokenizer.json from ranks: the merge of a token is what its own bytes end with."""
        ranks, letters, merges = self.ranks(), alphabet(), []
        for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
            parts = [bytes([b]) for b in token]
            while len(parts) > 2:
                best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], 1 << 30))
                parts[best:best + 2] = [parts[best] + parts[best + 1]]
            if len(parts) == 2:
                merges.append(["".join(letters[b] for b in part) for part in parts])
        model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                 "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                 "vocab": {"".join(letters[b] for b in t): r for t, r in ranks.items()}, "merges": merges}
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
        split = {"type": "Split", "pattern": {"Regex": PATTERNS[self.name]}, "behavior": "Isolated", "invert": False}
        added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                  "normalized": False, "special": True} for t, i in SPECIALS[self.name].items()]
        with open(self.json, "w", encoding="utf8") as out:
            json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
                       "normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
                       "post_processor": None, "decoder": level, "model": model}, out)


def kvr(vocabulary, library):
    """As the peers do, text is taken as Python keeps it (PyUnicode_AsUTF8AndSize)."""
    lib = ctypes.PyDLL(library)
    lib.bench_tokenize_open.restype = ctypes.c_void_p
    lib.bench_tokenize_python.argtypes = [ctypes.c_void_p]
    lib.bench_tokenize_object.restype = ctypes.c_long
    lib.bench_tokenize_object.argtypes = [ctypes.c_void_p, ctypes.py_object]
    lib.bench_tokenize_ids.restype = ctypes.POINTER(ctypes.c_uint32)
    lib.bench_tokenize_ids.argtypes = [ctypes.c_void_p]
    lib.bench_tokenize_python(ctypes.cast(ctypes.pythonapi.PyUnicode_AsUTF8AndSize, ctypes.c_void_p))
    handle, call = lib.bench_tokenize_open(vocabulary.path.encode()), lib.bench_tokenize_object

    def ids(text):
        count = call(handle, text)
        return lib.bench_tokenize_ids(handle)[:count] if count else []
    return (lambda text: call(handle, text)), ids


def peer(name, vocabulary, library):
    """(encode for timing, encode to a list of ids)"""
    if name == "kvr":
        return kvr(vocabulary, library)
    if name == "tiktoken":
        import tiktoken
        encoding = tiktoken.Encoding(vocabulary.name, pat_str=PATTERNS[vocabulary.name],
                                     mergeable_ranks=vocabulary.ranks(), special_tokens={})
        return lambda s: encoding._core_bpe.encode_to_tiktoken_buffer(s, set()), encoding.encode_ordinary
    if name == "tokenizers":
        from tokenizers import Tokenizer
        tokenizer = Tokenizer.from_file(vocabulary.json)
        encode = lambda s: tokenizer.encode(s, add_special_tokens=False).ids
        return encode, encode
    if name == "fastokens":
        from fastokens._native import Tokenizer
        tokenizer = Tokenizer.from_file(vocabulary.json)
        return (lambda s: tokenizer.encode(s).ids), (lambda s: list(tokenizer.encode(s).ids))
    if name == "gigatoken":
        import gigatoken
        tokenizer = (gigatoken.Tokenizer.from_tiktoken(vocabulary.plain) if vocabulary.is_ranks
                     else gigatoken.Tokenizer(vocabulary.json))
        encode = tokenizer._backend.encode
        return encode, lambda s: list(map(int, encode(s)))
    if name == "quicktok":
        import quicktok
        encode = quicktok.get_encoding(vocabulary.name).encode_ordinary
        return encode, lambda s: list(encode(s))
    if name == "splintr":
        import splintr
        tokenizer = (splintr.Tokenizer.from_bytes(read(vocabulary.plain), PATTERNS[vocabulary.name], None)
                     if vocabulary.is_ranks else splintr.from_json(vocabulary.json))
        return getattr(tokenizer, "encode_flat", tokenizer.encode_raw), tokenizer.encode_raw
    if name == "kitoken":
        from kitoken import Kitoken
        tokenizer = (Kitoken.from_tiktoken_file(vocabulary.plain) if vocabulary.is_ranks
                     else Kitoken.from_tokenizers_file(vocabulary.json))
        return (lambda s: tokenizer.encode(s, True)), (lambda s: tokenizer.encode(s, True))
    raise KeyError(name)


SLOW = {"tokenizers": 8, "tiktoken": 4, "kitoken": 4}  # these see every eighth, fourth document


def timed(encode, texts, totals):
    size = sum(len(text.encode("utf8")) for text in texts)
    began = time.process_time()
    for text in texts:
        encode(text)
    totals[0] += size / 1e6
    totals[1] += time.process_time() - began


def main():
    path, corpus, library, folder = sys.argv[1:5]
    names = (sys.argv[5] if len(sys.argv) > 5 else "fastokens,gigatoken,splintr,tiktoken,tokenizers").split(",")
    names = ["kvr"] + [name for name in names if name != "kvr"]
    vocabulary = Vocabulary(path, folder)
    texts = [json.loads(line)["text"] for line in read(corpus).decode().splitlines()]
    as_utf8 = ctypes.pythonapi.PyUnicode_AsUTF8AndSize
    as_utf8.argtypes = [ctypes.py_object, ctypes.c_void_p]
    for text in texts:  # Python keeps the UTF-8 form with the text: made once, before anyone asks
        as_utf8(text, None)
    quarter = len(texts) // 4
    if len(sys.argv) > 6:  # the child that measures one library cold
        encode, _ = peer(sys.argv[6], vocabulary, library)
        totals = [0, 0]
        timed(encode, texts[:quarter:SLOW.get(sys.argv[6], 1)], totals)
        print(totals[0] / totals[1])
        return
    peers, expected, rates = {}, None, {}
    for name in names:
        try:
            peers[name] = peer(name, vocabulary, library)
        except BaseException as error:  # not there, or not for this vocabulary
            print(json.dumps({"vocabulary": vocabulary.name, "library": name, "skipped": repr(error)[:100]}), flush=True)
    sample = texts[::40]
    kvr_ids = [peers["kvr"][1](text) for text in sample]
    gc.disable()
    for name, (encode, ids) in peers.items():
        different = sum(list(ids(text)) != mine for text, mine in zip(sample, kvr_ids))
        cold = []
        for _ in range(3):
            child = subprocess.run([sys.executable, __file__, path, corpus, library, folder, name, name],
                                   capture_output=True, text=True, check=False)
            cold.append(float(child.stdout) if child.returncode == 0 and child.stdout else 0)
        rates[name] = {"different": different, "cold": max(cold), "fresh": [0, 0], "warm": [0, 0]}
        peers[name] = peer(name, vocabulary, library)  # without what the comparison has cached
        for text in texts[:quarter]:
            peers[name][0](text)
    for at in range(quarter, len(texts) - 160, 160):
        for name, (encode, _) in peers.items():
            part = texts[at:at + 160:SLOW.get(name, 1)]
            timed(encode, part, rates[name]["fresh"])
    for at in range(len(texts) - quarter, len(texts) - 160, 160):
        for name, (encode, _) in peers.items():
            part = texts[at:at + 160:SLOW.get(name, 1)]
            timed(encode, part, rates[name]["warm"])
    for name, rate in rates.items():
        for column in ("fresh", "warm"):
            rate[column] = rate[column][0] / rate[column][1]
        print(json.dumps({"vocabulary": vocabulary.name, "library": name, "cold_mb_s": round(rate["cold"], 1),
                          "fresh_mb_s": round(rate["fresh"], 1), "warm_mb_s": round(rate["warm"], 1),
                          "texts_that_differ": rate["different"]}), flush=True)
    best = {c: max([r[c] for n, r in rates.items() if n != "kvr"], default=0) for c in ("cold", "fresh", "warm")}
    print(json.dumps({"vocabulary": vocabulary.name, "kvr_over_best_peer":
                      {c: round(rates["kvr"][c] / best[c], 2) if best[c] else None for c in best}}), flush=True)


main()
