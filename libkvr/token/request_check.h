/*
 * Whether the members of a request line that kvr-tokenize reads are what kvr-stream(7) says they
 * are. A member of another type is a bad line and never a guess: what "false" or {"nam":"x"} is
 * taken for decides which tokens and which namespace a line has.
 */
#ifndef KVR_TOKEN_REQUEST_CHECK_H
#define KVR_TOKEN_REQUEST_CHECK_H

#include "line/line.h"

/* The members that decide what a line's block ids are: block_size (a whole number from 1 on),
 * model, salt and cache_salt (texts or numbers), lora (the same, or an object with name or id).
 * KVR_BAD_INPUT names the first that is none of that. Null is as if it were not there. */
enum kvr_status kvr_request_check_namespace(const struct kvr_line *line, struct kvr_error *error);

/* Those that say how a text is encoded: add_special_tokens (true or false), truncate_prompt_tokens
 * (a whole number from -1 on). */
enum kvr_status kvr_request_check_text(const struct kvr_line *line, struct kvr_error *error);

/* Those that messages are rendered with: messages, tools and documents (lists of objects),
 * add_generation_prompt and continue_final_message (true or false), chat_template_kwargs (an
 * object), reasoning_effort (a text). */
enum kvr_status kvr_request_check_chat(const struct kvr_line *line, struct kvr_error *error);

#endif
