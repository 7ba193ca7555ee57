# The shipped alert rules stand inside the program (.incbin).
$(BUILD)/libkvr/stat/alert_rules.c.o: data/alerts.ndjson

# The page of kvr-stats has two tables from the program: the options and the metrics.
$(BUILD)/man/kvr-stats.1: man/kvr-stats.1.scd man/tidy.awk $(BUILD)/bin/kvr-stats
	@mkdir -p $(@D)
	@$(BUILD)/bin/kvr-stats --help=scdoc > $@.options && $(BUILD)/bin/kvr-stats --metrics scdoc > $@.metrics
	@sed -e '/^@options@$$/{r $@.options' -e 'd;}' -e '/^@metrics@$$/{r $@.metrics' -e 'd;}' $< | \
	    scdoc | awk -f man/tidy.awk > $@.tmp && rm $@.options $@.metrics && mv $@.tmp $@
	@echo scdoc $@
