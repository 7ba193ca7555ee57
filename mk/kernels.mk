# kernels/: the operations of a prefill in C, part of the library; and as CUDA, which is compiled
# twice: by nvcc, where there is one, into the plug-in libkvr_cuda.so, and by the C++ compiler with
# tests/cuda_host.h in the place of the GPU, for the tests.
KERNEL_OBJECTS := $(patsubst %,$(BUILD)/%.o,$(sort $(wildcard kernels/*.c)))
LIBRARY_OBJECTS += $(KERNEL_OBJECTS)

# The reference of the KV codec has the kernels' bits: its sums and products are not fused.
$(BUILD)/kernels/kv_codec.c.o: CFLAGS += -O3 -ffp-contract=off
$(BUILD)/host/%: CXXFLAGS += -ffp-contract=off
$(BUILD)/host/tests/%: CXXFLAGS += -O3

CUDA_SOURCES := $(sort $(wildcard kernels/*.cu))
CUDA_HOST_OBJECTS := $(CUDA_SOURCES:%=$(BUILD)/host/%.o) $(patsubst %,$(BUILD)/host/%.o,$(sort $(wildcard tests/cuda_host*.cc)))

$(BUILD)/host/%.o: %
	@mkdir -p $(@D)
	$(call say,c++,$<)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -x c++ -c -o $@ $<

CUDA_TESTS := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(wildcard tests/unit/test_kernels_cuda*.c))
$(CUDA_TESTS): $(BUILD)/unit/%: $(BUILD)/tests/unit/%.c.o $(CUDA_HOST_OBJECTS) $(LIBRARY)
	@mkdir -p $(@D)
	$(call say,link,$@)$(CXX) -o $@ $(filter %.o,$^) $(LIBRARY) $(LDFLAGS) -lcmocka $(LIBS)

# The same as a plug-in, for tests of the program.
CUDA_HOST_PLUGIN := $(BUILD)/host/libkvr_cuda.so
$(CUDA_HOST_OBJECTS): CXXFLAGS += -fPIC
$(CUDA_HOST_PLUGIN): $(CUDA_HOST_OBJECTS)
	$(call say,link,$@)$(CXX) -shared -o $@ $^ $(filter -fsanitize%,$(LDFLAGS)) -lm
unit-tests: $(CUDA_HOST_PLUGIN)

# Faults in the kernels that these tests have to find; a minute or two, so not part of `make check`.
.PHONY: check-mutants
check-mutants: $(CUDA_TESTS)
	@BUILD='$(BUILD)' CXX='$(CXX)' MUTANT_FLAGS='$(CPPFLAGS) $(CXXFLAGS) -ffp-contract=off' \
	    MUTANT_LIBS='$(LDFLAGS) -lcmocka $(LIBS)' tests/mutants $(MUTANTS)

-include $(CUDA_HOST_OBJECTS:.o=.d)

# The plug-in: `make cuda` where nvcc is found. It stands alone, so that it needs nothing of ours.
NVCC ?= $(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc))
CUDA_PLUGIN := $(BUILD)/bin/libkvr_cuda.so
CUDA_TARGETS := -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a \
    -gencode arch=compute_100,code=sm_100 -gencode arch=compute_100,code=compute_100

.PHONY: cuda check-gpu bench-gpu
ifneq ($(NVCC),)
cuda: $(CUDA_PLUGIN)

$(BUILD)/cuda/%.o: % $(wildcard kernels/*.cuh kernels/*.h)
	@mkdir -p $(@D)
	$(call say,nvcc,$<)$(NVCC) -std=c++17 -O3 -D_GNU_SOURCE -Ilibkvr -I. $(CUDA_TARGETS) -Xcompiler -fPIC,-Wall -c -o $@ $<

$(CUDA_PLUGIN): $(CUDA_SOURCES:%=$(BUILD)/cuda/%.o)
	@mkdir -p $(@D)
	$(call say,link,$@)$(NVCC) -shared -o $@ $^ -cudart shared -lcublasLt -ldl -Xlinker -rpath -Xlinker $(abspath $(dir $(NVCC))../lib64)
else
cuda:
	@echo "the CUDA backend needs nvcc, which is not found; set NVCC or install the CUDA Toolkit" >&2; exit 4
endif

# On a GPU: tests/gpu/check compares, tests/gpu/bench_gpu.cu measures against the targets. Without one
# both are built, say so and end with 4. The tests are those of `make check`, linked with the
# kernels as nvcc has them.
GPU_TESTS := $(BUILD)/gpu/test_kernels_cuda $(BUILD)/gpu/test_kernels_cuda_codec
GPU_LIBS = -L$(abspath $(dir $(NVCC))../lib64) -Wl,-rpath,$(abspath $(dir $(NVCC))../lib64) -lcudart -lcublasLt

$(BUILD)/gpu/tests/%.c.o: tests/%.c
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CC) $(CPPFLAGS) $(CFLAGS) -DKVR_TEST_ON_GPU -MMD -MP -c -o $@ $<

$(GPU_TESTS): $(BUILD)/gpu/%: $(BUILD)/gpu/tests/unit/%.c.o $(CUDA_SOURCES:%=$(BUILD)/cuda/%.o) $(BUILD)/cuda/tests/gpu/managed.cu.o $(LIBRARY)
	$(call say,link,$@)$(CXX) -o $@ $(filter %.o,$^) $(LIBRARY) $(LDFLAGS) -lcmocka $(LIBS) $(GPU_LIBS)

$(BUILD)/gpu/bench_gpu: $(CUDA_SOURCES:%=$(BUILD)/cuda/%.o) $(BUILD)/cuda/tests/gpu/bench_gpu.cu.o
	@mkdir -p $(@D)
	$(call say,link,$@)$(CXX) -o $@ $^ $(LDFLAGS) $(GPU_LIBS) -ldl

# The same measuring with the processor in the place of the GPU, for the tests.
$(BUILD)/host/bench_gpu: $(CUDA_HOST_OBJECTS) $(BUILD)/host/tests/gpu/bench_gpu.cu.o
	$(call say,link,$@)$(CXX) -o $@ $^ $(LDFLAGS) -lm
unit-tests: $(BUILD)/host/bench_gpu

-include $(wildcard $(BUILD)/gpu/tests/unit/*.d) $(BUILD)/host/tests/gpu/bench_gpu.cu.d

check-gpu: all cuda $(GPU_TESTS) $(BUILD)/gpu/bench_gpu
	@BUILD='$(BUILD)' NVCC='$(NVCC)' tests/gpu/check

bench-gpu: all cuda $(BUILD)/gpu/bench_gpu
	$(BUILD)/gpu/bench_gpu
	$(BUILD)/bin/kvr-prefill --table --backend cuda --model llama-3.1-8b -n 4096 --repeats 5
	$(BUILD)/bin/kvr-prefill --kv-codec medium --backend cuda --model llama-3.1-8b -n 4096
