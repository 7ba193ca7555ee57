# kernels/: the operations of a prefill in C, part of the library; and as CUDA, which is compiled
# twice: by nvcc, where there is one, into the plug-in libkvr_cuda.so, and by the C++ compiler with
# tests/cuda_host.h in the place of the GPU, for the tests.
KERNEL_OBJECTS := $(patsubst %,$(BUILD)/%.o,$(sort $(wildcard kernels/*.c)))
LIBRARY_OBJECTS += $(KERNEL_OBJECTS)

CUDA_SOURCES := $(sort $(wildcard kernels/*.cu))
CUDA_HOST_OBJECTS := $(CUDA_SOURCES:%=$(BUILD)/host/%.o) $(BUILD)/host/tests/cuda_host.cc.o

$(BUILD)/host/%.o: %
	@mkdir -p $(@D)
	$(call say,c++,$<)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -x c++ -c -o $@ $<

$(BUILD)/unit/test_kernels_cuda: $(BUILD)/tests/unit/test_kernels_cuda.c.o $(CUDA_HOST_OBJECTS) $(LIBRARY)
	@mkdir -p $(@D)
	$(call say,link,$@)$(CXX) -o $@ $(filter %.o,$^) $(LIBRARY) $(LDFLAGS) -lcmocka $(LIBS)

-include $(CUDA_HOST_OBJECTS:.o=.d)
