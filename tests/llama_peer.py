#!/usr/bin/env python3
"""llama_peer.py MODEL.gguf COUNT [PROMPTS.json]: are the next tokens of `kvr-prefill --weights` those of llama.cpp?

Needs the packages xllamacpp and gguf; kvr-prefill is the one in PATH. The model is first written in single precision, as
GGUF and as safetensors, in a folder of its own, because llama.cpp rounds what it multiplies with 16-bit weights. With
FAMILY=qwen2 or qwen3 in the environment only the vocabulary is MODEL's: a small random model of that family is written.
llama.cpp runs with keys and values in single precision and without flash attention, which rounds to 16 bits inside. The
prompts are texts from a JSON list, or COUNT lists of random tokens. One line of JSON for each file; the status is 1 where
the likeliest token of a prompt is another, or a log probability is off by more than 0.002."""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import urllib.request

import gguf
import numpy as np
import xllamacpp

model, count = sys.argv[1], int(sys.argv[2])
texts = json.load(open(sys.argv[3], encoding="utf-8")) if len(sys.argv) > 3 else None
source = gguf.GGUFReader(model)


def field(name, otherwise=None):
    found = source.get_field(name)
    return otherwise if found is None else found.contents()


family = os.environ.get("FAMILY", field("general.architecture"))
if "FAMILY" in os.environ:
    sizes = {"embedding_length": 256, "block_count": 3, "feed_forward_length": 512, "attention.head_count": 4,
             "attention.head_count_kv": 2, "attention.key_length": 64, "attention.value_length": 64,
             "context_length": 4096}
    reals = {"rope.freq_base": 10000.0, "attention.layer_norm_rms_epsilon": 1e-6}
    WIDTHS = {"q": 256, "k": 128, "v": 128}
    chance = np.random.default_rng(4)

    def draw(*shape, middle=0.0, scale=None):
        scale = shape[-1] ** -0.5 if scale is None else scale
        return (middle + scale * chance.standard_normal(shape)).astype(np.float32)

    tensors = {"token_embd.weight": draw(len(field("tokenizer.ggml.tokens")), 256, scale=1.0),
               "output.weight": draw(len(field("tokenizer.ggml.tokens")), 256),
               "output_norm.weight": draw(256, middle=1, scale=0.1)}
    for i in range(3):
        block = {"attn_norm.weight": draw(256, middle=1, scale=0.1), "ffn_norm.weight": draw(256, middle=1, scale=0.1),
                 "attn_output.weight": draw(256, 256), "ffn_gate.weight": draw(512, 256),
                 "ffn_up.weight": draw(512, 256), "ffn_down.weight": draw(256, 512)}
        for short, width in WIDTHS.items():
            block[f"attn_{short}.weight"] = draw(width, 256)
            if family == "qwen2":
                block[f"attn_{short}.bias"] = draw(width, scale=0.5)
            elif short != "v":
                block[f"attn_{short}_norm.weight"] = draw(64, middle=1, scale=0.2)
        tensors.update((f"blk.{i}.{name}", array) for name, array in block.items())
else:
    names = ("embedding_length", "block_count", "feed_forward_length", "attention.head_count", "attention.head_count_kv")
    sizes = {name: field(f"{family}.{name}") for name in names}
    reals = {name: field(f"{family}.{name}") for name in ("rope.freq_base", "attention.layer_norm_rms_epsilon")}
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).reshape([int(n) for n in reversed(t.shape)])
               .astype(np.float32) for t in source.tensors}
heads, kv_heads = sizes["attention.head_count"], sizes["attention.head_count_kv"]


