#!/usr/bin/env bash
# The prefill on the CPU at the shape of Llama 3.2 1B against OpenBLAS' own single-precision product
# in the same run, on one thread of one pinned core, in processor time. OpenBLAS 0.3.21 does not
# know newer processors and falls back to AVX2, so its AVX-512 kernels are measured too.
#   TOKENS=504 MODEL=1b ROUNDS=3 tests/bench/prefill.sh
set -eu
cd "$(dirname "$0")/../.."
core=${CORE:-$(($(nproc) - 1))}
kernels=Haswell
grep -qw avx512bw /proc/cpuinfo && kernels="Haswell SkylakeX"
for kernel in $kernels; do
    OPENBLAS_CORETYPE=$kernel taskset -c "$core" "${BUILD:-build}/bench/bench_prefill" \
        "${MODEL:-1b}" "${TOKENS:-504}" "${ROUNDS:-3}"
done
