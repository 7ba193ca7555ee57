/*
 * One way to fail: every function that can fail returns an enum kvr_status and, where it takes a
 * struct kvr_error, leaves one sentence there for the person who runs the program.
 *
 * Message style: lower case, no full stop, the subject in single quotes, no newline, never any
 * prompt text or secret. A library function never prints and never exits; programs print
 * "kvr-x: FILE:LINE: text" and choose the exit status with kvr_status_exit().
 */
#ifndef KVR_BASE_ERROR_H
#define KVR_BASE_ERROR_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kvr_status {
    KVR_OK = 0,
    KVR_END,         /* nothing more to read; not a failure, carries no text */
    KVR_BAD_INPUT,   /* the data is wrong: exit status 1 */
    KVR_BAD_USAGE,   /* the options are wrong: exit status 2 */
    KVR_IO,          /* unreadable, unwritable, disk full: exit status 3 */
    KVR_NO_MEMORY,   /* an allocation failed or a memory bound is reached: exit status 3 */
    KVR_UNSUPPORTED, /* understood, but not to be had in this build or on this machine: 4 */
};

struct kvr_error {
    enum kvr_status status;
    char text[500]; /* always terminated; a longer text is cut */
};

/* Fills *error (which may be NULL) and returns status, so that a failing function ends with
 * `return kvr_error_set(error, KVR_IO, "...", ...)`. */
enum kvr_status kvr_error_set(struct kvr_error *error, enum kvr_status status, const char *format,
    ...) __attribute__((format(printf, 3, 4)));

/* The same, with ": " and the message of the current errno at the end. */
enum kvr_status kvr_error_errno(struct kvr_error *error, enum kvr_status status, const char *format,
    ...) __attribute__((format(printf, 3, 4)));

/* KVR_NO_MEMORY with its standard text. */
enum kvr_status kvr_error_memory(struct kvr_error *error);

/* Puts "prefix: " before the text already there, for a caller that knows the context (a file, a
 * line). Returns error->status. */
enum kvr_status kvr_error_prefix(struct kvr_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The exit status that a failure means, the same in every program. */
int kvr_status_exit(enum kvr_status status);

/* How many bytes the first character of a text of one byte or more has. *unsafe: it must not reach
 * a terminal: a control character (of one byte or, as UTF-8, two), one that turns the direction of
 * writing or breaks a line, or a byte that is no UTF-8. */
unsigned kvr_character_bytes(const char *text, size_t length, bool *unsafe);

/* Copies text so that it is safe on a terminal: the bytes of unsafe characters become \xNN, and at
 * most size - 1 bytes are written, whole characters, always terminated. Returns out. */
char *kvr_printable(char *out, size_t size, const char *text, size_t length);

#ifdef __cplusplus
}
#endif

#endif
