#!/usr/bin/env python3
"""Hostile texts: kvr-tokenize on texts made to be slow, for vocabularies with each split pattern that
models have and for some that none should have.

    hostile.py times PROGRAM FOLDER [MIB [NAME...]]   seconds of a text of MIB mebibytes, beside prose
    hostile.py differences PROGRAM FOLDER [NAME...]   ids beside Hugging Face's (needs tokenizers)

The vocabularies are tokenizer.json files written to FOLDER over the first tokens of cl100k_base, byte
level or as converted from SentencePiece; `times` also takes files in place of names. It appends what
it measured to FOLDER/times.ndjson, prints a table of processor seconds and of the ratio to prose, the
worst of each vocabulary first, and ends with 1 where a text takes more than 0.1 s a mebibyte and more
than 3 times the time of prose.
"""
import base64
import functools
import gzip
import json
import os
import random
import resource
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MARK = "\u2581"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def cased(tail, more=""):
    upper, lower = f"[{UPPER}{more}]", f"[{LOWER}{more}]"
    before = r"[^\r\n\p{L}\p{N}]?"
    return f"{before}{upper}*{lower}+{tail}|{before}{upper}+{lower}*{tail}"


def gpt4(number, word=r"\p{L}+", signs=r" ?[^\s\p{L}\p{N}]+[\r\n]*"):
    return rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{word}|{number}|{signs}|{SPACE}"


