/*
 * kvr: one name for the set. "kvr match ..." is "kvr-match ...", "kvr help" lists the programs that
 * stand beside it, "kvr demo" runs the demonstration on a real trace.
 */
#include "base/buffer.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* The folder that this program stands in: its sisters stand there too. */
static bool own_folder(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);

    if (length <= 0)
        return false;
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    return slash != NULL;
}

static int complain(const char *what, const char *name)
{
    char safe[256];

    fprintf(stderr, "kvr: %s '%s'; 'kvr help' lists the programs\n", what,
        kvr_printable(safe, sizeof safe, name, strlen(name)));
    return 2;
}

/* The second line of a program's -h is its summary. */
static void print_summary(const char *folder, const char *name)
{
    char command[2 * PATH_BYTES], line[512];
    int length = snprintf(command, sizeof command, "'%s/%s' -h 2>/dev/null", folder, name);
    FILE *help = length < (int)sizeof command ? popen(command, "r") : NULL;

    if (!help)
        return;
    if (fgets(line, sizeof line, help) && fgets(line, sizeof line, help))
        printf("  %-14s %s", name + strlen("kvr-"), line);
    while (fgets(line, sizeof line, help))
        ; /* a reader that leaves early would end it with a signal */
    pclose(help);
}

static int is_program(const struct dirent *entry)
{
    return strncmp(entry->d_name, "kvr-", 4) == 0 &&
           entry->d_name[strspn(entry->d_name, "abcdefghijklmnopqrstuvwxyz-")] == '\0';
}

static int help(const char *folder)
{
    struct dirent **entries;
    int count = strchr(folder, '\'') ? 0 : scandir(folder, &entries, is_program, alphasort);

    puts("usage: kvr PROGRAM [OPTION...] [FILE...]\n"
         "sends each LLM request to the worker that holds its prompt's KV cache\n");
    for (int i = 0; i < count; i++) {
        fflush(stdout);
        print_summary(folder, entries[i]->d_name);
        free(entries[i]);
    }
    if (count > 0)
        free(entries);
    puts("  demo           route a real trace, round-robin and by cache, and compare\n"
         "  help           this list; 'kvr help PROGRAM' shows its manual page\n\n"
         "'kvr PROGRAM -h' lists a program's options; 'kvr help stream' shows what their lines "
         "are,\n"
         "'kvr help tutorial' leads from a log to a watched router");
    return fflush(stdout) == 0 ? 0 : 3;
}

/* Words to complete, "demo evict match ... help". */
static void print_words(const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, is_program, alphasort);

    fputs("demo help", stdout);
    for (int i = 0; i < count; i++) {
        printf(" %s", entries[i]->d_name + strlen("kvr-"));
        free(entries[i]);
    }
    if (count > 0)
        free(entries);
}

/* A completion script that knows the programs and leaves their options to their own scripts. */
static int completion(const char *folder, const char *shell)
{
    bool zsh = strcmp(shell, "zsh") == 0, fish = strcmp(shell, "fish") == 0;

    if (!zsh && !fish && strcmp(shell, "bash") != 0)
        return complain("--help is bash, zsh or fish, not", shell);
    if (fish)
        fputs("# fish completion for kvr, made by kvr --help=fish\n"
              "complete -c kvr -n __fish_use_subcommand -f -a '",
            stdout);
    else if (zsh)
        fputs("#compdef kvr\n# zsh completion for kvr, made by kvr --help=zsh\n"
              "if ((CURRENT == 2)); then\n    compadd -- ",
            stdout);
    else
        fputs("# bash completion for kvr, made by kvr --help=bash\n_kvr() {\n"
              "    COMPREPLY=()\n    if ((COMP_CWORD == 1)); then\n"
              "        mapfile -t COMPREPLY < <(compgen -W '",
            stdout);
    print_words(folder);
    puts(fish  ? "'"
         : zsh ? "\nelse\n    shift words\n    words[1]=kvr-$words[1]\n    ((CURRENT--))\n"
                 "    _normal\nfi"
               : "' -- \"${COMP_WORDS[1]}\")\n        return\n    fi\n"
                 "    local program=kvr-${COMP_WORDS[1]}\n"
                 "    type -P \"$program\" >/dev/null || return\n"
                 "    declare -F \"_$program\" >/dev/null || source <(\"$program\" --help=bash)\n"
                 "    COMP_WORDS=(\"$program\" \"${COMP_WORDS[@]:2}\")\n"
                 "    ((COMP_CWORD--))\n    \"_$program\"\n}\ncomplete -o filenames -F _kvr kvr");
    return fflush(stdout) == 0 ? 0 : 3;
}

