/* What people and shells read of the option tables: help, manual section, completions. */
#include "base/options.h"

#define EACH_GROUP(groups, group)                                                                  \
    for (const struct kvr_option_group *group = (groups); group->title; group++)
#define EACH_OPTION(group, option)                                                                 \
    for (const struct kvr_option *option = (group)->options; option->name; option++)

enum { HELP_INDENT = 28, HELP_WIDTH = 79 };

/* Words of text from column `indent` on, broken before column HELP_WIDTH. */
static void wrap(struct kvr_buffer *out, const char *text, int indent, int column)
{
    while (*text) {
        const char *end = text + strcspn(text, " \n");
        int width = (int)(end - text);
        if (column > indent && column + 1 + width > HELP_WIDTH) {
            kvr_buffer_append_format(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            kvr_buffer_append_byte(out, ' ');
            column++;
        }
        kvr_buffer_append(out, text, (size_t)width);
        column += width;
        text = *end ? end + 1 : end;
    }
    kvr_buffer_append_byte(out, '\n');
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* Whether a text has a word, and not only as a part of another. */
static bool has_word(const char *text, const char *word, size_t length)
{
    for (const char *at = text; *at; at++)
        if (strncmp(at, word, length) == 0 && !is_word(at[length]) &&
            (at == text || !is_word(at[-1])))
            return true;
    return false;
}

/* The sentence of an option and, where it takes nothing but fixed values and the sentence does not
 * name them all, these: "...: a, b or c". */
static void sentence(struct kvr_buffer *out, const struct kvr_option *option)
{
    const char *values = option->values;
    bool all_named = true;

    kvr_buffer_append_text(out, option->help);
    if (!values || *values == '<' || strchr(values, '*'))
        return;
    for (const char *at = values; *at; at += strcspn(at, "|"), at += *at == '|')
        all_named &= has_word(option->help, at, strcspn(at, "|"));
    if (all_named)
        return;
    kvr_buffer_append_text(out, ": ");
    for (const char *at = values; *at;) {
        size_t length = strcspn(at, "|");
        kvr_buffer_append(out, at, length);
        at += length;
        if (*at++ != '|')
            break;
        kvr_buffer_append_text(out, strchr(at, '|') ? ", " : " or ");
    }
}

static void help_option(struct kvr_buffer *out, const struct kvr_option *option)
{
    size_t start = out->length;

    if (option->letter)
        kvr_buffer_append_format(out, "  -%c, ", option->letter);
    else
        kvr_buffer_append_text(out, "      ");
    kvr_buffer_append_format(out, "--%s", option->name);
    if (option->argument)
        kvr_buffer_append_format(out, " %s", option->argument);
    int column = (int)(out->length - start);
    if (column > HELP_INDENT - 2)
        kvr_buffer_append_format(out, "\n%*s", HELP_INDENT, "");
    else
        kvr_buffer_append_format(out, "%*s", HELP_INDENT - column, "");
    struct kvr_buffer text = {0};
    sentence(&text, option);
    if (option->initial)
        kvr_buffer_append_format(&text, " [%s]", option->initial);
    const char *whole = kvr_buffer_text(&text);
    wrap(out, whole ? whole : option->help, HELP_INDENT, HELP_INDENT);
    kvr_buffer_release(&text);
}

static void help_short(const struct kvr_program *program, const struct kvr_option_group *groups,
    struct kvr_buffer *out)
{
    kvr_buffer_append_format(out, "usage: %s [OPTION...] %s\n%s\n\n", program->name,
        program->operands, program->summary);
    EACH_GROUP(groups, group)
    {
        EACH_OPTION(group, option)
        {
            if (option->letter || group == groups)
                help_option(out, option);
        }
    }
    kvr_buffer_append_format(
        out, "\n'%s --help' says all of it; 'man %s' explains it\n", program->name, program->name);
}

static void help_long(const struct kvr_program *program, const struct kvr_option_group *groups,
    struct kvr_buffer *out)
{
    kvr_buffer_append_format(
        out, "usage: %s [OPTION...] %s\n%s\n", program->name, program->operands, program->summary);
    if (program->description) {
        kvr_buffer_append_byte(out, '\n');
        wrap(out, program->description, 0, 0);
    }
    EACH_GROUP(groups, group)
    {
        kvr_buffer_append_format(out, "\n%s:\n", group->title);
        EACH_OPTION(group, option) help_option(out, option);
    }
    kvr_buffer_append_text(out,
        "\nHelp:\n"
        "  -h                        short help\n"
        "      --help[=SHELL]        this text, or a completion script for\n"
        "                            bash, zsh or fish\n"
        "  -V, --version             version\n");
    if (program->examples)
        kvr_buffer_append_format(out, "\nExamples:\n%s", program->examples);
}

/* scdoc takes *, _, \, and a leading # or - as markup. */
static void scdoc_text(struct kvr_buffer *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("*_\\[#<>~", *text))
            kvr_buffer_append_byte(out, '\\');
        kvr_buffer_append_byte(out, *text);
    }
}

