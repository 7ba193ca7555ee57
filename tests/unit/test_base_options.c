#include "base/options.h"
#include "tests/unit/unit.h"

struct settings {
    bool flag, other;
    const char *text, *choice;
    struct kvr_text_list list;
    uint64_t count, size;
    double real, time_ms;
    struct kvr_capacity capacity;
};

#define AT(member) offsetof(struct settings, member)

static const struct kvr_option options[] = {
    {'f', "flag", KVR_OPTION_FLAG, AT(flag), NULL, "a flag", NULL, NULL},
    {0, "flagrant", KVR_OPTION_FLAG, AT(other), NULL, "another flag", NULL, NULL},
    {'t', "text", KVR_OPTION_TEXT, AT(text), "TEXT", "some text", "none", NULL},
    {0, "choice", KVR_OPTION_TEXT, AT(choice), "WORD", "it's one of [two]", "red", "red|blue"},
    {'m', "merge", KVR_OPTION_LIST, AT(list), "FILE", "files", NULL, "<file>"},
    {'n', "count", KVR_OPTION_COUNT, AT(count), "N", "how many", "7", NULL},
    {0, "size", KVR_OPTION_SIZE, AT(size), "SIZE", "how large", "64MiB", NULL},
    {0, "real", KVR_OPTION_REAL, AT(real), "X", "a number", "-0.5", NULL},
    {0, "time", KVR_OPTION_TIME_MS, AT(time_ms), "TIME", "how long", "10m", NULL},
    {'c', "capacity", KVR_OPTION_CAPACITY, AT(capacity), "CAPACITY", "how much", NULL, NULL},
    {0},
};

static struct settings settings;
static const char *operands[16];
static size_t operand_count;
static enum kvr_options_wish wish;
static struct kvr_error error;

static enum kvr_status parse(const char *line)
{
    static char words[256];
    char *argv[16] = {"kvr-test"};
    int argc = 1;
    const struct kvr_option_group groups[] = {{"Test", options, &settings}, {0}};

    memset(&settings, 0, sizeof settings);
    error.text[0] = '\0';
    strcpy(words, line);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    return kvr_options_parse(groups, argc, argv, operands, &operand_count, &wish, &error);
}

static void defaults_go_through_the_same_reader(void **state)
{
    (void)state;
    assert_int_equal(parse(""), KVR_OK);
    assert_false(settings.flag);
    assert_string_equal(settings.text, "none");
    assert_int_equal(settings.count, 7);
    assert_int_equal(settings.size, 64 << 20);
    assert_true(settings.real == -0.5);
    assert_true(settings.time_ms == 600000);
    assert_int_equal(settings.capacity.amount, 0);
    assert_int_equal(operand_count, 0);
}

static void every_way_to_write_an_option(void **state)
{
    (void)state;
    assert_int_equal(parse("-ft abc a -n9 --size=1kB --time 500us -c 10000b b"), KVR_OK);
    assert_true(settings.flag);
    assert_string_equal(settings.text, "abc");
    assert_int_equal(settings.count, 9);
    assert_int_equal(settings.size, 1000);
    assert_true(settings.time_ms == 0.5);
    assert_int_equal(settings.capacity.amount, 10000);
    assert_int_equal(settings.capacity.unit, KVR_BLOCKS);
    assert_int_equal(operand_count, 2);
    assert_string_equal(operands[1], "b");
    assert_int_equal(parse("-m a -mb --merge=c -- -f - --x"), KVR_OK);
    assert_int_equal(settings.list.count, 3);
    assert_string_equal(settings.list.items[1], "b");
    assert_false(settings.flag);
    assert_int_equal(operand_count, 3);
    assert_int_equal(parse("--cap 40GiB --flag --real -2e3"), KVR_OK);
    assert_int_equal(settings.capacity.unit, KVR_BYTES);
    assert_true(settings.flag);
    assert_false(settings.other);
    assert_true(settings.real == -2000);
}

