# The worker that tests and benchmarks of HTTP programs run against, and the script beside them.
MOCK_WORKER := $(BUILD)/mock/mock-worker

$(MOCK_WORKER): $(BUILD)/tests/mock/mock_worker.c.o
	@mkdir -p $(@D)
	$(call say,link,$@)$(CC) -o $@ $< $(LDFLAGS)

unit-tests bench-programs: $(MOCK_WORKER)