def write_gguf(path):
    out = gguf.GGUFWriter(path, family)
    for name, value in source.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        if "FAMILY" in os.environ and not name.startswith("tokenizer."):
            continue
        if value.types[0] == gguf.GGUFValueType.ARRAY:
            out.add_array(name, value.contents())
        else:
            out.add_key_value(name, value.contents(), value.types[0])
    if "FAMILY" in os.environ:
        for name, value in sizes.items():
            out.add_uint32(f"{family}.{name}", value)
        for name, value in reals.items():
            out.add_float32(f"{family}.{name}", value)
    for name, array in tensors.items():
        out.add_tensor(name, array)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def write_safetensors(folder):
    """In single precision. llama's queries and keys back into the order they were trained in."""
    whole = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    parts = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
             "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
    header, data = {}, []
    at = 0
    for name, array in tensors.items():
        base, ending = name.rsplit(".", 1)[0].split("."), name.rsplit(".", 1)[1]
        if family == "llama" and base[-1] in ("attn_q", "attn_k"):
            n = heads if base[-1] == "attn_q" else kv_heads
            array = array.reshape(n, array.shape[0] // n // 2, 2, -1).swapaxes(1, 2).reshape(array.shape)
        other = f"model.layers.{base[1]}.{parts[base[2]]}" if base[0] == "blk" else whole[base[0]]
        data.append(np.ascontiguousarray(array).tobytes())
        header[f"{other}.{ending}"] = {"dtype": "F32", "shape": array.shape, "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    head = json.dumps(header).encode()
    with open(f"{folder}/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        file.writelines(data)
    config = {"model_type": family, "hidden_size": sizes["embedding_length"],
              "num_hidden_layers": sizes["block_count"], "num_attention_heads": heads, "num_key_value_heads": kv_heads,
              "intermediate_size": sizes["feed_forward_length"], "rope_theta": reals["rope.freq_base"],
              "rms_norm_eps": reals["attention.layer_norm_rms_epsilon"],
              "vocab_size": tensors["token_embd.weight"].shape[0], "tie_word_embeddings": "output.weight" not in tensors}
    json.dump(config, open(f"{folder}/config.json", "w", encoding="utf-8"))


def ask_llama(path):
    """Prompts as tokens, and of each the twenty likeliest next tokens."""
    options = xllamacpp.CommonParams()
    options.model.path = path
    options.n_parallel, options.n_ctx, options.n_gpu_layers, options.warmup = 1, 4096, 0, False
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
    options.cache_type_k = options.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    options.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    options.hostnames, options.port = ["127.0.0.1"], 0
    server = xllamacpp.Server(options)
    host = server.listening_address
    host = host if host.startswith("http") else "http://" + host

    def post(place, body):
        return json.load(urllib.request.urlopen(host + place, json.dumps(body).encode()))

    chance = random.Random(3)
    prompts, answers = [], []
    for number in range(len(texts) if texts else count):
        if texts:
            tokens = post("/tokenize", {"content": texts[number], "add_special": False})["tokens"]
        else:
            tokens = [chance.randrange(300, 30000) for _ in range(chance.randrange(1, 300))]
        answer = post("/completion", {"prompt": tokens, "n_predict": 1, "temperature": 0, "n_probs": 20,
                                      "cache_prompt": False})
        # half a character is given out with its other half: no probabilities
        if tokens and "completion_probabilities" in answer:
            prompts.append(tokens)
            answers.append([(t["id"], t["logprob"]) for t in answer["completion_probabilities"][0]["top_logprobs"]])
        if len(prompts) == count:
            break
    return prompts, answers


def compare(weights, prompts, answers):
    lines = "".join(json.dumps({"token_ids": tokens}) + "\n" for tokens in prompts)
    done = subprocess.run(["kvr-prefill", "--backend", "cpu", "--threads", "1", "--weights", weights, "--top", "200"],
                          input=lines, capture_output=True, text=True, check=True)
    first = order = 0
    worst = []
    for line, theirs in zip(done.stdout.splitlines(), answers):
        ours = [(t["id"], t["logprob"]) for t in json.loads(line)["prefill"]["top"]]
        first += ours[0][0] == theirs[0][0]
        order += [i for i, _ in ours[:10]] == [i for i, _ in theirs[:10]]
        known = dict(ours)
        worst.append(max(abs(known.get(i, -99) - value) for i, value in theirs[:10]))
    worst.sort()
    print(json.dumps({"file": os.path.basename(weights), "family": family, "prompts": len(prompts),
                      "tokens": sum(map(len, prompts)), "top1": first, "top10_order": order,
                      "logprob_difference": {"median": round(worst[len(worst) // 2], 6), "max": round(worst[-1], 6)}}))
    return first == len(prompts) > 0 and worst[-1] < 0.002


with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(model))) as scratch:
    write_gguf(f"{scratch}/model.gguf")
    write_safetensors(scratch)
    asked = ask_llama(f"{scratch}/model.gguf")
    fine = [compare(path, *asked) for path in (f"{scratch}/model.gguf", f"{scratch}/model.safetensors")]
sys.exit(not all(fine))
