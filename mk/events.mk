# kvr-events' own other parts: no other program links them, nor ZMQ with them.
COMMON_OBJECTS := $(filter-out $(BUILD)/cmd/events_%.c.o,$(COMMON_OBJECTS))
EVENTS_OBJECTS := $(patsubst %,$(BUILD)/%.o,$(wildcard cmd/events_*.c))
$(BUILD)/bin/kvr-events $(BUILD)/static/kvr-events: $(EVENTS_OBJECTS)
-include $(EVENTS_OBJECTS:.o=.d)
