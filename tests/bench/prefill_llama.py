#!/usr/bin/env python3
"""prefill_llama.py FOLDER TYPE LAYERS TOKENS THREADS ROUNDS: kvr-prefill --weights against llama.cpp's prompt processing.

Needs the packages xllamacpp and gguf; kvr-prefill is the one in PATH. Writes FOLDER/TYPE-LAYERS.gguf once: random weights in
the shape of Llama 3.2 1B, but for its vocabulary (logits are computed for the last token alone) and the number of layers.
Both programs map that file and stay loaded; then they take prompts of TOKENS other tokens in turn, on the same cores. A line
of JSON a round, with wall time and processor time, which other programs on the machine disturb least; both ratios are
llama.cpp's time over ours: above 1 kvr-prefill is faster."""
import json
import os
import subprocess
import sys
import time
import urllib.request

import gguf
import numpy as np
import xllamacpp

folder, kind = sys.argv[1:3]
layers, tokens, threads, rounds = (int(n) for n in sys.argv[3:7])
path = f"{folder}/{kind}-{layers}.gguf"
HIDDEN, HEADS, KV_HEADS, DIM, INNER, VOCABULARY = 2048, 32, 8, 64, 8192, 32000


def write():
    out = gguf.GGUFWriter(path + ".part", "llama")
    out.add_context_length(32768)
    out.add_embedding_length(HIDDEN)
    out.add_block_count(layers)
    out.add_feed_forward_length(INNER)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KV_HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(DIM)
    out.add_rope_freq_base(500000.0)
    out.add_vocab_size(VOCABULARY)
    out.add_tokenizer_model("llama")
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    out.add_token_list(words + [f"w{i}" for i in range(VOCABULARY - len(words))])
    out.add_token_scores([-float(i) for i in range(VOCABULARY)])
    out.add_token_types([2, 3, 3] + [6] * 256 + [1] * (VOCABULARY - 259))
    to = getattr(gguf.GGMLQuantizationType, kind)
    noise = np.random.default_rng(1).standard_normal(1 << 22, dtype=np.float32) * 0.02

    def matrix(name, rows, columns):
        numbers = np.resize(noise, rows * columns).reshape(rows, columns)
        out.add_tensor(name, numbers if kind == "F32" else gguf.quants.quantize(numbers, to), raw_dtype=to)

    matrix("token_embd.weight", VOCABULARY, HIDDEN)
    out.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    for i in range(layers):
        for name in "attn_norm", "ffn_norm":
            out.add_tensor(f"blk.{i}.{name}.weight", np.ones(HIDDEN, np.float32))
        for name, rows, columns in (("attn_q", HEADS * DIM, HIDDEN), ("attn_k", KV_HEADS * DIM, HIDDEN),
                                    ("attn_v", KV_HEADS * DIM, HIDDEN), ("attn_output", HIDDEN, HEADS * DIM),
                                    ("ffn_gate", INNER, HIDDEN), ("ffn_up", INNER, HIDDEN), ("ffn_down", HIDDEN, INNER)):
            matrix(f"blk.{i}.{name}.weight", rows, columns)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    os.rename(path + ".part", path)


if not os.path.exists(path):
    write()
options = xllamacpp.CommonParams()
options.model.path, options.hostnames, options.port = path, ["127.0.0.1"], 0
options.n_parallel, options.n_ctx, options.n_gpu_layers, options.warmup = 1, tokens + 64, 0, False
options.n_batch, options.n_ubatch = max(tokens, 512), 512
options.cpuparams.n_threads = options.cpuparams_batch.n_threads = threads
server = xllamacpp.Server(options)
address = server.listening_address
address = address if address.startswith("http") else "http://" + address
child = subprocess.Popen(["kvr-prefill", "--backend", "cpu", "--weights", path, "--threads", str(threads), "--cached",
                          "none", "--capacity", str((tokens + 1024) // 512 * 512), "-q"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def child_time():
    with open(f"/proc/{child.pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def run_llama(prompt):
    body = {"prompt": prompt, "n_predict": 1, "temperature": 0, "cache_prompt": False}
    start = time.process_time()
    answer = json.load(urllib.request.urlopen(address + "/completion", json.dumps(body).encode()))
    assert answer["timings"]["prompt_n"] == tokens, answer["timings"]
    return answer["timings"]["prompt_ms"], (time.process_time() - start) * 1000


def run_kvr(prompt):
    start = child_time()
    child.stdin.write(json.dumps({"token_ids": prompt}).encode() + b"\n")
    child.stdin.flush()
    done = json.loads(child.stdout.readline())["prefill"]
    assert done["tokens"] == tokens, done
    return done["ms"], child_time() - start, done["device"]


for number in range(-1, rounds):
    prompt = [300 + (i * 7 + number * 131) % 30000 for i in range(tokens)]
    theirs, ours = run_llama(prompt), run_kvr(prompt)
    if number >= 0:  # the first does not count: the files are mapped, not read
        print(json.dumps({"bench": "prefill-llama.cpp", "weights": kind, "layers": layers, "tokens": tokens,
                          "threads": threads, "llama_ms": round(theirs[0], 1), "kvr_ms": round(ours[0], 1),
                          "ratio": round(theirs[0] / ours[0], 2), "llama_processor_ms": round(theirs[1], 1),
                          "kvr_processor_ms": round(ours[1], 1), "processor_ratio": round(theirs[1] / ours[1], 2),
                          "kvr": ours[2], "llama": xllamacpp.get_system_info().strip().split("\n")[-1][:160]}), flush=True)
child.stdin.close()
child.wait()
