#!/usr/bin/env bats
# kvr-prefill on GPUs that are none: NVML from tests/mock/mock_nvml.c, a driver that is an empty
# library, and the CUDA backend with the processor in the place of a GPU (tests/cuda_host.h).

load helper

setup_file() {
    export GPU_HOME=$BATS_FILE_TMPDIR/home
    mkdir "$GPU_HOME"
    cc -shared -fPIC -o "$GPU_HOME/libnvidia-ml.so.1" "$REPO/tests/mock/mock_nvml.c"
    cc -shared -fPIC -o "$GPU_HOME/libcuda.so.1" -x c /dev/null
    cp "$BUILD/bin/kvr-prefill" "$GPU_HOME"
    cp "$BUILD/host/libkvr_cuda.so" "$GPU_HOME" # beside the program, where it is looked for first
}

setup() {
    cd "$BATS_TEST_TMPDIR" || return 1
    export LD_LIBRARY_PATH=$GPU_HOME
    [[ $BUILD/ != */san/* ]] || skip "the sanitizers do not follow fibres through a library"
    tiny=(--model tiny --capacity 256 --page-size 16)
}

# smoke OPTION...: the smoke test of a model that is small enough for a processor as a GPU
smoke() {
    "$GPU_HOME/kvr-prefill" --smoke --tap --model tiny --capacity 32 --page-size 16 "$@"
}

@test "a healthy GPU passes every check" {
    run smoke --seconds 0.01
    assert_success
    assert_line --index 0 "TAP version 13"
    assert_line "ok 1 - gpu 0 memory: 80 GiB, Mock\x1b[2J 80GB, driver 580.1, 79.0 GiB free"
    assert_line "ok 2 - gpu 0 ecc: 0 errors, uncorrected since the last reset"
    assert_line "ok 3 - gpu 0 remapped rows: 2 rows, for uncorrected errors"
    assert_line "ok 4 - gpu 0 retired pages: 0 pages, for double bit errors"
    assert_line "ok 5 - gpu 0 temperature: 40 C"
    assert_line "ok 6 - gpu 0 pcie: 16 lanes, of 16 that it can be, generation 0"
    assert_line --regexp '^ok 7 - matrix product: [0-9.e-]+ TFLOP/s$'
    assert_line --partial "- copy to gpu: "
    assert_line --partial "- repeatability: bits"
    assert_line --partial "- against the processor: "
    assert_line --partial "- sustained load: 0 changed"
    assert_line --regexp '^ok [0-9]+ - xid: 0 errors'
    refute_output --partial "not ok"
    refute_output --partial $'\033'
    # the plan is the number of checks
    plan=$(sed -n 's/^1\.\.//p' <<<"$output")
    assert_equal "$plan" "$(grep -c '^ok ' <<<"$output")"
}

@test "each fault fails its own check and no other, with status 1" {
    while IFS='|' read -r fault expected; do
        FAULTS=$fault run smoke
        assert_equal "$fault $status" "$fault 1"
        assert_equal "$fault $(grep -c '^not ok' <<<"$output")" "$fault 1"
        assert_line --regexp "^not ok [0-9]+ - $expected"
    done <<'TABLE'
ecc0|gpu 0 ecc: 3 errors
retired0|gpu 0 retired pages: 61 pages
pending0|gpu 0 retired pages: 0 pages, for double bit errors, more wait
remap0|gpu 0 remapped rows: 2 rows, for uncorrected errors, a replacement failed
memory0|gpu 0 memory: 60 GiB, .* 74.51 GiB expected
hot0|gpu 0 temperature: 95 C
narrow0|gpu 0 pcie: 8 lanes
xid0|gpu 0 xid: 79 xid, a critical error
TABLE
}

@test "rates are held against what is expected" {
    run smoke --expect 100000
    assert_equal "$status" 1
    assert_line --regexp '^not ok 7 - matrix product: .*1e\+05 expected'
    NAME="NVIDIA A100-SXM4" run smoke
    assert_equal "$status" 1
    assert_line --regexp "^not ok [0-9]+ - gpu memory: [0-9.]+ GB/s, at least half of the memory's 2039 expected"
    # a link of the sixth generation is faster than any memory here
    GENERATION=6 run smoke
    assert_equal "$status" 1
    assert_line --regexp '^not ok [0-9]+ - copy to gpu: [0-9.]+ GB/s, at least half of the link.s 121 expected'
}

@test "all GPUs are looked at, and compute; one that is lost does not stop the others" {
    export GPUS=3 CUDA_HOST_DEVICES=3
    FAULTS="lost1 xid2" run smoke --all-gpus
    assert_equal "$status" 1
    assert_line --regexp '^not ok [0-9]+ - gpu 1: lost, NVML lists it'
    assert_line --regexp '^ok [0-9]+ - gpu 0 repeatability'
    assert_line --regexp '^ok [0-9]+ - gpu 2 repeatability'
    refute_line --partial "gpu 1 repeatability"
    assert_line --regexp '^not ok [0-9]+ - gpu 2 xid: 79'
    assert_equal "$(grep -c '^not ok' <<<"$output")" 2
    # NVML lists one that CUDA does not have
    CUDA_HOST_DEVICES=2 run smoke --all-gpus
    assert_equal "$status" 1
    assert_line --regexp '^not ok [0-9]+ - gpu 2 computing: not to be had, there are fewer GPUs'
    run smoke
    assert_success
    refute_output --partial "gpu 1"
}

@test "an older driver's NVML is asked what it knows" {
    mkdir old
    cp "$GPU_HOME/libcuda.so.1" old/
    cc -DOLD_DRIVER -shared -fPIC -o old/libnvidia-ml.so.1 "$REPO/tests/mock/mock_nvml.c"
    LD_LIBRARY_PATH=$PWD/old run smoke
    assert_success
    refute_output --partial remapped
    refute_output --partial xid
}

@test "no GPU is status 4: NVML lists none, CUDA lists none, or there is no driver" {
    GPUS=0 run smoke
    assert_equal "$status" 4
    assert_output "kvr-prefill: no GPU: NVML lists none"
    CUDA_HOST_DEVICES=0 run "$GPU_HOME/kvr-prefill" --backend cuda "${tiny[@]}" <<<'{"input_length":5}'
    assert_equal "$status" 4
    assert_output "kvr-prefill: no GPU: none is listed"
    mkdir only
    cp "$GPU_HOME/libnvidia-ml.so.1" only/
    LD_LIBRARY_PATH=$PWD/only run smoke
    if [ "$(ldconfig -p | grep -c libcuda.so.1)" = 0 ]; then
        assert_equal "$status" 4
        assert_line --partial "no CUDA: the driver's libcuda.so.1"
    fi
}

@test "the benchmark of the GPU measures all that there are targets for" {
    run "$BUILD/host/bench_gpu" --small
    assert_success
    for what in bf16 copy RMSNorm RoPE SwiGLU "KV write" attention prefill "one graph" "one by one"; do
        assert_line --partial "$what"
    done
    assert_equal "$(grep -c 'target' <<<"$output")" 10
    refute_output --regexp 'nan|inf'
    CUDA_HOST_DEVICES=0 run "$BUILD/host/bench_gpu"
    assert_equal "$status" 4
    assert_output "bench_gpu: no GPU"
}

@test "request lines, tables, codec and calibration on the CUDA backend" {
    run "$GPU_HOME/kvr-prefill" --backend auto "${tiny[@]}" -b 16 <<<'{"input_length":40,"hash_ids":[1,2]}
{"input_length":40,"hash_ids":[1,3]}'
    assert_success
    run jq -c '[.prefill.tokens, .prefill.cached, .prefill.backend, .prefill.device]' <<<"$output"
    assert_line --index 0 '[40,0,"cuda","processor in the place of a GPU"]'
    assert_line --index 1 '[24,16,"cuda","processor in the place of a GPU"]'
    run "$GPU_HOME/kvr-prefill" --backend cuda "${tiny[@]}" --table -n 64 --repeats 1
    assert_success
    assert_line --regexp '^ +90 % +57 +7 '
    # the CUDA backend's bytes are those of its numbers, which are near the processor's
    for backend in cuda cpu; do
        "$GPU_HOME/kvr-prefill" --backend "$backend" "${tiny[@]}" --kv-codec medium -n 64 --repeats 1 --capacity 512
    done >codec
    run jq -es 'map(.kv_codec) | .[0].backend == "cuda" and (.[0].ratio / .[1].ratio - 1 | fabs) < 0.01
        and (.[0].error / .[1].error - 1 | fabs) < 0.1' codec
    assert_success
    run "$GPU_HOME/kvr-prefill" --backend cuda "${tiny[@]}" --calibrate -n 64 --repeats 1
    assert_success
    run jq -e '.description | .backend == "cuda" and .device_copy_gb_per_s > 0 and .to_host_gb_per_s > 0
        and .kv_to_host_gb_per_s > 0 and .kv_from_host_gb_per_s > 0' <<<"$output"
    assert_success
    CUDA_HOST_DEVICES=2 run "$GPU_HOME/kvr-prefill" --backend cuda "${tiny[@]}" -b 16 --tp 2 <<<'{"input_length":20}'
    assert_success
    assert_output --partial '"device":"2x processor'
    run "$GPU_HOME/kvr-prefill" --backend cuda "${tiny[@]}" -b 16 --tp 2 <<<'{"input_length":20}'
    assert_equal "$status" 4
}
