# The shipped alert rules stand inside the program (.incbin).
$(BUILD)/libkvr/stat/alert_rules.c.o: data/alerts.ndjson