/* Becomes the program that shows this file, if there is one of both. A machine may have mandoc
 * (whose man is mman on Debian) and no man. */
static void show_file(const char *path)
{
    if (access(path, R_OK) != 0)
        return;
    execlp("man", "man", path, (char *)NULL);
    execlp("mandoc", "mandoc", path, (char *)NULL);
}

/* The page of a program or of a subject: beside the programs where they were built, or where they
 * were unpacked or installed and man does not look; else man finds it. */
static int show_page(const char *folder, const char *name)
{
    char path[2 * PATH_BYTES];

    bool tutorial = strcmp(name, "tutorial") == 0; /* kvr(7); kvr(1) says what kvr itself does */
    bool itself = strcmp(name, "kvr") == 0 || tutorial;

    name += strncmp(name, "kvr-", 4) == 0 ? 4 : 0;
    for (const char *section = tutorial ? "7" : "157"; *section && !strchr(name, '/'); section++) {
        snprintf(path, sizeof path, itself ? "%s/../man/kvr%.0s.%c" : "%s/../man/kvr-%s.%c", folder,
            name, *section);
        show_file(path);
        snprintf(path, sizeof path, "%s/../share/man/man%c/kvr%s%s.%c", folder, *section,
            itself ? "" : "-", itself ? "" : name, *section);
        show_file(path);
    }
    snprintf(path, sizeof path, itself ? "kvr%.0s" : "kvr-%s", name);
    execlp("man", "man", tutorial ? "7" : path, tutorial ? path : NULL, (char *)NULL);
    execlp("mman", "mman", tutorial ? "7" : path, tutorial ? path : NULL, (char *)NULL);
    return complain("cannot show the manual page of", name);
}

static void run(const char *path, char **arguments)
{
    execv(path, arguments);
    if (errno != ENOENT && errno != ENOTDIR)
        fprintf(stderr, "kvr: cannot run %s: %s\n", path, strerror(errno));
}

int main(int argc, char **argv)
{
    char folder[PATH_BYTES], path[2 * PATH_BYTES];
    const char *name = argc > 1 ? argv[1] : "help";

    if (!own_folder(folder, sizeof folder))
        return complain("cannot find the programs beside", argv[0]);
    if (strcmp(name, "-V") == 0 || strcmp(name, "--version") == 0)
        return puts("kvr " KVR_VERSION) == EOF || fflush(stdout) != 0 ? 3 : 0;
    if (strcmp(name, "help") == 0 && argc > 2)
        return show_page(folder, argv[2]);
    if (strncmp(name, "--help=", 7) == 0)
        return completion(folder, name + 7);
    if (strcmp(name, "help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0)
        return help(folder);
    if (strcmp(name, "demo") == 0) {
        run(KVR_DATADIR "/demo", argv + 1);
        snprintf(path, sizeof path, "%s/../share/kvr/demo", folder); /* moved after installation */
        run(path, argv + 1);
        snprintf(path, sizeof path, "%s/../../tests/demo", folder); /* not installed */
        run(path, argv + 1);
        return complain("cannot find the demonstration near", folder);
    }
    if (strchr(name, '/') || name[0] == '-')
        return complain("there is no program", name);
    snprintf(path, sizeof path, "%s/kvr-%s", folder, name);
    run(path, argv + 1);
    snprintf(path, sizeof path, "kvr-%s", name);
    execvp(path, argv + 1);
    return complain("there is no program", name);
}
