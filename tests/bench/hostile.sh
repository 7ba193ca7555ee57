#!/usr/bin/env bash
# Texts made to be slow: kvr-tokenize with the split patterns of many models on a megabyte of each
# (hostile.py says how), and, where Hugging Face's tokenizers can be had, whether the ids are the same.
#   tests/bench/hostile.sh [VOCABULARY...]      MIB=64 for longer texts
set -eu
cd "$(dirname "$0")/../.."
. tests/bench/lib.sh
folder=build/bench/hostile
mkdir -p "$folder"
make --no-print-directory -s build/bin/kvr-tokenize
if ! build/venv/bin/python -c 'import tokenizers' 2>/dev/null; then
    python3 -m venv build/venv
    build/venv/bin/pip install -q tokenizers || true
fi
if build/venv/bin/python -c 'import tokenizers' 2>/dev/null; then
    RUST_BACKTRACE=0 build/venv/bin/python tests/bench/hostile.py differences build/bin/kvr-tokenize "$folder" "$@" 2>/dev/null || true
fi
rm -f "$folder/times.ndjson"
taskset -c "$(($(nproc) - 1))" python3 tests/bench/hostile.py times build/bin/kvr-tokenize "$folder" "${MIB:-1}" "$@" ||
    echo "hostile: texts that take longer than they should are marked (other work on the machine may be why)"
jq -s --arg mib "${MIB:-1}" 'max_by(.seconds) as $worst
    | {metric: "\($mib) MiB, the slowest of \(length) texts and patterns (\($worst.vocabulary), \($worst.text))",
       kvr: $worst.seconds, unit: "s", asked: "0.1 s a MiB"}' "$folder/times.ndjson" | record hostile
