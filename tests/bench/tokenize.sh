#!/usr/bin/env bash
# Tokenizers side by side, one pinned core (tokenize_peers.py says how), for the vocabularies named or
# all of $SHARED/tokenizers that peers have. Peers come from PyPI into build/venv. Then the program,
# reading and writing NDJSON, beside the library (tokenize_program.py).
#   tests/bench/tokenize.sh [VOCABULARY...]
set -eu
cd "$(dirname "$0")/../.."
. tests/bench/lib.sh
shared=${SHARED:-../shared}
corpus=$shared/corpus/mixed_a.ndjson.gz
[ -e "$corpus" ] || { echo "bench-tokenize: needs $corpus" >&2; exit 0; }
folder=build/bench/tokenize
mkdir -p "$folder"
[ $# -gt 0 ] || set -- cl100k_base o200k_base qwen3 deepseek_v3 mistral_v0_1
if ! build/venv/bin/python -c 'import tiktoken' 2>/dev/null; then
    python3 -m venv build/venv
    build/venv/bin/pip install -q tiktoken tokenizers fastokens gigatoken splintr-rs || true
fi
g++ -fPIC -O2 -D_GNU_SOURCE -Ilibkvr -I. -std=c++17 -fno-exceptions -fno-rtti -c libkvr/line/structure.cc -o "$folder/structure.o"
sources=()
for source in libkvr/base/*.c libkvr/line/json*.c libkvr/token/*.c; do
    [[ $source =~ /annotate|/models|/request_ ]] || sources+=("$source")
done
cc -shared -fPIC -fno-semantic-interposition -O2 -std=gnu11 -D_GNU_SOURCE  -DKVR_VERSION='""' -DKVR_DATADIR='""' -Ilibkvr -I. -o "$folder/kvr.so" \
    "${sources[@]}" \
    tests/bench/bench_tokenize.c "$folder/structure.o" -lsimdjson -lz -lpcre2-8 -lxxhash -lstdc++ -lpthread
cpu=$(($(nproc) - 1))
results=$(mktemp)
for name; do
    for file in "$shared/tokenizers/$name".{tiktoken,tokenizer.json}.gz; do [ -e "$file" ] && break; done
    taskset -c "$cpu" build/venv/bin/python tests/bench/tokenize_peers.py "$file" "$corpus" "$folder/kvr.so" "$folder"
done | tee "$results"
python=build/venv/bin/python
jq -cn --arg versions "$(for name in tiktoken tokenizers fastokens gigatoken splintr-rs; do echo "$name $(version_of $python $name)"; done)" '
    ($versions | split("\n") | map(split(" ") | {(.[0] | sub("-rs"; "")): .[1]}) | add) as $version
    | [inputs | select(.library and (.skipped | not))] | group_by(.vocabulary)[]
    | (map(select(.library == "kvr"))[0]) as $ours | .[] | select(.library != "kvr")
    | {metric: "\(.vocabulary), text not seen before", kvr: $ours.fresh_mb_s, unit: "MB/s", peer: .library, peer_version: $version[.library], theirs: .fresh_mb_s}' "$results" | record tokenize
rm -f "$results"
zcat "$corpus" >"$folder/texts.ndjson"
sed 's/"text":/"prompt":/' "$folder/texts.ndjson" >"$folder/prompts.ndjson"
for name; do
    for file in "$shared/tokenizers/$name".{tiktoken,tokenizer.json}.gz; do [ -e "$file" ] && break; done
    taskset -c "$cpu" build/venv/bin/python tests/bench/tokenize_program.py "$file" "$folder/texts.ndjson" \
        "$folder/prompts.ndjson" "$folder"
done
