# The worker that tests and benchmarks of HTTP programs run against, and the script beside them.
MOCK_WORKER := $(BUILD)/mock/mock-worker

$(MOCK_WORKER): $(BUILD)/tests/mock/mock_worker.c.o
	@mkdir -p $(@D)
	$(call say,link,$@)$(CC) -o $@ $< $(LDFLAGS)

unit-tests bench-programs: $(MOCK_WORKER)

# kvr-smoke is a script; it stands beside the programs, built and installed.
SCRIPTS := $(wildcard scripts/kvr-*)
BUILT_SCRIPTS := $(SCRIPTS:scripts/%=$(BUILD)/bin/%)

all: $(BUILT_SCRIPTS)
$(BUILT_SCRIPTS): $(BUILD)/bin/%: scripts/%
	@mkdir -p $(@D)
	@install -m 755 $< $@

.PHONY: install-scripts uninstall-scripts
install: install-scripts
install-scripts: $(BUILT_SCRIPTS)
	install -d $(DESTDIR)$(bindir)
	install -m 755 $(BUILT_SCRIPTS) $(DESTDIR)$(bindir)
uninstall: uninstall-scripts
uninstall-scripts:
	rm -f $(addprefix $(DESTDIR)$(bindir)/,$(notdir $(SCRIPTS)))
