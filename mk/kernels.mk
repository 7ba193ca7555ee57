# kernels/: the operations of a prefill in C, part of the library.
KERNEL_OBJECTS := $(patsubst %,$(BUILD)/%.o,$(sort $(wildcard kernels/*.c)))
LIBRARY_OBJECTS += $(KERNEL_OBJECTS)
