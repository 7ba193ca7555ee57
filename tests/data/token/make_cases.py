#!/usr/bin/env python3
"""Writes the lines of formats.ndjson.gz: small tokenizer.json files of every kind that kvr reads, and what Hugging
Face's tokenizers 0.23.3 makes of texts with them (pip install tokenizers==0.23.3).

    python3 tests/data/token/make_cases.py | gzip -9n > tests/data/token/formats.ndjson.gz

A line: {"name", "tokenizer": the file's text, "cases": [[text, ids, ids with special tokens added,
ids with special tokens as plain text, decoded text], ...]}
"""
import json
import random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

random.seed(5)
SAMPLE = ["the quick brown fox jumps over the lazy dog and the other things that they're doing there",
          "Don't you'll we've I'm HE'S 12345 67 8 x9 3.14 foo_bar(baz) == [1, 2, 3]; // comment",
          "déjà vu naïve Ångström ＦＵＬＬ ﬁne ½ ² été", "привет мир как дела привет", "東京タワー 日本語 の テスト 你好 世界 你好",
          "a\tb\n\nc\r\n  d   e    f", "   leading and trailing   ", "emoji 😀😀 👩‍👩‍👧 ok"] * 4
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
MARK = "\u2581"


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def normalizers(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def train(kind, size):
    model = models.BPE(byte_fallback=kind == "sp", fuse_unk=kind == "sp", unk_token="<unk>" if kind == "sp" else None)
    tokenizer = Tokenizer(model)
    if kind == "byte":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=256 + size, show_progress=False,
                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
        tokenizer.train_from_iterator(SAMPLE, trainer)
        return json.loads(tokenizer.to_str())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    bytes_tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=len(bytes_tokens) + size + 60, show_progress=False,
                                  special_tokens=bytes_tokens, limit_alphabet=60)
    tokenizer.train_from_iterator(SAMPLE, trainer)
    trained = json.loads(tokenizer.to_str())
    trained["added_tokens"] = trained["added_tokens"][:3]
    return trained


BYTE, SP = train("byte", 90), train("sp", 120)


def make(base, pre=None, normalizer=None, decoder=None, post=None, added=(), **model):
    result = json.loads(json.dumps(base))
    result.update(pre_tokenizer=pre, normalizer=normalizer, decoder=decoder, post_processor=post)
    result["model"].update(model)
    top = max(list(result["model"]["vocab"].values()) + [a["id"] for a in result["added_tokens"]])
    for number, (content, flags) in enumerate(added):
        token = {"id": top + 1 + number, "content": content, "single_word": False, "lstrip": False,
                 "rstrip": False, "normalized": False, "special": False}
        token.update(flags)
        result["added_tokens"].append(token)
    return result


def template(name, number):
    return {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": name, "type_id": 0}},
                                                     {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}}}


