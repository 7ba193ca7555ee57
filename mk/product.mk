# Manual pages, completions, installation.

# Pages carry the date of the sources, so that a build can be repeated to the byte.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

# A page for a program gets its OPTIONS from the program's own tables, at the line "@options@".
$(BUILD)/man/%: man/%.scd man/tidy.awk
	@mkdir -p $(@D)
	@case $* in \
	kvr*.1) program=$(BUILD)/bin/$(basename $*); \
	    if grep -q '^@options@$$' $<; then \
	        $$program --help=scdoc > $@.options || exit; \
	    else : > $@.options; fi; \
	    sed -e '/^@options@$$/{r $@.options' -e 'd;}' $< | scdoc | awk -f man/tidy.awk > $@.tmp && rm $@.options ;; \
	*) scdoc < $< | awk -f man/tidy.awk > $@.tmp ;; \
	esac && mv $@.tmp $@
	@echo scdoc $@

# What the options of a page come from.
$(foreach page,$(filter kvr%.1,$(notdir $(MANUALS))),$(if $(wildcard cmd/$(page:.1=).c),\
    $(eval $(BUILD)/man/$(page): $(BUILD)/bin/$(page:.1=))))

.PHONY: completions
COMPLETED := $(notdir $(PROGRAMS) $(wildcard scripts/kvr-*))
COMPLETIONS := $(foreach program,$(COMPLETED),$(addprefix $(BUILD)/completions/,$(program).bash _$(program) $(program).fish))
completions: $(COMPLETIONS)
# That of kvr lists the programs beside it.
$(filter %/kvr.bash %/_kvr %/kvr.fish,$(COMPLETIONS)): $(addprefix $(BUILD)/bin/,$(COMPLETED))

$(BUILD)/completions/%.bash: $(BUILD)/bin/%
	@mkdir -p $(@D)
	@$< --help=bash > $@
$(BUILD)/completions/_%: $(BUILD)/bin/%
	@mkdir -p $(@D)
	@$< --help=zsh > $@
$(BUILD)/completions/%.fish: $(BUILD)/bin/%
	@mkdir -p $(@D)
	@$< --help=fish > $@

# All the tools in one pipe over MB megabytes.
.PHONY: soak
MB ?= 1000
soak: all
	@BUILD=$(BUILD) tests/soak $(MB)

INSTALLED_DATA := $(wildcard data/*)

# What kvr demo runs.
DEMO := tests/demo tests/data/mooncake_conversation_1k.jsonl.gz
EXAMPLES := $(wildcard examples/*)

install: all completions
	install -d $(DESTDIR)$(bindir) $(DESTDIR)$(datadir) $(DESTDIR)$(mandir)/man1 $(DESTDIR)$(mandir)/man5 $(DESTDIR)$(mandir)/man7
	install -d $(DESTDIR)$(prefix)/share/bash-completion/completions $(DESTDIR)$(prefix)/share/zsh/site-functions $(DESTDIR)$(prefix)/share/fish/vendor_completions.d
	install -m 755 $(PROGRAMS) $(DESTDIR)$(bindir)
	if [ -e $(CUDA_PLUGIN) ]; then install -d $(DESTDIR)$(prefix)/lib/kvr && install -m 755 $(CUDA_PLUGIN) $(DESTDIR)$(prefix)/lib/kvr/; fi
	for page in $(MANUALS); do install -m 644 $$page $(DESTDIR)$(mandir)/man$${page##*.}/ || exit; done
	for program in $(COMPLETED); do \
	    install -m 644 $(BUILD)/completions/$$program.bash $(DESTDIR)$(prefix)/share/bash-completion/completions/$$program && \
	    install -m 644 $(BUILD)/completions/_$$program $(DESTDIR)$(prefix)/share/zsh/site-functions/_$$program && \
	    install -m 644 $(BUILD)/completions/$$program.fish $(DESTDIR)$(prefix)/share/fish/vendor_completions.d/$$program.fish || exit; done
	install -d $(DESTDIR)$(datadir)/examples
	install -m 755 $(filter %.sh,$(EXAMPLES)) $(DESTDIR)$(datadir)/examples/
	install -m 644 $(filter-out %.sh,$(EXAMPLES)) $(DESTDIR)$(datadir)/examples/
	install -m 755 tests/demo $(DESTDIR)$(datadir)/
	install -m 644 tests/data/mooncake_conversation_1k.jsonl.gz $(DESTDIR)$(datadir)/
	for file in $(INSTALLED_DATA); do install -m 644 $$file $(DESTDIR)$(datadir)/ || exit; done

uninstall:
	rm -f $(addprefix $(DESTDIR)$(bindir)/,$(notdir $(PROGRAMS)))
	for page in $(notdir $(MANUALS)); do rm -f $(DESTDIR)$(mandir)/man$${page##*.}/$$page; done
	for program in $(COMPLETED); do rm -f $(DESTDIR)$(prefix)/share/bash-completion/completions/$$program \
	    $(DESTDIR)$(prefix)/share/zsh/site-functions/_$$program $(DESTDIR)$(prefix)/share/fish/vendor_completions.d/$$program.fish; done
	for file in $(notdir $(INSTALLED_DATA) $(DEMO)); do rm -f $(DESTDIR)$(datadir)/$$file; done
	for file in $(notdir $(EXAMPLES)); do rm -f $(DESTDIR)$(datadir)/examples/$$file; done
	rm -f $(DESTDIR)$(prefix)/lib/kvr/$(notdir $(CUDA_PLUGIN))
	rmdir $(DESTDIR)$(prefix)/lib/kvr 2>/dev/null || true
	rmdir $(DESTDIR)$(datadir)/examples $(DESTDIR)$(datadir) 2>/dev/null || true