def split(pattern, behaviour="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behaviour, "invert": invert}


DIGITS = {"type": "Digits", "individual_digits": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2 = dict(BYTES, use_regex=True)
CJK = "[一-龥\u0800-一가-\ud7ff]+"
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             r"| ?[\p{P}\p{S}]+[\r\n]*|" + SPACE)
O200K = cased(CONTRACTION + "?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACE

# name -> steps before the bytes, as the models' files have them
PATTERNS = {
    "gpt2": [GPT2],
    "llama3": [split(gpt4(r"\p{N}{1,3}"))],
    "qwen2": [split(gpt4(r"\p{N}"))],
    "qwen3.5": [split(rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACE}")],
    "llama4": [split(O200K)],
    "nemo": [split(cased("") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACE)],
    "deepseek-coder": [split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(CJK), DIGITS],
    "deepseek-llm": [split(r"[\r\n]"), split(r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+"),
                     split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"), split(CJK), DIGITS],
    "deepseek3": [split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK3)],
    "starcoder": [DIGITS, GPT2],
    "falcon": [{"type": "Punctuation", "behavior": "Contiguous"}, GPT2, {"type": "Digits", "individual_digits": False},
               split(r"[0-9][0-9][0-9]")],
    "bloom": [split(r" ?[^(\s|[.,!?…。，、।۔،])]+")],
    "viking": [split(r" ?[^(\s|[.,!?…。，、।۔،])]+"), split(r"\p{N}")],
    "kimi-k2": [split(r"[\p{Han}]+|" + cased(CONTRACTION + "?", r"&&[^\p{Han}]") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACE)],
    "seed": [split(gpt4(r"\p{N}{1}", signs=r" ?[^\s\p{L}\p{N}\r\n]+"))],
    "bailing": [split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")],
    "superbpe": [split(r"\p{N}+"), split(r"(?=(\d{3})+(?!\d))")],
    "tiny-aya": [split(r"\d{1,3}(?=(?:\d{3})*\b)"), split(O200K)],
    "exaone-moe": [split(rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+")],
    "olmo": [GPT2],
    "granite": [DIGITS, GPT2],
    "afmoe": [split(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))"), split(gpt4(r"\p{N}{1,3}"))],
    "youtu": [split("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+"), split(O200K)],
    "jais2": [split(gpt4(r"\p{N}{1,3}").removesuffix(SPACE) + "".join(rf"\s{{{n}}}(?!\S)|" for n in (512, 256, 128, 64, 32, 16, 8, 4))
                    + r"\s{1,2}(?!\S)|\s{1}")],
    "gemma4": [split(r"[^\n]+|[\n]+")],
    "poro": [split(r" ?[^(\s|.,!?…。，、।۔،)]+")],
    "chameleon": [split("<sentinel:[0-9]+>"), split("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"), split(r"([\t\n]|    |  )"), split(r"\p{N}"),
                  split(r"[\p{P}!-/:-@\[-`{-~]"), GPT2],
    "hunyuan": [split(r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
                      + SPACE)],
    "grok2": [split(gpt4(r"\p{N}", signs=r" ?[^\s\p{L}\p{N}]+[\r\n/]*"))],
    "possessive": [split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")],
    "whitespace": [{"type": "WhitespaceSplit"}],
    "words": [{"type": "Whitespace"}],
    "punctuation": [{"type": "Punctuation", "behavior": "Isolated"}],
    "delimiter": [{"type": "CharDelimiterSplit", "delimiter": " "}],
    # patterns made to be slow
    "spaces at the end": [split(r"\s+$")],
    "behind letters": [split(r"\w+!")],
    "nested": [split(r"(\w+)+!|.")],
    "far lookahead": [split(r"(?=.*\d)\w|.")],
    "not until": [split(r"[^!]*!|.")],
    "lazy": [split(r"\S+?;|\s")],
    "nested lookahead": [split(r"\w(?=(?:\w\w)*(?:\s|$))")],
    "two runs": [split(r"\p{L}*\p{M}*\p{L}*\p{M}*;|.")],
    "atomic": [split(r"(?>\w+)!|\s++x|.")],
    "empty loops": [split(r"(?:\w*\s?)*!|.")],
    "large": [split(r"(?:\p{L}\p{M}*){1,90}!|\w|.")],
    "of any case": [split(r"(?i)\p{Lu}+[^k]|.")],
}

NORMALIZERS = {
    "nfc": ([{"type": "NFC"}], "qwen2"),
    "nfkc": ([{"type": "NFKC"}], "gpt2"),
    "nfd marks": ([{"type": "NFD"}, {"type": "StripAccents"}], "gpt2"),
    "growing": ([{"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaa"}], "llama3"),
    "regex replace": ([{"type": "Replace", "pattern": {"Regex": r"\s+$"}, "content": ""},
                       {"type": "Replace", "pattern": {"Regex": r" {2,}"}, "content": " "}], "gpt2"),
}

SENTENCEPIECE = {
    "sp": ([{"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": {"String": " "}, "content": MARK}], None),
    "sp metaspace": ([], {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}),
    "sp metaspace split": ([], {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}),
    "sp irregular": ([{"type": "Prepend", "prepend": MARK}, {"type": "Replace", "pattern": {"String": " "}, "content": MARK}], None),
    "sp gemma": ([{"type": "Replace", "pattern": {"String": " "}, "content": MARK}],
                 {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}),
}

PROSE = ("The quick brown fox jumps over the lazy dog, and then it's off again: 1234 times in 56 days! "
         "\"Well,\" said the dog, \"we'll see about that.\"\nНовый день начался. Ça va très bien. ").encode()


def repeat(unit, size):
    unit = unit.encode() if isinstance(unit, str) else unit
    return (unit * (size // len(unit) + 1))[:size].decode(errors="ignore")


def chance(first, last, size):
    source = random.Random(first)
    width = len(chr(last).encode())
    return "".join(chr(source.randint(first, last)) for _ in range(size // width))


def wordy(size):
    """Prose that does not repeat itself."""
    source, words, length = random.Random(5), [], 0
    known = PROSE.decode().split()
    while length < size:
        word = source.choice(known) if source.random() < 0.7 else "".join(source.choices("etaoinshrdlu", k=source.randint(2, 9)))
        words.append(word)
        length += len(word.encode()) + 1
    return " ".join(words)


TEXTS = {
    "one letter": lambda n: repeat("a", n),
    "capitals": lambda n: repeat("A", n),
    "capitals aA": lambda n: repeat("aA", n),
    "spaces": lambda n: repeat(" ", n),
    "spaces, then a letter": lambda n: repeat(" ", n - 1) + "x",
    "spaces and newlines": lambda n: repeat("  \n ", n),
    "random letters": lambda n: chance(97, 122, n),
    "random bytes of ASCII": lambda n: chance(32, 126, n),
    "ideographs": lambda n: chance(0x4e00, 0x9fa5, n),
    "one ideograph": lambda n: repeat("的", n),
    "combining marks": lambda n: chance(0x300, 0x34e, n),
    "one mark": lambda n: repeat("\u0301", n),
    "letter and mark": lambda n: repeat("e\u0301", n),
    "marks to be sorted": lambda n: repeat("\u0301", n // 2) + repeat("\u0323", n // 2),
    "marks in turn": lambda n: "a" + repeat("\u0301\u0323\u0327\u0334", n - 1),
    "hangul": lambda n: chance(0xac00, 0xd7a3, n),
    "hangul jamo": lambda n: chance(0x1100, 0x11ff, n),
    "thai": lambda n: chance(0xe01, 0xe3a, n),
    "emoji": lambda n: chance(0x1f600, 0x1f64f, n),
    "emoji joined": lambda n: repeat("👩\u200d👩\u200d👧\u200d👦\u200d", n),
    "joiners": lambda n: repeat("\u200d", n),
    "cr lf": lambda n: repeat("\r\n", n),
    "newlines": lambda n: repeat("\n", n),
    "tabs": lambda n: repeat("\t", n),
    "no-break spaces": lambda n: repeat("\u00a0", n),
    "ideographic spaces, letter": lambda n: repeat("\u3000", n - 1) + "x",
    "digits": lambda n: repeat("1", n),
    "random digits": lambda n: chance(48, 57, n),
    "digits, then a letter": lambda n: repeat("7", n - 1) + "x",
    "digits of scripts": lambda n: repeat("1٣१৪๕๖", n),
    "fractions": lambda n: repeat("½", n),
    "dots": lambda n: repeat(".", n),
    "signs": lambda n: repeat("!?", n),
    "quotes": lambda n: repeat("'", n),
    "contractions": lambda n: repeat("'ſ", n),
    "contractions s": lambda n: repeat("'s", n),
    "lower blocks": lambda n: repeat(MARK, n),
    "lower blocks and spaces": lambda n: repeat(MARK + " ", n),
    "starts of an added token": lambda n: repeat("<|end_of_tex", n),
    "<": lambda n: repeat("<", n),
    "bars": lambda n: repeat("<|", n),
    "NUL": lambda n: repeat("\0", n),
    "underscores": lambda n: repeat("_", n),
    "word, space": lambda n: repeat("a ", n),
    "random words": lambda n: "".join(random.Random(1).choices("abcdefgh ", k=n)),
    "base64": lambda n: base64.b64encode(random.Random(2).randbytes(n * 3 // 4)).decode(),
    "private use": lambda n: chance(0xe000, 0xf8ff, n),
    "ab": lambda n: repeat("ab", n),
    "th": lambda n: repeat("th", n),
}


@functools.cache
def ranks(count):
    with gzip.open(os.path.join(ROOT, "data", "cl100k_base.tiktoken.gz")) as file:
        lines = [line.split() for line in file][:count]
    return {base64.b64decode(text): int(rank) for text, rank in lines}


def alphabet():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in kept]
    return {**{b: chr(b) for b in kept}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


def parts(token, known):
    """The two tokens whose merge gives this one."""
    pieces = [bytes([b]) for b in token]
    while len(pieces) > 2:
        pairs = [(known.get(pieces[i] + pieces[i + 1], 1 << 30), i) for i in range(len(pieces) - 1)]
        rank, at = min(pairs)
        if rank >= known[token]:
            return None
        pieces[at:at + 2] = [pieces[at] + pieces[at + 1]]
    return pieces


ADDED = ["<|end_of_text|>", "<|end_of_turn|>", "<|end|>", "<|", "<think>"] + [f"<|reserved_{i}|>" for i in range(300)]


# added tokens that share long starts, or are made of what others strip
LONG = [letter * 500 + "|" for letter in "aA17 .'<_\u0301的\0\n"] + ["ab" * 300 + "|", "\r\n" * 200 + "|", "e\u0301" * 100 + "|"]
SPACES = ["  ", "\t", "\r\n", "\u3000"]


def added(first, texts=()):
    return [{"id": first + i, "content": text, "special": text.startswith("<|r"), "single_word": False, "lstrip": text in SPACES,
             "rstrip": text in SPACES, "normalized": False} for i, text in enumerate(ADDED + list(texts))]


def byte_level(count=3000):
    known, letters = ranks(count), alphabet()
    vocabulary, merges = {}, []
    for token, rank in known.items():
        vocabulary["".join(letters[b] for b in token)] = rank
        if len(token) > 1:
            pair = parts(token, known)
            merges.append(["".join(letters[b] for b in part) for part in pair])
    return {"type": "BPE", "vocab": vocabulary, "merges": merges}


def sentence_piece(count=3000, irregular=False):
    """As transformers converts such a model: a merge for each way to split a token into two, in order of
    the tokens. Irregular: runs of lower blocks and of dots merge last of all, after what holds them."""
    vocabulary = {"<unk>": 0, **{f"<0x{b:02X}>": b + 1 for b in range(256)}}
    for token in ranks(count):
        text = token.decode(errors="ignore").replace(" ", MARK)
        if len(text.encode()) >= len(token) and text.isprintable():
            vocabulary.setdefault(text, len(vocabulary))
    for letter in map(chr, [*range(0xe0, 0x180), *range(0x410, 0x450), *range(0x4e00, 0x5000)]):
        vocabulary.setdefault(letter, len(vocabulary))
    for i in range(2, 17):
        vocabulary.setdefault(MARK * i, len(vocabulary))
    merges = [[text[:i], text[i:]] for text in vocabulary if not text.startswith("<") for i in range(1, len(text))
              if text[:i] in vocabulary and text[i:] in vocabulary]
    if irregular:
        merges.sort(key=lambda pair: pair[0] + pair[1] in (MARK * 2, "..", "th"))
    return {"type": "BPE", "vocab": vocabulary, "merges": merges, "byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}


def steps(name, member, items):
    return None if not items else items[0] if len(items) == 1 else {"type": "Sequence", member: items}


def write(folder):
    """All vocabularies; their files by name."""
    files = {}
    model, sp = byte_level(), sentence_piece()

    def keep(name, model, normalizers, pre, decoder, more=()):
        files[name] = os.path.join(folder, name.replace(" ", "-") + ".tokenizer.json")
        with open(files[name], "w", encoding="utf-8") as file:
            json.dump({"version": "1.0", "added_tokens": added(len(model["vocab"]), more), "model": model, "decoder": decoder,
                       "normalizer": steps("", "normalizers", normalizers), "pre_tokenizer": pre, "post_processor": None}, file)
    for name, pre in PATTERNS.items():
        last = [] if any(step["type"] == "ByteLevel" for step in pre) else [BYTES]
        keep(name, model, [], steps("", "pretokenizers", pre + last), BYTES)
    for name, (normal, pattern) in NORMALIZERS.items():
        pre = PATTERNS[pattern]
        last = [] if pre == [GPT2] else [BYTES]
        keep(name, model, normal, steps("", "pretokenizers", pre + last), BYTES)
    for name, more in ("long added tokens", LONG), ("stripping added tokens", SPACES):
        keep(name, model, [], steps("", "pretokenizers", PATTERNS["llama3"] + [BYTES]), BYTES, more)
    fuse = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": MARK}, "content": " "},
                                             {"type": "ByteFallback"}, {"type": "Fuse"}]}
    for name, (normal, pre) in SENTENCEPIECE.items():
        keep(name, sentence_piece(irregular=True) if name == "sp irregular" else sp, normal, pre, fuse)
    return files


def seconds_of(program, file, line, limit):
    """Processor time; None where the limit ended it. And what it wrote."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)

    def bound():
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    run = subprocess.run([program, "-t", file, "--count"], input=line, capture_output=True, preexec_fn=bound,
                         env=dict(os.environ, XDG_CACHE_HOME=os.path.dirname(file)), check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (used if run.returncode >= 0 else None), run.stdout, run.stderr.decode(errors="replace").strip()


def times(program, folder, mib, names):
    files, failed = write(folder), False
    size = int(mib * (1 << 20))
    lines = {name: json.dumps({"prompt": make(size)}, ensure_ascii=False).encode() + b"\n" for name, make in TEXTS.items()}
    prose = json.dumps({"prompt": wordy(size)}, ensure_ascii=False).encode() + b"\n"
    limit = max(2, int(mib * 4))
    print(f"{'vocabulary':22} {'text':28} {'seconds':>8} {'of prose':>8}")
    for name in names or files:
        file = files.get(name, name)
        seconds_of(program, file, b'{"prompt":"a"}\n', 60)
        start = min(seconds_of(program, file, b'{"prompt":"a"}\n', 60)[0] or 0 for _ in range(3))
        normal = min((seconds_of(program, file, prose, 60)[0] or 60) - start for _ in range(2))
        results = []
        for text, line in lines.items():
            used, _, said = seconds_of(program, file, line, limit)
            bound = max(0.1 * max(mib, 1), 3 * normal)
            if used is not None and used - start > bound:
                used = min(used, seconds_of(program, file, line, limit)[0] or limit)
            used = used - start if used is not None else float("inf")
            results.append((used, text, said, used > bound))
        results.sort(reverse=True)
        with open(os.path.join(folder, "times.ndjson"), "a", encoding="utf-8") as log:
            for used, text, _, over in results:
                log.write(json.dumps({"vocabulary": name, "text": text, "mib": mib, "seconds": used, "of_prose": used / normal, "over": over}) + "\n")
        failed |= any(r[3] for r in results)
        for i, (used, text, said, over) in enumerate(results):
            if i < 2 or over or said:
                print(f"{name[-22:]:22} {text:28} {used:8.3f} {used / normal:8.2f}{'  OVER' if over else ''} {said[:100]}", flush=True)
        print(f"{name[-22:]:22} {'prose':28} {normal:8.3f}", flush=True)
    return failed


def differences(program, folder, names):
    from tokenizers import Tokenizer
    files, failed = write(folder), 0
    texts = [PROSE.decode(), wordy(3000)] + [make(n) for make in TEXTS.values() for n in (61, 700)]
    texts += [texts[i] + texts[-i] + texts[i // 2] for i in range(1, len(texts), 3)]
    for name in names or files:
        theirs = Tokenizer.from_file(files[name])
        lines = "".join(json.dumps({"prompt": text}) + "\n" for text in texts)
        run = subprocess.run([program, "--no-cache", "-t", files[name], "--ids", "--special"], input=lines, capture_output=True, text=True, check=False)
        if run.returncode:
            print(f"{name}: {run.stderr.strip()[:300]}")
            failed += 1
            continue
        differ = given_up = 0
        for text, line in zip(texts, run.stdout.splitlines()):
            try:
                ids = theirs.encode(text, add_special_tokens=False).ids
            except BaseException as error:  # the reference's panic, where its pattern takes too long
                if "retry-limit" not in str(error):
                    raise
                given_up += 1
                continue
            if ids != json.loads(line)["token_ids"]:
                differ += 1
                if differ == 1:
                    print(f"{name}: {text[:60]!r}\n  theirs {ids[:20]}\n  ours   {json.loads(line)['token_ids'][:20]}")
        print(f"{name}: {len(texts)} texts, {differ} differ" + (f", {given_up} that the reference gives up" if given_up else ""), flush=True)
        failed += differ > 0
    return failed > 0


def main():
    what, program, folder = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    if what == "times":
        return times(program, folder, float(sys.argv[4]) if len(sys.argv) > 4 else 1, sys.argv[5:])
    return differences(program, folder, sys.argv[4:])


if __name__ == "__main__":
    sys.exit(main())