SPM_DECODER = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
GEMMA_DECODER = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
PREPEND = {"type": "Prepend", "prepend": MARK}
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = r"[\p{%s}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
UPPER, LOWER = CASED % r"Lu}\p{Lt", CASED % "Ll"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = "|".join([r"[\p{Han}]+", r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + CONTRACTION,
                 r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + CONTRACTION, r"\p{N}{1,3}",
                 r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
ODD = r"\d+|[a-z]+(?=[A-Z])|\w+|[^\w\s]|\s+"
ADDED = [("<|a|>", {"special": True}), ("<|a|><|b|>", {"special": True}), ("<think>", {}),
         ("<pad>", {"lstrip": True, "rstrip": True}), ("word", {"single_word": True}),
         ("Norm", {"normalized": True}), ("é", {"normalized": True})]

FILES = {
    "gpt2": make(BYTE, GPT2, decoder=LEVEL),
    "roberta": make(BYTE, dict(GPT2, add_prefix_space=True), decoder=LEVEL, added=ADDED[:2],
                    post={"type": "RobertaProcessing", "sep": ["<|a|>", 346], "cls": ["<|a|><|b|>", 347],
                          "trim_offsets": True, "add_prefix_space": True}),
    "llama3": make(BYTE, sequence(split(LLAMA3), LEVEL), decoder=LEVEL, added=ADDED, ignore_merges=True,
                   post={"type": "Sequence", "processors": [LEVEL, template("<|a|>", 346)]}),
    "qwen": make(BYTE, sequence(split(LLAMA3.replace("{1,3}", "")), LEVEL), {"type": "NFC"}, LEVEL, added=ADDED),
    "falcon": make(BYTE, sequence({"type": "Punctuation", "behavior": "Contiguous"}, GPT2,
                                  {"type": "Digits", "individual_digits": False},
                                  split("[0-9][0-9][0-9]")), decoder=LEVEL),
    "starcoder": make(BYTE, sequence({"type": "Digits", "individual_digits": True}, GPT2), decoder=LEVEL),
    "odd_pattern": make(BYTE, sequence(split(ODD), LEVEL), decoder=LEVEL),
    "removed": make(BYTE, sequence(split(r"\s+", "Removed"), LEVEL), decoder=LEVEL),
    "previous": make(BYTE, sequence(split(r"[aeiou]", "MergedWithPrevious"), LEVEL), decoder=LEVEL),
    "next": make(BYTE, sequence(split(r"[aeiou]", "MergedWithNext"), LEVEL), decoder=LEVEL),
    "contiguous": make(BYTE, sequence(split(r"[aeiou]", "Contiguous"), LEVEL), decoder=LEVEL),
    "inverted": make(BYTE, sequence(split(r"[a-z]+", "Removed", True), LEVEL), decoder=LEVEL),
    "whitespace": make(BYTE, sequence({"type": "Whitespace"}, LEVEL), decoder=LEVEL),
    "whitespace_split": make(BYTE, sequence({"type": "WhitespaceSplit"}, LEVEL), decoder=LEVEL),
    "bert": make(BYTE, sequence({"type": "BertPreTokenizer"}, LEVEL), decoder=LEVEL),
    "delimiter": make(BYTE, sequence({"type": "CharDelimiterSplit", "delimiter": "o"}, LEVEL), decoder=LEVEL),
    "punctuation": make(BYTE, sequence({"type": "Punctuation", "behavior": "Isolated"}, LEVEL), decoder=LEVEL),
    "nfkc_strip": make(BYTE, GPT2, normalizers({"type": "NFKC"}, {"type": "Strip", "strip_left": True, "strip_right": True}), LEVEL),
    "nfd_accents": make(BYTE, GPT2, normalizers({"type": "NFD"}, {"type": "StripAccents"}), LEVEL, added=ADDED),
    "nfkd_replace": make(BYTE, GPT2, normalizers({"type": "NFKD"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}), LEVEL),
    "spm": make(SP, None, normalizers(PREPEND, REPLACE), SPM_DECODER, template("<s>", 1), ADDED),
    "gemma": make(SP, {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
                  REPLACE, GEMMA_DECODER, template("<s>", 1), ADDED),
    "metaspace_first": make(SP, {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False},
                            None, SPM_DECODER, None, ADDED),
    "metaspace_split": make(SP, {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True},
                            {"type": "NFKC"}, {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}, None, ADDED),
    "metaspace_never": make(SP, sequence({"type": "Metaspace", "replacement": MARK, "prepend_scheme": "never", "split": True},
                                         {"type": "Digits", "individual_digits": True}), None, SPM_DECODER, None, ADDED),
    "unknown": make(SP, None, normalizers(PREPEND, REPLACE), SPM_DECODER, None, byte_fallback=False),
    "unknown_apart": make(SP, None, normalizers(PREPEND, REPLACE), SPM_DECODER, None, byte_fallback=False, fuse_unk=False),
    "no_decoder": make(BYTE, GPT2, added=ADDED),
    "no_decoder_spm": make(SP, None, normalizers(PREPEND, REPLACE)),
    "byte_level_list": make(BYTE, GPT2, decoder={"type": "Sequence", "decoders": [
        LEVEL, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "_"}]}, added=ADDED + [(" x", {})]),
    "metaspace_of_bytes": make(BYTE, GPT2, decoder={"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always"}),
    "decoders": make(SP, None, REPLACE, {"type": "Sequence", "decoders": [
        {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first"},
        {"type": "Strip", "content": "e", "start": 2, "stop": 0}, {"type": "ByteFallback"},
        {"type": "BPEDecoder", "suffix": "o"}]}),
    "repeated": make(BYTE, GPT2, decoder=LEVEL, normalizer={"type": "NFKC"},
                     added=[("Norm", {"special": True}), ("Norm", {}), ("word", {}), ("the", {})]),
    "ids_that_cannot_be": make(BYTE, GPT2, decoder=LEVEL, added=[("Norm", {"id": 3}), ("word", {"id": 400}), ("the", {})]),
    "rstrip_in_marks": make(SP, None, REPLACE, SPM_DECODER, None, [("word", {"normalized": True, "rstrip": True, "lstrip": True})]),
    "whole_byte_tokens": make(SP, None, REPLACE, SPM_DECODER, ignore_merges=True),
    "empty_matches": make(BYTE, sequence(split(r"(?=o)|$"), split(r"(?<=a)", "Contiguous"), LEVEL), decoder=LEVEL),
    "empty_matches_apart": make(BYTE, sequence(split(r"x*", "MergedWithNext"), split(r"(?=t)", "Removed", True), LEVEL), decoder=LEVEL),
    "lines": make(BYTE, sequence(split(r"^.|.$"), LEVEL), decoder=LEVEL),
    "borders": make(BYTE, sequence(split(r"\b", "Removed"), split(r"\B", "MergedWithNext"), LEVEL), decoder=LEVEL),
    "overlapping": make(BYTE, GPT2, decoder=LEVEL, added=[("word", {"rstrip": True}), ("\n", {}), (" x", {}), ("the", {"rstrip": True})]),
    "groups": make(BYTE, sequence(split(r"(t(h)|(qu))e?|(\\d)+"), LEVEL), decoder=LEVEL),
    "words": make(BYTE, sequence(split(r"\w+", "Removed"), LEVEL), decoder=LEVEL),
    "scripts": make(BYTE, sequence(split(r"[\p{Han}]+|\p{Cyrillic}+|[\p{Hiragana}\p{Katakana}]+"), LEVEL), decoder=LEVEL),
    "kimi": make(BYTE, sequence(split(KIMI), LEVEL), decoder=LEVEL),
    "bloom": make(BYTE, sequence(split(" ?[^(\\s|[.,!?…。，、।۔،])]+"), LEVEL), decoder=LEVEL),
    "classes": make(BYTE, sequence(split(r"[[:punct:]]+|[a-c[x-z&&[^y]]]|[^[:space:]\d]&&"), split(r"[\h&&[^\d]]|[\]\-a]"), LEVEL), decoder=LEVEL),
    "no_unknown": make(SP, None, REPLACE, SPM_DECODER, None, byte_fallback=False, unk_token=None),
}

FRAGMENTS = ["word\n", "the x", "the", " quick", "word", " word ", "words", "sword", "<|a|>", "<|a|><|b|>", "<think>", "<pad>", " <pad> ", "  <pad>\n",
             "Norm", "norm", "é", "e\u0301", "don't", " I'M", "'ſ", "12345", "7", "½", "²", "٣", "東京", "你好", "привет", "ﬁ", "Ａ",
             " ", "  ", "   ", "\n", "\r\n", "\t", "\u3000", "\u00a0", "\u0085", MARK, "😀", "👩‍👩‍👧", "\u200b", ".", "..", "!?", "_", "(x)",
             "camelCase", "ABC", "aB", "🦀", "\u0301", "\0", "<s>", "</s>", "<unk>", "<0x41>", "ÿ", "$+<", "a=b", "//", "x" * 40]


# Where the reference goes ways of its own: Oniguruma's intervals, (?m) and words in classes, tables of several
# versions of Unicode, a ByteLevel after another.
TIKTOKEN = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
OWN_WAYS = {
    "tiktoken_pattern": make(BYTE, sequence(split(TIKTOKEN), LEVEL), decoder=LEVEL),
    "intervals": make(BYTE, sequence(split(r"(?:o|th){,2}e|\d{2}?3|[a-z]{2,3}+\d|(1){1,2}+2|x{3"), split("[^b]{1}?r|é{2}+"), LEVEL), decoder=LEVEL),
    "dots": make(BYTE, sequence(split(r"(?m)d.{1,2}|(?mi:Q.)"), split(r"(?-m:e.)"), LEVEL), decoder=LEVEL),
    "byte_levels": make(BYTE, sequence(GPT2, LEVEL), decoder=LEVEL),
    "words_in_classes": make(BYTE, sequence(split(r"[^\w\s]+"), split(r"[\w.]+", "MergedWithNext"), LEVEL), decoder=LEVEL),
    "punctuation_old": make(BYTE, sequence({"type": "Punctuation", "behavior": "Contiguous"}, LEVEL), decoder=LEVEL),
    "digits_new": make(BYTE, sequence({"type": "Digits", "individual_digits": False}, LEVEL), decoder=LEVEL),
    "nfc_old": make(BYTE, GPT2, {"type": "NFC"}, LEVEL),
    "nfkd_old": make(BYTE, GPT2, {"type": "NFKD"}, LEVEL),
    "accents_old": make(BYTE, GPT2, {"type": "StripAccents"}, LEVEL),
    "empty_previous": make(BYTE, sequence(split(r"(?=t)|x*", "MergedWithPrevious", True), split(r"\d{,2}", "MergedWithPrevious", True),
                                          split(r"(?=h)|1", "MergedWithPrevious"), LEVEL), decoder=LEVEL),
    "unknown_missing": make(BYTE, GPT2, decoder=LEVEL, unk_token="zz"),
    "form_of_letters": make(BYTE, GPT2, PREPEND | {"prepend": "x"}, decoder=LEVEL, added=[("é", {"normalized": True}), ("Norm", {"normalized": True})]),
    "version_line": make(BYTE, GPT2, decoder=LEVEL, merges=["#version: 0.2"] + [" ".join(merge) for merge in BYTE["model"]["merges"]]),
    "circled": make(BYTE, GPT2, decoder=LEVEL, added=[("word", {"single_word": True})]),
}
RARE = ["\u07fd\u0301", "e\u07fd\u0301", "e\u0301\u0897\u0323", "\U000105d2\u0307", "\U000105c9", "\u061d", "a\u061db", "\u166d", "the\u166d\u166d",
        "\U00011de0", "o\U00016ff4\U00016ff5", "1234567", "11112", "123", "\u24b6word", "word\u24cf", " word ", "word\u200d", "\u32ff", "²b", "o.²", "e\n", "o\n\n",
        "d\nx", "q\n", "othe", "the", "ée", "éé", "xxx", "x{3", "br", "r"]


def texts(count, fragments):
    yield from ["", " ", "a", "word", "the quick brown fox", " word word, sword word_ word"]
    for _ in range(count):
        yield "".join(random.choice(fragments) for _ in range(random.randint(1, 9)))


for name, file in [*FILES.items(), *OWN_WAYS.items()]:
    content = json.dumps(file, ensure_ascii=False)
    tokenizer = Tokenizer.from_str(content)
    cases = []
    for text in texts(60, RARE if name in OWN_WAYS else FRAGMENTS):
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        added = tokenizer.encode(text, add_special_tokens=True).ids
        decoded = tokenizer.decode(plain, skip_special_tokens=False)
        tokenizer.encode_special_tokens = True
        guarded = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        cases.append([text, plain, added, guarded, decoded])
    print(json.dumps({"name": name, "tokenizer": content, "cases": cases}, ensure_ascii=False))
