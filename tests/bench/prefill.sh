#!/usr/bin/env bash
# The prefill on the CPU at the shape of Llama 3.2 1B against OpenBLAS' own single-precision product
# in the same run, on one thread of one pinned core, in processor time. OpenBLAS 0.3.21 does not
# know newer processors and falls back to AVX2, so its AVX-512 kernels are measured too.
#   TOKENS=504 MODEL=1b ROUNDS=3 tests/bench/prefill.sh
set -eu
cd "$(dirname "$0")/../.."
. tests/bench/lib.sh
core=${CORE:-$(($(nproc) - 1))}
kernels=Haswell
grep -qw avx512bw /proc/cpuinfo && kernels="Haswell SkylakeX"
results=$(mktemp)
keep() {
    jq -cs --arg llama "$(version_of "${venv:-}/bin/python" xllamacpp)" '
        (map(select(.sgemm_gflops)) | group_by(.openblas)[] | max_by(.prefill_gflops)
            | {metric: "whole prefill, \(.model), \(.tokens) tokens, one thread", kvr: .prefill_gflops, unit: "GFLOP/s",
               peer: "sgemm of OpenBLAS (\(.openblas))", peer_version: "0.3.21", theirs: .sgemm_gflops, asked: "0.7 x"}),
        (map(select(.llama_processor_ms)) | group_by(.weights)[] | min_by(.kvr_processor_ms)
            | {metric: "\(.layers) layers of 1b, \(.weights), \(.tokens) tokens, \(.threads) threads", kvr: .kvr_processor_ms, unit: "ms of processor time",
               peer: "llama.cpp (xllamacpp)", peer_version: $llama, theirs: .llama_processor_ms, asked: "1 x"})' "$results" | record prefill
    rm -f "$results"
}
trap keep EXIT
for kernel in $kernels; do
    OPENBLAS_CORETYPE=$kernel taskset -c "$core" "${BUILD:-build}/bench/bench_prefill" \
        "${MODEL:-1b}" "${TOKENS:-504}" "${ROUNDS:-3}"
done | tee "$results"
# The same shape, threads and weights in llama.cpp's prompt processing (xllamacpp from PyPI), in turn.
# LAYERS=16 is the whole of 1B; time is linear in them. THREADS=2 takes two cores.
venv=${KVR_REAL_WORKER_DIR:-${BUILD:-build}/real-worker}/venv
if ! "$venv/bin/python" -c 'import gguf, numpy, xllamacpp' 2>/dev/null; then
    echo "prefill.sh: skipped: llama.cpp is not in $venv (KVR_REAL_WORKER=1 bats tests/prefill.bats puts it there)" >&2
    exit 0
fi
threads=${THREADS:-1}
mkdir -p "${BUILD:-build}/bench"
for weights in BF16 F32; do
    PATH=$PWD/${BUILD:-build}/bin:$PATH taskset -c "$((core - threads + 1))-$core" "$venv/bin/python" \
        tests/bench/prefill_llama.py "${BUILD:-build}/bench" "$weights" "${LAYERS:-4}" "${TOKENS:-504}" \
        "$threads" "${ROUNDS:-3}" 2>/dev/null
done | tee -a "$results"
