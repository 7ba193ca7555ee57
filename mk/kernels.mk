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

# On a GPU: the smoke test compares and repeats; the tables measure at real shapes.
check-gpu: all cuda
	$(BUILD)/bin/kvr-prefill --smoke --tap --backend cuda --model tiny
	$(BUILD)/bin/kvr-prefill --smoke --tap --backend cuda --model llama-3.1-8b

bench-gpu: all cuda
	$(BUILD)/bin/kvr-prefill --table --backend cuda --model llama-3.1-8b -n 4096 --repeats 5
	$(BUILD)/bin/kvr-prefill --table --backend cuda --model llama-3.1-8b -n 16384 --repeats 5
