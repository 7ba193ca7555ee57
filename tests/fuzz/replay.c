/*
 * Runs a fuzz target over files without libFuzzer, so that every compiler and `make check` replay
 * the corpus: fuzz_NAME FILE|DIRECTORY... One TAP line for each file.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat status;
    uint8_t *data;

    if (!file || fstat(fileno(file), &status) != 0)
        return -1;
    data = malloc(status.st_size ? (size_t)status.st_size : 1);
    if (!data || fread(data, 1, (size_t)status.st_size, file) != (size_t)status.st_size)
        return -1;
    fclose(file);
    LLVMFuzzerTestOneInput(data, (size_t)status.st_size);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    int count = 0, failed = 0;

    for (int i = 1; i < argc; i++) {
        struct dirent **entries = NULL;
        int found = scandir(argv[i], &entries, NULL, alphasort);

        for (int j = 0; j < found; j++) {
            char path[4096];
            if (entries[j]->d_name[0] != '.') {
                int length = snprintf(path, sizeof path, "%s/%s", argv[i], entries[j]->d_name);
                int bad = length >= (int)sizeof path || replay_file(path) != 0;
                printf("%s %d - %s\n", bad ? "not ok" : "ok", ++count, path);
                fflush(stdout);
                failed += bad;
            }
            free(entries[j]);
        }
        free(entries);
        if (found < 0) {
            int bad = replay_file(argv[i]) != 0;
            printf("%s %d - %s\n", bad ? "not ok" : "ok", ++count, argv[i]);
            failed += bad;
        }
    }
    printf("1..%d\n", count);
    return failed != 0;
}
