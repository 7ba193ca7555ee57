#!/usr/bin/env python3
"""Every code point through the steps of Hugging Face's tokenizers and through kvr's
(pip install tokenizers==0.23.3).

    character_differential.py [SECONDS [SEED]]

Each step (normal forms, pre-tokenizers, borders of added tokens, patterns with classes, properties and
(?i)) is a tokenizer.json whose merges show where a text is cut: a byte joins the "a" or "!" before it and
the "b" or "%" behind it where no cut stands between. Of the large blocks of like characters (CJK, Hangul,
private use, unassigned planes) only the ends are tried. Steps are taken in random order until the time is
over (all of them take some three minutes). Prints what differs; the exit status is 1 if anything did.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import time

from tokenizers import Tokenizer

PROGRAM = os.path.join(os.environ.get("BUILD", "build"), "bin", "kvr-tokenize")
ALIKE = [(0x3500, 0x4d00), (0x4e10, 0x9f00), (0xac10, 0xd700), (0xd800, 0xe000), (0xe010, 0xf000), (0x20010, 0x2f800),
         (0x32010, 0xe0000), (0xe0200, 0x110000)]
CHARACTERS = [chr(c) for c in range(0x110000) if not any(first <= c < last for first, last in ALIKE)]
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
PROPERTIES = ("L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Cn Han Hiragana "
              "Katakana Hangul Latin Greek Cyrillic Arabic Hebrew Thai Devanagari").split()
PATTERNS = [r"\p{%s}" % name for name in PROPERTIES] + [
    r"\w", r"\s", r"\d", r"\h", r"\b", r".", r"[\w.]", r"[^\w\s]", r"[\w&&[^\d]]", r"[^\W\d_]", r"[^\s\p{L}\p{N}]",
    r"[[:punct:]]", r"[[:space:]]", r"[[:cntrl:]]", r"(?i:k)", r"(?i:s)", r"(?i:ß)", r"(?i:[a-z])", r"(?i:[à-ÿ])", r"(?i:я)",
    r"(?i:σ)", r"(?i:ǆ)", r"(?i:i)", r"(?i:İ)", r"(?i:[^a-z])"]


def alphabet():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in kept]
    return [chr(b) for b in kept] + [chr(256 + n) for n in range(len(others))]


def model():
    """Bytes, and each byte with a, ! before it and b, % behind it."""
    letters = alphabet()
    vocab, merges = {letter: number for number, letter in enumerate(letters)}, []
    pairs = [(first, letter) for first in "a!" for letter in letters] + [(letter, last) for last in "b%" for letter in letters]
    for left, right in pairs:
        if left + right not in vocab:
            vocab[left + right] = len(vocab)
            merges.append([left, right])
    return {"type": "BPE", "vocab": vocab, "merges": merges, "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}


MODEL = model()


def file(*steps, normalizer=None, added=None):
    tokens = [{"id": len(MODEL["vocab"]), "content": "<q>", "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": True, **added}] if added else []
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, LEVEL]}, "post_processor": None, "decoder": LEVEL,
            "model": MODEL}


def around(*forms):
    return [form % character if form.count("%s") == 1 else form % ((character,) * form.count("%s"))
            for character in CHARACTERS for form in forms]


def cases():
    cut = ["a%sb", "!%s%%"]
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        yield form, file(normalizer={"type": form}), ["a%sb", "e%s\u0301x", "e\u0301%s\u0338\u0323x"]
    yield "Strip", file(normalizer={"type": "Strip", "strip_left": True, "strip_right": True}), ["%sx%s"]
    yield "StripAccents", file(normalizer={"type": "StripAccents"}), ["a%sb"]
    yield "Punctuation", file({"type": "Punctuation", "behavior": "Isolated"}), cut
    yield "Digits", file({"type": "Digits", "individual_digits": True}), cut
    for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer"):
        yield name, file({"type": name}), cut
    yield "ByteLevel", file({**LEVEL, "use_regex": True}), cut
    yield "single_word", file(added={"single_word": True}), ["a<q>%sb", "a%s<q>b"]
    yield "lstrip, rstrip", file(added={"lstrip": True, "rstrip": True}), ["a<q>%sb", "a%s<q>b"]
    for pattern in PATTERNS:
        yield pattern, file({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}), cut


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600
    random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else None)
    stop, wrong, tried, steps = time.time() + seconds, 0, 0, list(cases())
    random.shuffle(steps)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokenizer.json")
        for done, (name, content, forms) in enumerate(steps):
            if time.time() > stop:
                steps = steps[:done]
                break
            with open(path, "w", encoding="utf-8") as out:
                json.dump(content, out)
            tokenizer, texts = Tokenizer.from_file(path), around(*forms)
            lines = "".join(json.dumps({"prompt": text}) + "\n" for text in texts)
            run = subprocess.run([PROGRAM, "--no-cache", "-t", path, "--ids", "--special", "--count"], input=lines,
                                 capture_output=True, text=True, check=True)
            different = []
            for text, line in zip(texts, run.stdout.split("\n")):
                if json.loads(line)["token_ids"] != tokenizer.encode(text).ids:
                    different.append(text)
            tried += len(texts)
            wrong += len(different)
            if different:
                print(f"{name}: {len(different)} texts differ, as {different[:6]!a}")
    print(f"{len(steps)} steps, {tried} texts of single characters, {wrong} differ")
    sys.exit(wrong > 0)


main()
