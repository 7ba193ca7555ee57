/*
 * The members of kvr-stream(7) that tools look at, each with a number of its own, so that a parsed
 * line is asked for "hash_ids" by index and not by name. One row here is all it takes to add one.
 */
#ifndef KVR_LINE_NAMES_H
#define KVR_LINE_NAMES_H

#define KVR_NAMES(row)                                                                             \
    row(ADD_GENERATION_PROMPT, "add_generation_prompt") row(                                       \
        ADD_SPECIAL_TOKENS, "add_special_tokens") row(CACHE_SALT, "cache_salt") row(DOCUMENTS,     \
        "documents") row(REASONING_EFFORT, "reasoning_effort") row(TRUNCATE_PROMPT_TOKENS,         \
        "truncate_prompt_tokens") row(BLOCK_SIZE, "block_size") row(CACHE, "cache") row(CAPACITY,  \
        "capacity") row(CHAT_ID, "chat_id") row(CHAT_TEMPLATE_KWARGS, "chat_template_kwargs")      \
        row(CONTINUE_FINAL_MESSAGE, "continue_final_message") row(EVENT, "event") row(HASH_IDS,    \
            "hash_ids") row(ID, "id") row(INPUT_LENGTH, "input_length") row(KV_USAGE, "kv_usage")  \
            row(LORA, "lora") row(MATCH, "match") row(MEDIUM, "medium") row(MESSAGES, "messages")  \
                row(MODEL, "model") row(OUTPUT_HASH_IDS, "output_hash_ids") row(OUTPUT_LENGTH,     \
                    "output_length") row(PARENT, "parent") row(PARENT_CHAT_ID, "parent_chat_id")   \
                    row(PREFILL, "prefill") row(PRIORITY, "priority") row(PROMPT, "prompt")        \
                        row(RESPONSE, "response") row(ROLE, "role") row(ROUTE, "route")            \
                            row(RUNNING, "running") row(SALT, "salt") row(SESSION, "session")      \
                                row(SLO_TTFT_MS, "slo_ttft_ms") row(STATE, "state")                \
                                    row(TIERS, "tiers") row(TIMESTAMP, "timestamp") row(TOKEN_IDS, \
                                        "token_ids") row(TOKENS, "tokens") row(TOOLS, "tools")     \
                                        row(TURN, "turn") row(TYPE, "type") row(URL, "url")        \
                                            row(USER, "user") row(WAITING, "waiting")              \
                                                row(WEIGHT, "weight") row(WORKER, "worker")

enum kvr_name {
#define KVR_NAME_ROW(name, text) KVR_NAME_##name,
    KVR_NAMES(KVR_NAME_ROW)
#undef KVR_NAME_ROW
        KVR_NAME_COUNT,
};

/* The text of a name. */
const char *kvr_name_text(enum kvr_name name);

#endif