static void mistakes_are_named(void **state)
{
    static const struct {
        const char *line, *message;
    } rows[] = {
        {"--nope", "there is no option '--nope'"},
        {"-x", "there is no option '-x'"},
        {"-n", "option '-n' needs an argument (N)"},
        {"--count", "option '--count' needs an argument (N)"},
        {"--count x", "--count: 'x' is not a whole number"},
        {"-n -1", "-n: '-1' is not a whole number"},
        {"-n 18446744073709551616", "-n: '18446744073709551616' is not a whole number"},
        {"--flag=1", "option '--flag' takes no argument"},
        {"--c 1", "option '--c' could be '--choice' or '--count'"},
        {"--choice green", "--choice: 'green' is not one of: red, blue"},
        {"--time 5parsec",
            "--time: '5parsec' is not a time (a number, then us, ms, s, m, h or d; ms if none)"},
        {"-c 0", "-c: capacity '0' is out of range"},
        {"-c -5", "-c: '-5' is not a capacity (tokens; blocks with b; bytes with MB, GB, TB, MiB, "
                  "GiB, TiB)"},
        {"--real 0x10", "--real: '0x10' is not a number"},
        {"--real nan", "--real: 'nan' is not a number"},
        {"--help=roff", "'--help=roff': not one of scdoc, bash, zsh, fish"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(parse(rows[i].line), KVR_BAD_USAGE);
        assert_string_equal(error.text, rows[i].message);
    }
}

static void help_in_all_its_forms_names_every_option(void **state)
{
    static const char *const words[] = {
        "-h", "--help", "-V", "--help=scdoc", "--help=bash", "--help=zsh", "--help=fish"};
    const struct kvr_option_group groups[] = {{"Test", options, &settings}, {0}};
    const struct kvr_program program = {
        "kvr-test", "tests", "[FILE...]", "A text.", "kvr-test x\n"};
    struct kvr_buffer out = {0};

    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        assert_int_equal(parse(words[i]), KVR_OK);
        assert_int_equal(wish, KVR_WISH_WORK + 1 + (int)i);
        kvr_buffer_clear(&out);
        kvr_options_text(&program, groups, wish, &out);
        const char *text = kvr_buffer_text(&out);
        assert_non_null(text);
        for (const struct kvr_option *option = options; option->name; option++) {
            if (wish == KVR_WISH_VERSION)
                break;
            if (!strstr(text, option->name))
                fail_msg("%s does not name --%s", words[i], option->name);
        }
    }
    kvr_buffer_release(&out);
}

static void capacities_become_blocks(void **state)
{
    struct kvr_capacity capacity;
    uint64_t blocks;

    (void)state;
    assert_int_equal(kvr_quantity_capacity("3000000", &capacity, &error), KVR_OK);
    assert_int_equal(kvr_capacity_blocks(&capacity, 512, 0, &blocks, &error), KVR_OK);
    assert_int_equal(blocks, 5859);
    assert_int_equal(kvr_quantity_capacity("3M", &capacity, &error), KVR_OK);
    assert_int_equal(capacity.amount, 3000000);
    assert_int_equal(kvr_quantity_capacity("10kb", &capacity, &error), KVR_OK);
    assert_int_equal(kvr_capacity_blocks(&capacity, 512, 0, &blocks, &error), KVR_OK);
    assert_int_equal(blocks, 10000);
    assert_int_equal(kvr_quantity_capacity("1GiB", &capacity, &error), KVR_OK);
    assert_int_equal(kvr_capacity_blocks(&capacity, 16, 131072, &blocks, &error), KVR_OK);
    assert_int_equal(blocks, 512);
    assert_int_equal(kvr_capacity_blocks(&capacity, 16, 0, &blocks, &error), KVR_BAD_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_go_through_the_same_reader),
        cmocka_unit_test(every_way_to_write_an_option),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(help_in_all_its_forms_names_every_option),
        cmocka_unit_test(capacities_become_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
