#include "stat/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static bool write_all(int descriptor, const char *data, size_t length)
{
    while (length) {
        ssize_t written = write(descriptor, data, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        data += written;
        length -= (size_t)written;
    }
    return true;
}

enum kvr_status kvr_write_atomically(
    const char *path, const struct kvr_buffer *text, struct kvr_error *error)
{
    struct stat found;
    char beside[4096];

    if (text->failed)
        return kvr_error_memory(error);
    if (strcmp(path, "-") == 0)
        return write_all(STDOUT_FILENO, text->data, text->length)
                   ? KVR_OK
                   : kvr_error_errno(error, KVR_IO, "cannot write standard output");
    /* A device or a FIFO cannot be replaced; it is written as it is. */
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode)) {
        int descriptor = open(path, O_WRONLY | O_CLOEXEC);
        bool done = descriptor >= 0 && write_all(descriptor, text->data, text->length);
        if (!done)
            kvr_error_errno(error, KVR_IO, "cannot write %s", path);
        if (descriptor >= 0)
            close(descriptor);
        return done ? KVR_OK : KVR_IO;
    }
    if ((size_t)snprintf(beside, sizeof beside, "%s.XXXXXX", path) >= sizeof beside)
        return kvr_error_set(error, KVR_IO, "the path %s is too long", path);
    int descriptor = mkostemp(beside, O_CLOEXEC);
    if (descriptor < 0)
        return kvr_error_errno(error, KVR_IO, "cannot write beside %s", path);
    mode_t mask = umask(0);
    umask(mask);
    bool whole =
        write_all(descriptor, text->data, text->length) && fchmod(descriptor, 0666 & ~mask) == 0;
    if (close(descriptor) != 0 || !whole || rename(beside, path) != 0) {
        kvr_error_errno(error, KVR_IO, "cannot write %s", path);
        unlink(beside);
        return KVR_IO;
    }
    return KVR_OK;
}

enum kvr_status kvr_read_whole(const char *path, struct kvr_buffer *text, struct kvr_error *error)
{
    enum { PIECE = 65536, MOST = 16 << 20 };
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    enum kvr_status status = KVR_OK;

    if (descriptor < 0)
        return kvr_error_errno(error, KVR_IO, "cannot read %s", path);
    while (status == KVR_OK) {
        if (!kvr_buffer_reserve(text, PIECE)) {
            status = kvr_error_memory(error);
            break;
        }
        ssize_t got = read(descriptor, text->data + text->length, PIECE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            status = kvr_error_errno(error, KVR_IO, "cannot read %s", path);
        if (got <= 0)
            break;
        text->length += (size_t)got;
        if (text->length > MOST)
            status = kvr_error_set(error, KVR_BAD_INPUT, "%s is larger than 16 MiB", path);
    }
    close(descriptor);
    return status;
}

/* What gnuplot said, its first line. */
static void keep_words(int descriptor, char *words, size_t size)
{
    size_t length = 0;
    char piece[512];
    ssize_t got;

    while ((got = read(descriptor, piece, sizeof piece)) > 0 || (got < 0 && errno == EINTR)) {
        for (ssize_t i = 0; i < got; i++) {
            if (length + 1 < size && (piece[i] != '\n' || length))
                words[length++] = piece[i];
        }
    }
    words[length] = '\0';
}

enum kvr_status kvr_run_gnuplot(const struct kvr_buffer *script, struct kvr_error *error)
{
    char *const arguments[] = {"gnuplot", "-", NULL};
    posix_spawn_file_actions_t actions;
    int words[2], input;
    char path[] = "/tmp/kvr-plot-XXXXXX", said[300], safe[300];
    pid_t child;
    int status = 0;

    /* The script goes through a file without a name, so that neither side can block the other. */
    input = mkostemp(path, O_CLOEXEC);
    if (input < 0)
        return kvr_error_errno(error, KVR_IO, "cannot write a temporary file");
    unlink(path);
    if (!write_all(input, script->data, script->length) || lseek(input, 0, SEEK_SET) < 0 ||
        pipe2(words, O_CLOEXEC) != 0) {
        kvr_error_errno(error, KVR_IO, "cannot hand gnuplot its script");
        close(input);
        return KVR_IO;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, words[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, words[1], STDERR_FILENO);
    int failure = posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(input);
    close(words[1]);
    if (failure) {
        close(words[0]);
        return kvr_error_set(error, KVR_UNSUPPORTED,
            "cannot run gnuplot (Debian package gnuplot-nox): %s", strerror(failure));
    }
    keep_words(words[0], said, sizeof said);
    close(words[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return KVR_OK;
    return kvr_error_set(
        error, KVR_IO, "gnuplot fails: %s", kvr_printable(safe, sizeof safe, said, strlen(said)));
}
