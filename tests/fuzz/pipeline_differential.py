#!/usr/bin/env python3
"""kvr-tokenize against Hugging Face's tokenizers on random tokenizer.json files
(pip install tokenizers==0.23.3).

    pipeline_differential.py [SECONDS [SEED]]

A small BPE model is trained once for each of the two styles; files are made of it with random
normalizers, pre-tokenizers, decoders, post-processors, added tokens and model options. For each file
the ids of random texts are compared in three variants (all added tokens matched; special tokens of the
model added as well; special ones left as text), and the text decoded from them. A file that only one
side reads, or that kvr refuses with anything but "not supported", counts as a difference. Prints what
differs; the exit status is 1 if anything did.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import time

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

SAMPLE = ["the quick brown fox jumps over the lazy dog and the other things that they're doing there",
          "Don't you'll we've I'm HE'S 12345 67 8 x9 3.14 foo_bar(baz) == [1, 2, 3]; // comment",
          "déjà vu naïve Ångström ＦＵＬＬ ﬁne ½ ² été", "привет мир как дела привет",
          "東京タワー 日本語 の テスト 你好 世界 你好", "a\tb\n\nc\r\n  d   e    f",
          "emoji 😀😀 👩‍👩‍👧 ok"] * 4
MARK = "\u2581"
FRAGMENTS = ["the", " quick", "word", " word ", "words", "sword", "<|a|>", "<|a|><|b|>", "<think>", "<pad>",
             " <pad> ", "  <pad>\n", "Norm", "norm", "NORM", "é", "É", "e\u0301", "don't", " I'M", "'ſ", "12345", "7", "½",
             "²", "٣", "東京", "你好", "привет", "ﬁ", "Ａ", " ", "  ", "   ", "\n", "\r\n", "\t", "\u3000", "\u00a0",
             "\u0085", MARK, MARK * 2, "😀", "👩‍👩‍👧", "\u200b", "\ufeff", "\u200d", ".", "..", "!?", "_", "(x)", "camelCase", "ABC",
             "aB", "🦀", "\u0301", "\0", "\x01", "\x7f", "<s>", "</s>", "<unk>", "<0x41>", "ÿ", "$+<", "a=b", "//", "x" * 40, "İ", "ẞ",
             "Σ", "ΑΣ", "ς", "\u0345", "ー", "々", "ـ", "한국", "\u1100\u1161", "का", "ไทย", "\u2028", "\u00ad", "\ufffd", "\u0378"]
REGEXES = [r"\s+", r"[aeiou]", r"\p{N}{1,3}", r"\d+|\w+", r"\s+(?!\S)|\s+", r"[^\r\n\p{L}\p{N}]?\p{L}+", r"a|b|c", r" ?\w+",
           r"(?i:'s|'t|'re)|\p{L}+", r"x{2,}", r"\p{Lu}(?=\p{Ll})", r"[一-龥぀-ゟ゠-ヿ]+", r"[\p{Han}]+", r"^a", r".", r"(t|(h))e", r"([a-z])(\d)?"]
EMPTY = [r"$", r"\b", r"(?=t)"]  # only for Split: the reference's Replace does not end with them
BEHAVIOURS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
SCHEMES = ["always", "never", "first"]


def train(kind, options):
    model = models.BPE(**options)
    tokenizer = Tokenizer(model)
    common = {key: options[key] for key in ("continuing_subword_prefix", "end_of_word_suffix") if key in options}
    if kind == "byte":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=256 + 90, show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **common)
        tokenizer.train_from_iterator(SAMPLE, trainer)
        return json.loads(tokenizer.to_str())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    first = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=len(first) + 180, show_progress=False, special_tokens=first,
                                  limit_alphabet=60, **common)
    tokenizer.train_from_iterator(SAMPLE, trainer)
    trained = json.loads(tokenizer.to_str())
    trained["added_tokens"] = trained["added_tokens"][:3]
    return trained


def some(choices, most):
    return [random.choice(choices)() for _ in range(random.randint(0, most))]


def flag():
    return random.random() < 0.5


def pattern(more=()):
    return {"Regex": random.choice(REGEXES + list(more))} if flag() else {"String": random.choice([" ", "a", "th", MARK, "..", "\n", "é"])}


NORMALIZERS = [lambda: {"type": random.choice(["NFC", "NFD", "NFKC", "NFKD"])}] * 2 + [
    lambda: {"type": "Lowercase"},
    lambda: {"type": "StripAccents"},
    lambda: {"type": "Nmt"},
    lambda: {"type": "Strip", "strip_left": flag(), "strip_right": flag()},
    lambda: {"type": "Replace", "pattern": pattern(), "content": random.choice(["", " ", "_", MARK, "ab"])},
    lambda: {"type": "Prepend", "prepend": random.choice([MARK, " ", "x"])},
    lambda: {"type": "BertNormalizer", "clean_text": flag(), "handle_chinese_chars": flag(),
             "strip_accents": random.choice([None, True, False]), "lowercase": flag()},
]
PRETOKENIZERS = [
    lambda: {"type": "Split", "pattern": pattern(EMPTY), "behavior": random.choice(BEHAVIOURS), "invert": flag()},
    lambda: {"type": "Split", "pattern": pattern(EMPTY), "behavior": random.choice(BEHAVIOURS), "invert": flag()},
    lambda: {"type": "Digits", "individual_digits": flag()},
    lambda: {"type": "Punctuation", "behavior": random.choice(BEHAVIOURS)},
    lambda: {"type": "Whitespace"},
    lambda: {"type": "WhitespaceSplit"},
    lambda: {"type": "BertPreTokenizer"},
    lambda: {"type": "UnicodeScripts"},
    lambda: {"type": "FixedLength", "length": random.randint(1, 6)},
    lambda: {"type": "CharDelimiterSplit", "delimiter": random.choice(["o", " ", "é"])},
]


def byte_level():
    return {"type": "ByteLevel", "add_prefix_space": flag(), "trim_offsets": flag(), "use_regex": flag()}


def metaspace():
    return {"type": "Metaspace", "replacement": random.choice([MARK, MARK, MARK, "_"]), "prepend_scheme": random.choice(SCHEMES), "split": flag()}


DECODERS = [
    lambda: {"type": "Replace", "pattern": {"String": random.choice([MARK, "a", " "])} if random.random() < 0.8 else {"Regex": r"\s+|x"},
             "content": random.choice([" ", "", "b"])},
    lambda: {"type": "ByteFallback"},
    lambda: {"type": "Fuse"},
    lambda: {"type": "Strip", "content": random.choice([" ", "a"]), "start": random.randint(0, 2), "stop": random.randint(0, 2)},
    metaspace,
    byte_level,
    lambda: {"type": "BPEDecoder", "suffix": "</w>"},
]


def template(names):
    def part():
        return {"SpecialToken": {"id": random.choice(list(names)), "type_id": 0}}
    single = [part() for _ in range(random.randint(0, 2))] + [{"Sequence": {"id": "A", "type_id": 0}}] + \
             [part() for _ in range(random.randint(0, 2))]
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]} for name, number in names.items()}}


def sequence(name, member, steps, always=False):
    if not steps:
        return None
    return {"type": name, member: steps} if len(steps) > 1 or always else steps[0]


def added_tokens(file):
    vocab = file["model"]["vocab"]
    top = max(list(vocab.values()) + [a["id"] for a in file["added_tokens"]]) + 1
    result = list(file["added_tokens"])
    contents = ["<|a|>", "<|a|><|b|>", "<think>", "<pad>", "word", "Norm", "é", " x", "the", "a b", "<s>", "\n", "ﬁ", MARK + "t", "東京"]
    for content in random.sample(contents, random.randint(0, 7)):
        token = {"id": top, "content": content}
        for name in ("single_word", "lstrip", "rstrip", "normalized", "special"):
            token[name] = random.random() < 0.3
        if token["special"]:
            token["normalized"] = random.random() < 0.1
        own = vocab.get(content)
        if any(content == other["content"] for other in result) and random.random() < 0.5:
            continue
        if own is not None:
            token["id"] = own
        elif random.random() < 0.05:
            token["id"] = random.randrange(600)  # a contradiction: the reference goes by its own count
        else:
            top += 1
        result.append(token)
    return result


def make(bases):
    kind = random.choice(["byte", "sp"])
    file = json.loads(json.dumps(random.choice(bases[kind])))
    model = file["model"]
    normal = some(NORMALIZERS, 2)
    if kind == "byte":
        pre = some(PRETOKENIZERS, 2) + [byte_level()] + (some(PRETOKENIZERS, 1) if random.random() < 0.2 else [])
        decoder = byte_level() if random.random() < 0.8 else sequence("Sequence", "decoders", some(DECODERS, 3))
        model["ignore_merges"] = random.random() < 0.3
    else:
        if flag():
            normal += [{"type": "Prepend", "prepend": MARK}] * random.randint(0, 1) + \
                      [{"type": "Replace", "pattern": {"String": " "}, "content": MARK}]
            pre = some(PRETOKENIZERS, 1)
        else:
            pre = some(PRETOKENIZERS, 1) * (random.random() < 0.3) + [metaspace()] + some(PRETOKENIZERS, 1)
        decoder = sequence("Sequence", "decoders", some(DECODERS, 4))
        model.update(byte_fallback=flag(), fuse_unk=flag(), ignore_merges=random.random() < 0.3,
                     unk_token=random.choice(["<unk>", "<unk>", None]))
    if random.random() < 0.2:
        random.shuffle(model["merges"])  # an order that is not that of the ids
    file["normalizer"] = sequence("Sequence", "normalizers", normal)
    file["pre_tokenizer"] = sequence("Sequence", "pretokenizers", pre)
    file["decoder"] = decoder
    file["added_tokens"] = added_tokens(file)
    names = {a["content"]: a["id"] for a in file["added_tokens"]} or {"x": 5}
    name, number = random.choice(list(names.items()))
    post = random.choice([None, template(names), byte_level(), {"type": "BertProcessing", "sep": [name, number], "cls": [name, number]},
                          {"type": "RobertaProcessing", "sep": [name, number], "cls": [name, number], "trim_offsets": True, "add_prefix_space": flag()},
                          {"type": "Sequence", "processors": [byte_level(), template(names)]}])
    file["post_processor"] = post
    return file


def texts(count):
    yield from ["", " ", "a"]
    for _ in range(count):
        yield "".join(random.choice(FRAGMENTS) for _ in range(random.randint(1, 9)))


def ours(path, program, lines, *options):
    """Standard output's lines as objects, or the error."""
    run = subprocess.run([program, "--no-cache", "-t", path, *options], input="".join(json.dumps(l) + "\n" for l in lines),
                         capture_output=True, text=True)
    if run.returncode:
        return run.returncode, run.stderr
    return 0, [json.loads(line) for line in run.stdout.split("\n")[:-1]]


