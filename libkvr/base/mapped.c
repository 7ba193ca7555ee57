#include "base/mapped.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum kvr_status kvr_mapped_open(
    struct kvr_mapped *mapped, const char *path, struct kvr_error *error)
{
    char shown[128];
    struct stat info;
    /* Not to wait for a writer where it is a FIFO. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    *mapped = (struct kvr_mapped){0};
    kvr_printable(shown, sizeof shown, path, strlen(path));
    if (file < 0 || fstat(file, &info) != 0) {
        enum kvr_status status = kvr_error_errno(error, KVR_IO, "'%s'", shown);
        if (file >= 0)
            close(file);
        return status;
    }
    if (!S_ISREG(info.st_mode)) {
        close(file);
        return kvr_error_set(error, KVR_IO, "'%s' is no regular file", shown);
    }
    void *data = NULL;
    if (info.st_size > 0)
        data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    enum kvr_status status =
        data == MAP_FAILED ? kvr_error_errno(error, KVR_IO, "cannot map '%s'", shown) : KVR_OK;
    close(file);
    if (status == KVR_OK)
        *mapped = (struct kvr_mapped){data, (size_t)info.st_size};
    return status;
}

void kvr_mapped_close(struct kvr_mapped *mapped)
{
    if (mapped->data)
        munmap((void *)(uintptr_t)mapped->data, mapped->size);
    *mapped = (struct kvr_mapped){0};
}
