/*
 * The models of a stream: each a vocabulary with its chat template and the configuration beside
 * them, loaded when first asked for and kept. One list serves all threads.
 */
#ifndef KVR_TOKEN_MODELS_H
#define KVR_TOKEN_MODELS_H

#include "line/json.h"
#include "token/chat.h"
#include "token/tokenizer.h"

struct kvr_chat_model {
    struct kvr_tokenizer *tokenizer;
    struct kvr_chat *chat; /* its template and special tokens, see chat.h */
    uint32_t bos_id;       /* what add_bos_token asks for; KVR_NO_TOKEN: nothing, or the
                              post-processor puts it there */
    uint32_t image_id;     /* the placeholder of images; KVR_NO_TOKEN: not known */
};

struct kvr_models;

/* The texts are the caller's, and copied. */
struct kvr_models_options {
    const char *tokenizer;       /* name or file of the default */
    const char *template_file;   /* instead of the default's own; NULL: its own */
    const char *by_model;        /* "auto", a map file, or NULL: the default for all */
    const char *cache_directory; /* for compiled vocabularies; NULL: none */
    void (*tell)(void *context, const char *text); /* may be NULL: what is loaded and how, and the
                                                      models that "auto" does not find; from the
                                                      thread that asks, one at a time */
    void *context;
};

/*
 * A map file has a line for each model: {"model":"NAME","tokenizer":"NAME or FILE"} with, if need
 * be, "template":"FILE"; files are relative to the working directory. "auto" looks for a vocabulary
 * of the model's own name, then of the part after its last "/", and only inside the vocabulary
 * directories: the name comes from a client. Models that neither knows have the default.
 *
 * Loads the default and all that a map names, and fails where one of these cannot be used; the
 * message names the map's line. "auto" loads at need, and a vocabulary that it finds and cannot use
 * is KVR_IO or KVR_UNSUPPORTED for each line that asks for it. Names that mean the same files share
 * one model, and files that say the same one vocabulary.
 */
enum kvr_status kvr_models_create(
    struct kvr_models **models, const struct kvr_models_options *options, struct kvr_error *error);
void kvr_models_destroy(struct kvr_models *models);

/* The model of a line's `model` (text NULL: it has none). Valid as long as the list; the same
 * pointer for the same model. *own: it is the one of that name, or there is no name or none is
 * looked at; else the default stands for it. Safe from many threads. */
enum kvr_status kvr_models_get(struct kvr_models *models, struct kvr_text name,
    const struct kvr_chat_model **model, bool *own, struct kvr_error *error);

#endif