def compare(program, path, file, wanted, show):
    content = json.dumps(file, ensure_ascii=False)
    with open(path, "w", encoding="utf-8") as out:
        out.write(content)
    status, lines = ours(path, program, [{"prompt": text} for text, *_ in wanted], "--ids", "--count", "--special", "--bos", "no")
    if status == 4:
        return "not supported: " + lines.split(": ", 2)[-1].strip()
    if status:
        show(f"refused, status {status}: {lines}")
        return "differs"
    variants = [lines, ours(path, program, [{"prompt": w[0]} for w in wanted], "--ids", "--count", "--special")[1],
                ours(path, program, [{"prompt": w[0]} for w in wanted], "--ids", "--count", "--bos", "no")[1]]
    status, decoded = ours(path, program, [{"token_ids": w[1]} for w in wanted], "--decode")
    for number, (text, *ids, back) in enumerate(wanted):
        for variant in range(3):
            got = variants[variant][number]["token_ids"]
            if got != ids[variant]:
                show(f"variant {variant} of {text!r}\n    kvr        {got}\n    tokenizers {ids[variant]}")
                return "differs"
        if status:
            show(f"not decoded: {decoded}")
            return "differs"
        if decoded[number]["prompt"] != back:
            show(f"decoding {ids[0]} of {text!r}\n    kvr        {decoded[number]['prompt']!r}\n    tokenizers {back!r}")
            return "differs"
    return "same"


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**6)
    program = os.path.join(os.environ.get("BUILD", "build"), "bin", "kvr-tokenize")
    bases = {"byte": [train("byte", {}), train("byte", {"continuing_subword_prefix": "##"}), train("byte", {"end_of_word_suffix": "</w>"})],
             "sp": [train("sp", {"unk_token": "<unk>"}), train("sp", {"unk_token": "<unk>", "end_of_word_suffix": "</w>"})]}
    bases["byte"] += bases["byte"][:1] * 3
    bases["sp"] += bases["sp"][:1] * 3
    stop, counts, texts_compared, shown = time.time() + seconds, {}, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokenizer.json")
        while time.time() < stop:
            random.seed(seed)
            file = make(bases)
            try:
                tokenizer = Tokenizer.from_str(json.dumps(file, ensure_ascii=False))
            except Exception as error:  # the reference refuses the file
                counts["refused there"] = counts.get("refused there", 0) + 1
                seed += 1
                continue
            forms = [tokenizer.normalizer.normalize_str(a["content"]) if tokenizer.normalizer else a["content"]
                     for a in file["added_tokens"] if a["normalized"]]
            if len(set(forms)) < len(forms):
                seed += 1  # which of two tokens of one normal form is found changes from run to run there
                continue
            if '"first"' in json.dumps(file["pre_tokenizer"]) and file["normalizer"]:
                seed += 1  # there "first" depends on whether a normalizer took characters from the start
                continue
            if tokenizer.normalizer and any(a["normalized"] and not tokenizer.normalizer.normalize_str(a["content"])
                                            for a in file["added_tokens"]):
                seed += 1  # the reference finds an empty token everywhere and never ends
                continue
            wanted = []
            for text in texts(40):
                try:
                    plain = tokenizer.encode(text, add_special_tokens=False).ids
                    full = tokenizer.encode(text, add_special_tokens=True).ids
                    back = tokenizer.decode(plain, skip_special_tokens=False)
                    tokenizer.encode_special_tokens = True
                    guarded = tokenizer.encode(text, add_special_tokens=False).ids
                    tokenizer.encode_special_tokens = False
                except BaseException:  # a panic of the reference
                    continue
                wanted.append((text, plain, full, guarded, back))

            def show(message):
                nonlocal shown
                shown += 1
                if shown <= int(os.environ.get("SHOW", 10)):
                    small = {key: value for key, value in file.items() if key not in ("model", "version", "truncation", "padding")}
                    small["model"] = {key: value for key, value in file["model"].items() if key not in ("vocab", "merges")}
                    print(f"seed {seed}: {message}\n    {json.dumps(small, ensure_ascii=False)}")

            verdict = compare(program, path, file, wanted, show)
            counts[verdict] = counts.get(verdict, 0) + 1
            texts_compared += len(wanted) if verdict == "same" else 0
            seed += 1
    for verdict, count in sorted(counts.items()):
        print(f"{count} {verdict}")
    print(f"{sum(counts.values())} files, {texts_compared} texts in files that agree, {counts.get('differs', 0)} differ")
    sys.exit("differs" in counts)


if __name__ == "__main__":
    main()
