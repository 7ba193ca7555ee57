#include "cache/audit.h"

#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

struct tally {
    char *name;
    uint64_t requests;  /* while its events were heard */
    uint64_t differing; /* of them, those with two answers */
    uint64_t promised, there, not_there, not_known;
};

struct kvr_audit {
    struct kvr_matcher *exact;
    struct tally *tallies;
    size_t count, room;
    size_t *of_worker; /* by id in the events' index: 1 + place of its tally */
    size_t worker_room;
    uint32_t *mirror_blocks; /* by id in the mirror: the match just found */
    size_t mirror_room;
    uint64_t requests, lost;
};

enum kvr_status kvr_audit_create(
    struct kvr_audit **audit, const struct kvr_match_options *options, struct kvr_error *error)
{
    struct kvr_match_options own = *options;
    enum kvr_status status;

    own.capacity.amount = 0;
    own.ttl_ms = 0;
    own.any = false;
    *audit = calloc(1, sizeof **audit);
    if (!*audit)
        return kvr_error_memory(error);
    status = kvr_matcher_create(&(*audit)->exact, &own, error);
    if (status != KVR_OK) {
        kvr_audit_destroy(*audit);
        *audit = NULL;
    }
    return status;
}

void kvr_audit_destroy(struct kvr_audit *audit)
{
    if (!audit)
        return;
    for (size_t i = 0; i < audit->count; i++)
        free(audit->tallies[i].name);
    free(audit->tallies);
    free(audit->of_worker);
    free(audit->mirror_blocks);
    kvr_matcher_destroy(audit->exact);
    free(audit);
}

enum kvr_status kvr_audit_event(struct kvr_audit *audit, const struct kvr_line *line,
    bool *cache_event, struct kvr_error *error)
{
    struct kvr_value event = kvr_line_get(line, KVR_NAME_EVENT);

    *cache_event = kvr_value_is(event, "stored") || kvr_value_is(event, "removed") ||
                   kvr_value_is(event, "cleared");
    return kvr_match_event(audit->exact, line, error);
}

/* The tally of a worker, by its id in the events' index, which may be given again to another. */
static struct tally *tally_of(struct kvr_audit *audit, uint32_t worker, const char *name)
{
    size_t old = audit->worker_room, at;

    if (worker >= old) {
        size_t *grown =
            kvr_grow(audit->of_worker, &audit->worker_room, (size_t)worker + 1, sizeof *grown);
        if (!grown)
            return NULL;
        audit->of_worker = grown;
        memset(grown + old, 0, (audit->worker_room - old) * sizeof *grown);
    }
    at = audit->of_worker[worker];
    if (at && strcmp(audit->tallies[at - 1].name, name) == 0)
        return &audit->tallies[at - 1];
    for (at = 0; at < audit->count && strcmp(audit->tallies[at].name, name) != 0; at++)
        ;
    if (at == audit->count) {
        struct tally *grown =
            kvr_grow(audit->tallies, &audit->room, audit->count + 1, sizeof *grown);
        char *copy = strdup(name);
        if (grown)
            audit->tallies = grown;
        if (!grown || !copy) {
            free(copy);
            return NULL;
        }
        grown[audit->count++] = (struct tally){.name = copy};
    }
    audit->of_worker[worker] = at + 1;
    return &audit->tallies[at];
}

static uint64_t tokens_of(const struct kvr_match_request *request, uint64_t blocks)
{
    uint64_t tokens = blocks * request->blocks.block_size;

    return tokens < request->input_tokens ? tokens : request->input_tokens;
}

/* What the mirror finds, by its workers' ids. */
static bool find_in_mirror(
    struct kvr_audit *audit, struct kvr_index *mirror, const struct kvr_match_request *request)
{
    const struct kvr_index_match *matches;
    uint32_t limit = kvr_index_worker_limit(mirror);
    uint32_t *blocks =
        kvr_grow(audit->mirror_blocks, &audit->mirror_room, (size_t)limit + 1, sizeof *blocks);

    if (!blocks)
        return false;
    audit->mirror_blocks = blocks;
    memset(blocks, 0, limit * sizeof *blocks);
    size_t count = kvr_index_find(mirror, request->time_ms, &request->blocks, &matches);
    for (size_t i = 0; i < count; i++)
        blocks[matches[i].worker] = matches[i].blocks;
    return true;
}

static void compare(struct tally *tally, uint64_t promised, uint64_t there)
{
    tally->requests++;
    tally->differing += promised != there;
    tally->promised += promised;
    tally->there += there;
    if (promised > there)
        tally->not_there += promised - there;
    else
        tally->not_known += there - promised;
}

