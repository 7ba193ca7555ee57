/*
 * What a request line asks of a chat template: its members, and how its messages are meant.
 *
 * A line may be a request of an API or a call of the template itself, and the same messages mean
 * different texts in the two: an engine makes strings of content parts, "" of null and objects of
 * tool calls' arguments before the template sees them (chat_style.c), while transformers'
 * apply_chat_template() hands all of it on and lets the template raise. Nothing in a line says
 * which of the two it is, so it is read off what it has. add_generation_prompt is what callers of
 * templates give, and clients of an API leave to its default: with it, messages are handed on as
 * they are, but for media as only an API has them. Without it, a line with model or
 * reasoning_effort is an API's, and so is one whose messages have what only the API defines. All
 * others read the same either way but for members that engines drop, and stay as they are.
 */
#ifndef KVR_TOKEN_CHAT_REQUEST_H
#define KVR_TOKEN_CHAT_REQUEST_H

#include "line/line.h"
#include "token/chat.h"

/* Fills *request with the line's members, in the style given; they point into the line. */
void kvr_chat_request_read(
    const struct kvr_line *line, enum kvr_chat_style style, struct kvr_chat_request *request);

/* vLLM's style for requests of an API, else plain. */
enum kvr_chat_style kvr_chat_request_style(const struct kvr_line *line);

/* Whether the messages have what only an API defines: content that is null, absent or a list,
 * arguments of tool calls as text, tool_calls that are null or empty. */
bool kvr_chat_request_api_forms(const struct kvr_line *line);

#endif
