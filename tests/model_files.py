#!/usr/bin/env python3
"""model_files.py FOLDER FAMILY TYPE [VOCABULARY HIDDEN INNER HEADS KV_HEADS LAYERS]: one small random model as FOLDER/model.gguf,
FOLDER/model.safetensors and in two pieces as FOLDER/pieces, each with its config.json.

FAMILY is llama, qwen2 or qwen3; TYPE is F32, F16 or BF16. Standard library alone: the tests need no
package. Rows of llama's queries and keys go into GGUF as its converter lays them, the halves of a
head in turn."""
import json
import os
import random
import struct
import sys

folder, family, kind = sys.argv[1:4]
sizes = [int(n) for n in sys.argv[4:10]] if len(sys.argv) > 4 else [200, 64, 96, 4, 2, 2]
vocabulary, hidden, inner, heads, kv_heads, layers = sizes
dim = 32
chance = random.Random(7)
GGUF_TYPE = {"F32": 0, "F16": 1, "BF16": 30}[kind]


def encode(values):
    if kind == "F32":
        return struct.pack(f"<{len(values)}f", *values)
    if kind == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    words = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return struct.pack(f"<{len(values)}H", *(word >> 16 for word in words))


def matrix(rows, columns, scale):
    return [encode([chance.gauss(0, scale) for _ in range(columns)]) for _ in range(rows)]


def vector(columns, middle, scale):
    return [encode([chance.gauss(middle, scale)]) for _ in range(columns)]


def in_pairs(rows):
    """The order of llama's queries and keys in GGUF."""
    half = dim // 2
    return [rows[row // dim * dim + row % 2 * half + row % dim // 2] for row in range(len(rows))]


tensors = []  # GGUF name, safetensors name, rows as bytes, shape, whether GGUF lays it in pairs


def add(gguf, other, rows, shape, paired=False):
    tensors.append((gguf, other, rows, shape, paired and family == "llama"))


add("token_embd.weight", "model.embed_tokens.weight", matrix(vocabulary, hidden, 1), (vocabulary, hidden))
add("output.weight", "lm_head.weight", matrix(vocabulary, hidden, hidden ** -0.5), (vocabulary, hidden))
add("output_norm.weight", "model.norm.weight", vector(hidden, 1, 0.1), (hidden,))
for i in range(layers):
    def layer(gguf, other, rows, shape, paired=False):
        add(f"blk.{i}.{gguf}", f"model.layers.{i}.{other}", rows, shape, paired)

    def linear(gguf, other, rows, columns, paired=False):
        layer(gguf + ".weight", other + ".weight", matrix(rows, columns, columns ** -0.5), (rows, columns), paired)

    layer("attn_norm.weight", "input_layernorm.weight", vector(hidden, 1, 0.1), (hidden,))
    layer("ffn_norm.weight", "post_attention_layernorm.weight", vector(hidden, 1, 0.1), (hidden,))
    for short, long, count in (("q", "q", heads), ("k", "k", kv_heads), ("v", "v", kv_heads)):
        linear(f"attn_{short}", f"self_attn.{long}_proj", count * dim, hidden, short != "v")
        if family == "qwen2":
            layer(f"attn_{short}.bias", f"self_attn.{long}_proj.bias", vector(count * dim, 0, 0.3), (count * dim,))
        if family == "qwen3" and short != "v":
            layer(f"attn_{short}_norm.weight", f"self_attn.{long}_norm.weight", vector(dim, 1, 0.1), (dim,))
    linear("attn_output", "self_attn.o_proj", hidden, heads * dim)
    linear("ffn_gate", "mlp.gate_proj", inner, hidden)
    linear("ffn_up", "mlp.up_proj", inner, hidden)
    linear("ffn_down", "mlp.down_proj", hidden, inner)


def write_gguf(path):
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    def number(key, value):
        return text(f"{family}.{key}") + struct.pack("<II", 4, value)

    def real(key, value):
        return text(f"{family}.{key}") + struct.pack("<If", 6, value)

    pairs = [text("general.architecture") + struct.pack("<I", 8) + text(family),
             text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
             number("embedding_length", hidden), number("block_count", layers),
             number("attention.head_count", heads), number("attention.head_count_kv", kv_heads),
             number("attention.key_length", dim), number("attention.value_length", dim),
             number("feed_forward_length", inner), number("context_length", 4096),
             real("rope.freq_base", 10000), real("attention.layer_norm_rms_epsilon", 2 ** -17)]
    infos, data = b"", b""
    for name, _, rows, shape, paired in tensors:
        infos += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        infos += struct.pack("<IQ", GGUF_TYPE, len(data))
        data += b"".join(in_pairs(rows) if paired else rows)
        data += bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + infos
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)


def write_safetensors(path, chosen):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for _, name, rows, shape, _ in chosen:
        start = len(data)
        data += b"".join(rows)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, len(data)]}
    head = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + data)


config = {"model_type": family, "hidden_act": "silu", "hidden_size": hidden, "num_hidden_layers": layers,
          "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": dim, "intermediate_size": inner,
          "rms_norm_eps": 2 ** -17, "rope_theta": 10000.0, "vocab_size": vocabulary, "tie_word_embeddings": False}
pieces = os.path.join(folder, "pieces")
os.makedirs(pieces, exist_ok=True)
write_gguf(os.path.join(folder, "model.gguf"))
write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
for i in range(2):
    write_safetensors(os.path.join(pieces, names[i]), tensors[i::2])
with open(os.path.join(pieces, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
    json.dump({"weight_map": {tensor[1]: names[i % 2] for i, tensor in enumerate(tensors)}}, file)
for place in folder, pieces:
    with open(os.path.join(place, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