static void manual(const struct kvr_option_group *groups, struct kvr_buffer *out)
{
    EACH_GROUP(groups, group)
    {
        kvr_buffer_append_format(out, "## %s\n\n", group->title);
        EACH_OPTION(group, option)
        {
            if (option->letter)
                kvr_buffer_append_format(out, "*-%c*, ", option->letter);
            kvr_buffer_append_format(out, "*--%s*", option->name);
            if (option->argument) {
                kvr_buffer_append_text(out, " _");
                scdoc_text(out, option->argument);
                kvr_buffer_append_byte(out, '_');
            }
            kvr_buffer_append_text(out, "\n\t");
            struct kvr_buffer text = {0};
            sentence(&text, option);
            const char *whole = kvr_buffer_text(&text);
            scdoc_text(out, whole ? whole : option->help);
            kvr_buffer_release(&text);
            kvr_buffer_append_text(out, ".");
            if (option->initial) {
                kvr_buffer_append_text(out, " Default: ");
                scdoc_text(out, option->initial);
                kvr_buffer_append_text(out, ".");
            }
            kvr_buffer_append_text(out, "\n\n");
        }
    }
    kvr_buffer_append_text(out, "## Help\n\n*-h*\n\tShort help.\n\n*--help*[=_SHELL_]\n\tAll "
                                "options, or a completion script for bash, zsh or fish.\n\n"
                                "*-V*, *--version*\n\tVersion.\n\n");
}

/* The fixed words of a values list, separated by `separator`. */
static void words(struct kvr_buffer *out, const char *values, char separator)
{
    for (const char *at = values; *at; at++) {
        if (at[0] == '*' && at[1] == '\0') {
            if (out->length && out->data[out->length - 1] == separator)
                out->length--;
            break;
        }
        kvr_buffer_append_byte(out, *at == '|' ? separator : *at);
    }
}

static void bash(const struct kvr_program *program, const struct kvr_option_group *groups,
    struct kvr_buffer *out)
{
    kvr_buffer_append_format(out,
        "# bash completion for %s, made by %s --help=bash\n_%s() {\n"
        "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
        "    COMPREPLY=()\n"
        "    [[ $current == '=' ]] && current=\n" /* --option=value comes as three words */
        "    [[ $previous == '=' ]] && previous=${COMP_WORDS[COMP_CWORD-2]}\n"
        "    case $previous in\n"
        "    --help) mapfile -t COMPREPLY < <(compgen -W 'bash zsh fish' -- \"$current\"); return "
        ";;\n",
        program->name, program->name, program->name);
    EACH_GROUP(groups, group)
    {
        EACH_OPTION(group, option)
        {
            if (option->kind == KVR_OPTION_FLAG)
                continue;
            kvr_buffer_append_text(out, "    ");
            if (option->letter)
                kvr_buffer_append_format(out, "-%c|", option->letter);
            kvr_buffer_append_format(out, "--%s) ", option->name);
            if (option->values && strcmp(option->values, "<directory>") == 0) {
                kvr_buffer_append_text(out, "mapfile -t COMPREPLY < <(compgen -d -- \"$current\")");
            } else if (option->values && strcmp(option->values, "<file>") == 0) {
                kvr_buffer_append_text(out, "mapfile -t COMPREPLY < <(compgen -f -- \"$current\")");
            } else if (option->values && *option->values != '<') {
                kvr_buffer_append_text(out, "mapfile -t COMPREPLY < <(compgen -W '");
                words(out, option->values, ' ');
                kvr_buffer_append_text(out, "' -- \"$current\")");
            }
            kvr_buffer_append_text(out, "; return ;;\n");
        }
    }
    kvr_buffer_append_text(out, "    esac\n    if [[ $current == -* ]]; then\n"
                                "        mapfile -t COMPREPLY < <(compgen -W '-h --help --version");
    EACH_GROUP(groups, group)
    {
        EACH_OPTION(group, option)
        {
            if (option->letter)
                kvr_buffer_append_format(out, " -%c", option->letter);
            kvr_buffer_append_format(out, " --%s", option->name);
        }
    }
    kvr_buffer_append_format(out,
        "' -- \"$current\")\n    else\n"
        "        mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n    fi\n}\n"
        "complete -o filenames -F _%s %s\n",
        program->name, program->name);
    /* An empty case arm reads better without its lone semicolon. */
    for (char *at = out->data; !out->failed && at + 3 < out->data + out->length; at++) {
        if (at[0] == ')' && at[1] == ' ' && at[2] == ';' && at[3] == ' ')
            at[2] = ' ';
    }
}

