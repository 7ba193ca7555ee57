# kvr-events' own second half: no other program links it, nor ZMQ with it.
COMMON_OBJECTS := $(filter-out $(BUILD)/cmd/events_%.c.o,$(COMMON_OBJECTS))
$(BUILD)/bin/kvr-events: $(BUILD)/cmd/events_publish.c.o
-include $(BUILD)/cmd/events_publish.c.d
