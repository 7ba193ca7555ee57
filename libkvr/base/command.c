#include "base/command.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool kvr_command_place_make(struct kvr_command_place *place, const char *program)
{
    const char *temporary = getenv("TMPDIR");

    place->fifo[0] = '\0';
    if (!temporary || strlen(temporary) + strlen(program) > 48)
        temporary = "/tmp";
    snprintf(place->directory, sizeof place->directory, "%s/%.15s-XXXXXX", temporary, program);
    if (!mkdtemp(place->directory)) {
        place->directory[0] = '\0';
        return false;
    }
    snprintf(place->fifo, sizeof place->fifo, "%s/loop", place->directory);
    return true;
}

void kvr_command_place_remove(struct kvr_command_place *place)
{
    if (place->directory[0])
        rmdir(place->directory);
    place->directory[0] = place->fifo[0] = '\0';
}

static void put_own_folder_first(void)
{
    char own[4096], path[8192];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    const char *old = getenv("PATH");

    if (length <= 0)
        return;
    own[length] = '\0';
    char *slash = strrchr(own, '/');
    if (slash)
        *slash = '\0';
    if (snprintf(path, sizeof path, "%s:%s", own, old ? old : "/usr/bin:/bin") < (int)sizeof path)
        setenv("PATH", path, 1);
}

void kvr_command_run(const struct kvr_command_place *place, const char *command, int in, int out)
{
    setpgid(0, 0);
    signal(SIGPIPE, SIG_DFL);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    setenv("KVR_LOOP", place->fifo, 1);
    put_own_folder_first();
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}