/* Text inside single quotes, with the characters that zsh's _arguments reads escaped. */
static void quoted(struct kvr_buffer *out, const char *text, const char *escape)
{
    for (; *text; text++) {
        if (*text == '\'')
            kvr_buffer_append_text(out, "'\\'");
        else if (strchr(escape, *text))
            kvr_buffer_append_byte(out, '\\');
        kvr_buffer_append_byte(out, *text);
    }
}

static void zsh_option(struct kvr_buffer *out, const struct kvr_option *option, const char *name)
{
    kvr_buffer_append_format(out, "    '%s%s%s[", option->kind == KVR_OPTION_LIST ? "*" : "", name,
        option->kind == KVR_OPTION_FLAG ? ""
        : name[1] == '-'                ? "="
                                        : "+");
    quoted(out, option->help, "[]:\\");
    kvr_buffer_append_byte(out, ']');
    if (option->kind != KVR_OPTION_FLAG) {
        kvr_buffer_append_byte(out, ':');
        quoted(out, option->argument, "[]:\\");
        kvr_buffer_append_byte(out, ':');
        if (option->values && strcmp(option->values, "<file>") == 0) {
            kvr_buffer_append_text(out, "_files");
        } else if (option->values && strcmp(option->values, "<directory>") == 0) {
            kvr_buffer_append_text(out, "_files -/");
        } else if (option->values && *option->values != '<') {
            kvr_buffer_append_byte(out, '(');
            words(out, option->values, ' ');
            kvr_buffer_append_byte(out, ')');
        }
    }
    kvr_buffer_append_text(out, "' \\\n");
}

static void zsh(const struct kvr_program *program, const struct kvr_option_group *groups,
    struct kvr_buffer *out)
{
    kvr_buffer_append_format(out,
        "#compdef %s\n# zsh completion for %s, made by %s --help=zsh\n_arguments -s \\\n",
        program->name, program->name, program->name);
    EACH_GROUP(groups, group)
    {
        EACH_OPTION(group, option)
        {
            char name[80] = "--";
            strncat(name, option->name, sizeof name - 3);
            zsh_option(out, option, name);
            if (option->letter) {
                char letter[] = {'-', option->letter, '\0'};
                zsh_option(out, option, letter);
            }
        }
    }
    kvr_buffer_append_text(out, "    '-h[short help]' \\\n    '--help[all options]' \\\n"
                                "    '(-V --version)'{-V,--version}'[version]' \\\n"
                                "    '*:file:_files'\n");
}

static void fish(const struct kvr_program *program, const struct kvr_option_group *groups,
    struct kvr_buffer *out)
{
    kvr_buffer_append_format(
        out, "# fish completion for %s, made by %s --help=fish\n", program->name, program->name);
    EACH_GROUP(groups, group)
    {
        EACH_OPTION(group, option)
        {
            kvr_buffer_append_format(out, "complete -c %s", program->name);
            if (option->letter)
                kvr_buffer_append_format(out, " -s %c", option->letter);
            kvr_buffer_append_format(out, " -l %s", option->name);
            if (option->kind != KVR_OPTION_FLAG) {
                kvr_buffer_append_text(out, " -r");
                bool file = option->values && *option->values == '<';
                if (!file)
                    kvr_buffer_append_text(out, " -f");
                if (option->values && !file) {
                    kvr_buffer_append_text(out, " -a '");
                    words(out, option->values, ' ');
                    kvr_buffer_append_byte(out, '\'');
                }
            }
            kvr_buffer_append_text(out, " -d '");
            for (const char *at = option->help; *at; at++) {
                if (*at == '\'' || *at == '\\')
                    kvr_buffer_append_byte(out, '\\');
                kvr_buffer_append_byte(out, *at);
            }
            kvr_buffer_append_text(out, "'\n");
        }
    }
    kvr_buffer_append_format(out,
        "complete -c %s -s h -d 'short help'\ncomplete -c %s -l help -d 'all options'\n"
        "complete -c %s -s V -l version -d 'version'\n",
        program->name, program->name, program->name);
}

void kvr_options_text(const struct kvr_program *program, const struct kvr_option_group *groups,
    enum kvr_options_wish wish, struct kvr_buffer *out)
{
    switch (wish) {
    case KVR_WISH_WORK:
        break;
    case KVR_WISH_HELP_SHORT:
        help_short(program, groups, out);
        break;
    case KVR_WISH_HELP:
        help_long(program, groups, out);
        break;
    case KVR_WISH_VERSION:
        kvr_buffer_append_format(out, "%s %s\n", program->name, KVR_VERSION);
        break;
    case KVR_WISH_MANUAL:
        manual(groups, out);
        break;
    case KVR_WISH_BASH:
        bash(program, groups, out);
        break;
    case KVR_WISH_ZSH:
        zsh(program, groups, out);
        break;
    case KVR_WISH_FISH:
        fish(program, groups, out);
        break;
    }
}
