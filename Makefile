# make            build every program            make check    set up, build, run all tests
# make demo       set up, build, the main job    make bench    side-by-side timings (make bench-NAME)
# make SAN=1 ...  ASan and UBSan build           make fuzz     libFuzzer for FUZZ_SECONDS each
# make V=1 ...    shows the commands
# make deps       install what is missing        make install  DESTDIR, prefix; make uninstall
# make deb        Debian packages                make tarball  the programs, to unpack anywhere
# make soak       all tools in one pipe (MB=1000)

VERSION := 0.1.0
prefix ?= /usr/local
bindir = $(prefix)/bin
datadir = $(prefix)/share/kvr
mandir = $(prefix)/share/man
DESTDIR ?=
SHARED ?= ../shared
FUZZ_SECONDS ?= 30

CC ?= cc
CXX ?= c++
WARNINGS := -Wall -Wextra $(if $(or $(WERROR),$(CI)),-Werror)
OPTIMISE ?= -O2
CPPFLAGS += -D_GNU_SOURCE -DKVR_VERSION='"$(VERSION)"' -DKVR_DATADIR='"$(datadir)"' -Ilibkvr -I.
CFLAGS += -std=gnu11 -g $(OPTIMISE) $(WARNINGS) -ffunction-sections -fdata-sections -pthread
CXXFLAGS += -std=c++17 -g $(OPTIMISE) $(WARNINGS) -fno-exceptions -fno-rtti -pthread
LDFLAGS += -Wl,--as-needed -Wl,--gc-sections -pthread
LIBS = -lsimdjson -ljq -lz -lcurl -lxxhash -lpcre2-8 -lzmq -lmsgpackc -lopenblas -ldl -lm

# Where make was not told how many jobs, what is built on the way to something else has all cores.
JOBS = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))

# One word a file; V=1 shows the whole command.
say = $(if $(V),,@echo "  $(1) $(2)";)

BUILD := build$(if $(SAN),/san)$(if $(BUILD_TAG),/$(BUILD_TAG))
ifdef SAN
SANITISE := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CFLAGS += $(SANITISE)
CXXFLAGS += $(SANITISE)
LDFLAGS += $(SANITISE)
endif

LIBRARY := $(BUILD)/libkvr.a
LIBRARY_SOURCES := $(sort $(wildcard libkvr/*/*.c libkvr/*/*/*.c libkvr/*/*.cc))
LIBRARY_OBJECTS := $(LIBRARY_SOURCES:%=$(BUILD)/%.o)
COMMON_OBJECTS := $(patsubst %,$(BUILD)/%.o,$(filter-out cmd/kvr-%.c cmd/kvr.c,$(wildcard cmd/*.c)))
COMMON := $(BUILD)/libcmd.a
PROGRAMS := $(patsubst cmd/%.c,$(BUILD)/bin/%,$(wildcard cmd/kvr-*.c cmd/kvr.c))
UNIT_TESTS := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(wildcard tests/unit/test_*.c))
FUZZERS := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
BENCHES := $(patsubst tests/bench/%.c,$(BUILD)/bench/%,$(wildcard tests/bench/bench_*.c))
BENCH_SCRIPTS := $(patsubst tests/bench/%.sh,bench-%,$(filter-out tests/bench/lib.sh,$(wildcard tests/bench/*.sh)))
MANUALS := $(patsubst man/%.scd,$(BUILD)/man/%,$(wildcard man/*.scd))

# The fragments come first, so the goal of a bare "make" is named here.
.DEFAULT_GOAL := all

# Parts with rules of their own (kernels/, generated tables) each bring a fragment.
-include $(wildcard mk/*.mk)

.DEFAULT_GOAL := all
.PHONY: all deps demo check unit-tests bench bench-programs fuzz fuzz-replay install uninstall clean manuals
.DELETE_ON_ERROR:
.SECONDARY:

all: $(PROGRAMS) manuals

$(BUILD)/%.c.o: %.c
	@mkdir -p $(@D)
	$(call say,cc,$<)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/%.cc.o: %.cc
	@mkdir -p $(@D)
	$(call say,c++,$<)$(CXX) $(CPPFLAGS) $(CXXFLAGS) -MMD -MP -c -o $@ $<

$(LIBRARY): $(LIBRARY_OBJECTS)
	@rm -f $@
	$(call say,ar,$@)$(AR) rcs $@ $^

# What programs share, and the parts of the larger ones: each takes out what it needs, and with that
# only the libraries that it needs.
$(COMMON): $(COMMON_OBJECTS)
	@rm -f $@
	$(call say,ar,$@)$(AR) rcs $@ $^

$(BUILD)/bin/%: $(BUILD)/cmd/%.c.o $(COMMON) $(LIBRARY)
	@mkdir -p $(@D)
	$(call say,link,$@)$(CXX) -o $@ $< $(COMMON) $(LIBRARY) $(LDFLAGS) $(LIBS)

$(BUILD)/unit/%: $(BUILD)/tests/unit/%.c.o $(LIBRARY)
	@mkdir -p $(@D)
	$(call say,link,$@)$(CXX) -o $@ $< $(LIBRARY) $(LDFLAGS) -lcmocka $(LIBS)

$(BUILD)/bench/%: $(BUILD)/tests/bench/%.c.o $(LIBRARY)
	@mkdir -p $(@D)
	$(call say,link,$@)$(CXX) -o $@ $< $(LIBRARY) $(LDFLAGS) $(LIBS)

$(BUILD)/fuzz/%: $(BUILD)/tests/fuzz/%.c.o $(BUILD)/tests/fuzz/replay.c.o $(LIBRARY)
	@mkdir -p $(@D)
	$(call say,link,$@)$(CXX) -o $@ $(filter %.o,$^) $(LIBRARY) $(LDFLAGS) $(LIBS)

unit-tests: $(UNIT_TESTS)
bench-programs: $(BENCHES)
fuzz-replay: $(FUZZERS:%=$(BUILD)/fuzz/%)
manuals: $(MANUALS)

deps:
	@tests/deps

check: deps
	@$(MAKE) --no-print-directory $(JOBS) WERROR=1 all unit-tests fuzz-replay
	@SHARED='$(SHARED)' MAKE='$(MAKE)' tests/run

demo:
	@tests/deps demo
	@$(MAKE) --no-print-directory $(JOBS) all
	@SHARED='$(SHARED)' tests/demo $(BUILD)/demo.png

bench: deps
	@$(MAKE) --no-print-directory $(JOBS) all bench-programs
	@SHARED='$(SHARED)' tests/bench/all

$(BENCH_SCRIPTS): bench-%: deps
	@$(MAKE) --no-print-directory $(JOBS) all bench-programs
	@SHARED='$(SHARED)' tests/bench/$*.sh

fuzz:
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/run $(FUZZERS)

clean:
	rm -rf build

-include $(LIBRARY_OBJECTS:.o=.d) $(COMMON_OBJECTS:.o=.d)
-include $(patsubst $(BUILD)/bin/%,$(BUILD)/cmd/%.c.d,$(PROGRAMS))
-include $(wildcard $(BUILD)/tests/*/*.d)