enum kvr_status kvr_audit_request(struct kvr_audit *audit, struct kvr_matcher *mirror,
    const struct kvr_match_request *request, const struct kvr_line *line, struct kvr_error *error)
{
    struct kvr_index *index = kvr_matcher_index(audit->exact), *other = kvr_matcher_index(mirror);
    const struct kvr_index_match *matches;
    struct kvr_match_request own;
    uint64_t most_promised = 0, of_promised = 0, most_there = 0;
    enum kvr_status status = kvr_match_read(audit->exact, line, &own, error);

    if (status != KVR_OK || !own.has_blocks)
        return status;
    if (!find_in_mirror(audit, other, request))
        return kvr_error_memory(error);
    size_t count = kvr_index_find(index, own.time_ms, &own.blocks, &matches), at = 0;
    audit->requests++;
    for (uint32_t worker = 0; worker < kvr_index_worker_limit(index); worker++) {
        const char *name = kvr_index_worker_name(index, worker);
        uint64_t found = at < count && matches[at].worker == worker ? matches[at++].blocks : 0;
        if (!name || !kvr_index_worker_is_exact(index, worker))
            continue;
        uint32_t id = kvr_index_worker_lookup(other, name, strlen(name));
        uint64_t there = tokens_of(&own, found);
        uint64_t promised = id == UINT32_MAX ? 0 : tokens_of(request, audit->mirror_blocks[id]);
        struct tally *tally = tally_of(audit, worker, name);
        if (!tally)
            return kvr_error_memory(error);
        compare(tally, promised, there);
        if (promised > most_promised ||
            (promised && promised == most_promised && there > of_promised)) {
            most_promised = promised;
            of_promised = there;
        }
        most_there = there > most_there ? there : most_there;
    }
    audit->lost += most_there - of_promised;
    return KVR_OK;
}

/* ---- what came out ---- */

static struct tally total_of(const struct kvr_audit *audit)
{
    struct tally total = {.name = "total"};

    for (size_t i = 0; i < audit->count; i++) {
        const struct tally *tally = &audit->tallies[i];
        total.requests += tally->requests;
        total.differing += tally->differing;
        total.promised += tally->promised;
        total.there += tally->there;
        total.not_there += tally->not_there;
        total.not_known += tally->not_known;
    }
    return total;
}

static void write_tally(const struct tally *tally, struct kvr_buffer *out)
{
    const uint64_t figures[] = {
        tally->differing, tally->promised, tally->there, tally->not_there, tally->not_known};
    static const char *const names[] = {"differing", "promised", "there", "not_there", "not_known"};

    for (int i = 0; i < 5; i++) {
        kvr_line_add(out, names[i]);
        kvr_buffer_append_u64(out, figures[i]);
    }
}

void kvr_audit_write(const struct kvr_audit *audit, struct kvr_buffer *out)
{
    struct tally total = total_of(audit);

    kvr_buffer_append_text(out, "{\"event\":\"audit\",\"requests\":");
    kvr_buffer_append_u64(out, audit->requests);
    write_tally(&total, out);
    kvr_line_add(out, "lost");
    kvr_buffer_append_u64(out, audit->lost);
    kvr_line_add(out, "workers");
    kvr_buffer_append_byte(out, '{');
    for (size_t i = 0; i < audit->count; i++) {
        const struct tally *tally = &audit->tallies[i];
        if (i)
            kvr_buffer_append_byte(out, ',');
        kvr_json_write_string(out, tally->name, strlen(tally->name));
        kvr_buffer_append_text(out, ":{\"requests\":");
        kvr_buffer_append_u64(out, tally->requests);
        write_tally(tally, out);
        kvr_buffer_append_byte(out, '}');
    }
    kvr_buffer_append_text(out, "}}");
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void table_row(const struct tally *tally, struct kvr_buffer *out)
{
    char name[64];

    kvr_printable(name, sizeof name, tally->name, strlen(tally->name));
    kvr_buffer_append_format(out,
        "%-16s %10llu %9.2f%% %14llu %14llu %12llu %6.2f%% %12llu %6.2f%%\n", name,
        (unsigned long long)tally->requests, percent(tally->differing, tally->requests),
        (unsigned long long)tally->promised, (unsigned long long)tally->there,
        (unsigned long long)tally->not_there, percent(tally->not_there, tally->promised),
        (unsigned long long)tally->not_known, percent(tally->not_known, tally->there));
}

void kvr_audit_table(const struct kvr_audit *audit, struct kvr_buffer *out)
{
    struct tally total = total_of(audit);

    kvr_buffer_append_format(out, "%-16s %10s %10s %14s %14s %12s %7s %12s %7s\n", "worker",
        "requests", "differing", "promised", "there", "not there", "", "not known", "");
    for (size_t i = 0; i < audit->count; i++)
        table_row(&audit->tallies[i], out);
    table_row(&total, out);
    kvr_buffer_append_format(out, "tokens lost by believing the mirror: %llu of %llu requests\n",
        (unsigned long long)audit->lost, (unsigned long long)audit->requests);
}
