/* The template interpreter against what jinja2 made of the same templates (template_cases.h), its
 * bounds, and the pieces of what it rendered. */
#include "unit.h"

#include "token/template.h"

#include "template_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct outcome {
    struct kvr_buffer text;
    struct kvr_template_fault fault;
    struct kvr_error error;
    enum kvr_status status;
    bool compiled;
};

static void render(struct kvr_template_run *run, const char *source,
    const struct kvr_template_variable *variables, size_t count, struct outcome *out)
{
    struct kvr_template *compiled;
    memset(out, 0, sizeof *out);
    out->status = kvr_template_compile(&compiled, source, strlen(source), &out->error);
    out->compiled = out->status == KVR_OK;
    if (!out->compiled)
        return;
    out->status =
        kvr_template_render(compiled, run, variables, count, &out->text, &out->fault, &out->error);
    kvr_template_free(compiled);
    assert_non_null(kvr_buffer_text(&out->text));
}

static struct kvr_template_variable variable(const char *name, const char *json)
{
    return (struct kvr_template_variable){.name = name, .json = json, .json_length = strlen(json)};
}

/* Splits the members of the table's context: its values are JSON texts of their own. */
static size_t context(struct kvr_template_variable *variables, char *names, size_t most)
{
    const char *at = template_context + 1;
    size_t count = 0;
    while (*at && *at != '}') {
        const char *name = ++at;
        const char *start;
        unsigned depth = 0;
        bool inside = false;
        assert_true(count < most);
        at = strchr(at, '"');
        variables[count].name = names;
        memcpy(names, name, (size_t)(at - name));
        names[at - name] = 0;
        names += at - name + 1;
        at = start = strchr(at, ':') + 1;
        for (; inside || depth || (*at != ',' && *at != '}'); at++) {
            if (inside && *at == '\\')
                at++;
            else if (*at == '"')
                inside = !inside;
            else if (!inside && strchr("[{", *at))
                depth++;
            else if (!inside && strchr("]}", *at))
                depth--;
        }
        variables[count].json = start;
        variables[count++].json_length = (size_t)(at - start);
        at += *at == ',' ? 2 : 0;
    }
    return count;
}

static void renders_as_jinja2(void **state)
{
    struct kvr_template_run *run = kvr_template_run_new(NULL, 0);
    struct kvr_template_variable variables[32] = {0};
    char names[400];
    size_t count = context(variables, names, 32);
    size_t wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof template_cases / sizeof *template_cases; i++) {
        const char *wanted = template_cases[i].error;
        const char *message;
        struct outcome out;
        render(run, template_cases[i].source, variables, count, &out);
        message = out.status ? strstr(out.error.text, ": ") : NULL;
        message = message ? message + 2 : "";
        if (template_cases[i].text
                ? out.status || strcmp(out.text.data, template_cases[i].text) != 0
            : strcmp(wanted, "syntax") == 0
                ? out.compiled || out.status != KVR_BAD_INPUT
                : !out.status || !out.compiled || strcmp(message, wanted) != 0) {
            print_error("template: %s\n  wanted: %s\n  got:    %s\n", template_cases[i].source,
                template_cases[i].text ? template_cases[i].text : wanted,
                out.status ? out.error.text : out.text.data);
            wrong++;
        }
        kvr_buffer_release(&out.text);
    }
    kvr_template_run_free(run);
    assert_int_equal(wrong, 0);
}

static void expect_error(const struct kvr_template_limits *limits, const char *source,
    enum kvr_status status, const char *text)
{
    struct kvr_template_run *run = kvr_template_run_new(limits, 0);
    struct kvr_template_variable variables[] = {variable("x", "\"abc\"")};
    struct outcome out;
    render(run, source, variables, 1, &out);
    if (out.status != status || !strstr(out.error.text, text))
        print_error("%s\n  got: %s\n", source, out.status ? out.error.text : "text");
    assert_int_equal(out.status, status);
    assert_non_null(strstr(out.error.text, text));
    assert_int_equal(out.text.length, 0);
    kvr_buffer_release(&out.text);
    kvr_template_run_free(run);
}

static void stops_at_its_bounds(void **state)
{
    const struct kvr_template_limits small = {
        .steps = 10000, .output_bytes = 1000, .memory_bytes = 1 << 20, .depth = 100};
    (void)state;
    expect_error(&small,
        "{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}",
        KVR_BAD_INPUT, "more than 10000 steps");
    expect_error(&small, "{% for a in range(1000) %}{{ x }}{% endfor %}", KVR_BAD_INPUT,
        "more than 1000 bytes of text");
    expect_error(&small, "{{ 'x' * 100000000 }}", KVR_NO_MEMORY, "more than 1048576 bytes");
    expect_error(&small, "{{ [1] * 100000000000 }}", KVR_NO_MEMORY, "more than 1048576 bytes");
    expect_error(&small, "{{ '%99999999999999999999d' % 1 }}", KVR_UNSUPPORTED, "a width");
    expect_error(&small, "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", KVR_BAD_INPUT,
        "more than 100 levels");
    expect_error(&small,
        "{% set ns = namespace(a=[]) %}{% for i in range(300) %}{% set ns.a = [ns.a] %}{% endfor %}"
        "{{ ns.a }}",
        KVR_BAD_INPUT, "more than 100 levels");
    expect_error(
        NULL, "{% for a in [[]] recursive %}{{ loop([[]]) }}{% endfor %}", KVR_BAD_INPUT, "levels");
}

static void names_what_it_does_not_know(void **state)
{
    (void)state;
    expect_error(NULL, "a\n\n{% include 'x' %}", KVR_UNSUPPORTED, "template line 3: 'include'");
    expect_error(NULL, "{% import 'x' as y %}", KVR_UNSUPPORTED, "'import'");
    expect_error(NULL, "{% from 'x' import y %}", KVR_UNSUPPORTED, "'from'");
    expect_error(NULL, "{% extends 'x' %}", KVR_UNSUPPORTED, "'extends'");
    expect_error(NULL, "\n{{ x|nope }}", KVR_BAD_INPUT, "template line 2: no filter named 'nope'");
    expect_error(NULL, "\n{{ x is nope }}", KVR_BAD_INPUT, "template line 2: no test named 'nope'");
    expect_error(NULL, "{{ x|pprint }}", KVR_UNSUPPORTED, "the filter 'pprint'");
    expect_error(NULL, "{{ x.encode() }}", KVR_UNSUPPORTED, "the method 'encode'");
    expect_error(NULL, "{% do x %}", KVR_BAD_INPUT, "unknown tag 'do'");
    expect_error(NULL, "\xff", KVR_BAD_INPUT, "UTF-8");
    expect_error(NULL, "{% if x %}\n", KVR_BAD_INPUT, "'endif' to close 'if'");
}

static void raises_with_its_own_text(void **state)
{
    struct kvr_template_run *run = kvr_template_run_new(NULL, 0);
    struct outcome out;
    (void)state;
    render(
        run, "a\n{% if true %}\n{{ raise_exception('no\tsuch role') }}{% endif %}", NULL, 0, &out);
    assert_int_equal(out.status, KVR_BAD_INPUT);
    assert_true(out.fault.raised);
    assert_int_equal(out.fault.line, 3);
    assert_string_equal(out.fault.kind, "TemplateError");
    assert_string_equal(out.error.text, "template line 3: TemplateError: no\\x09such role");
    kvr_buffer_release(&out.text);
    kvr_template_run_free(run);
}

/* Content is a password here, or a number as secret: no piece of it may come out. */
static void keeps_content_out_of_messages(void **state)
{
    static const char *const sources[] = {"{{ raise_exception('role ' ~ r ~ ' with ' ~ c) }}",
        "{{ raise_exception('role ' ~ r ~ ' is none of ' ~ [n, c]) }}", "{{ raise_exception(c) }}",
        "{{ raise_exception(n) }}", "{{ raise_exception(xs) }}", "{{ {}[c].x }}", "{{ {}[n].x }}",
        "{{ {}[c ~ 'x'].x }}", "{{ {}[(c, 1)].x }}", "{{ [].index(c) }}", "{{ [].index(n) }}",
        "{{ [].index(xs) }}", "{{ (1,).index(n) }}", "{{ '%(x)s' % c }}",
        "{{ ('%(' ~ c ~ ')s') % {} }}", "{{ ('%' ~ c[0]) % 1 }}", "{{ '{x}'.format(**{c: 1}) }}",
        "{{ c + 1 }}", "{{ (c ~ '{' ~ c ~ '}').format() }}", "{{ ('{:' ~ c[0] ~ '}').format(1) }}",
        "{{ ('{:' ~ c[0] ~ '}').format('a') }}", "{{ ('{:' ~ c[0] ~ '}').format(1.5) }}",
        "{{ c|int(1, c) }}", "{{ c.nope.x }}", "{{ missing[c] }}", "{{ xs|map(c)|list }}",
        "{{ xs|select(c)|list }}", "{{ xs|map(attribute=c)|join(attribute=1) + 1 }}",
        "{{ xs|map(n)|list }}", "{{ dict(**{c: 1})|dictsort(by=c) }}", "{{ strftime_now(c) / 2 }}",
        "{{ namespace(**{'_' ~ c: 1}) }}", "{{ range(**{c: 1}) }}", "{{ joiner(**{c: 1}) }}",
        "{{ xs|map(**{c: 1})|list }}", "{% macro m() %}{% endmacro %}{{ m(**{c: 1}) }}",
        "{% macro m(a) %}{% endmacro %}{{ m(a=1, **{'a': c}) }}", "{{ 1|attr(c)|abs }}",
        "{{ {'a': 1}|attr('__' ~ c)|abs }}", "{{ namespace(a=1)[c].x }}",
        "{{ 'abc'|truncate(n - 1000000, end=c) }}", "{{ 'abcdef'|truncate(1, leeway=-n) }}",
        "{{ range(n)[n] + 'x' }}", "{{ xs[n].x }}", "{{ f.x.y }}", "{{ {}[f].x }}",
        "{{ [].index(f) }}", "{{ raise_exception(f) }}", "{{ raise_exception('%d' % n) }}",
        "{{ raise_exception('%x' % n) }}", "{{ raise_exception('%.3f' % f) }}",
        "{{ raise_exception('%c%c' % (112, 119)) }}", "{{ raise_exception('{}'.format(n)) }}",
        "{{ raise_exception('{:,}'.format(n)) }}", "{{ raise_exception('{:c}'.format(119)) }}",
        "{{ raise_exception(n|tojson) }}", "{{ raise_exception({'a': n}|tojson(indent=1)) }}",
        "{{ raise_exception({n: 1}|tojson) }}", "{{ raise_exception(n|filesizeformat) }}",
        "{{ raise_exception((n * 10 ** 30)|string) }}", "{{ raise_exception(c|upper|lower) }}",
        "{{ raise_exception(c|title) }}", "{{ raise_exception(c|reverse|list|join) }}",
        "{{ raise_exception(c[::-1][::-1]) }}", "{{ raise_exception(c.split('-')|join(' ')) }}",
        "{{ raise_exception(c.partition('-')|join) }}",
        "{{ raise_exception(c.replace('7', '8')) }}", "{{ raise_exception(c|replace('7', '8')) }}",
        "{{ raise_exception(c|indent) }}", "{{ raise_exception(c|center(30)) }}",
        "{{ raise_exception(c|list) }}", "{{ raise_exception(c|first ~ c[1:]) }}",
        "{{ raise_exception(c|e) }}", "{{ raise_exception(c|urlencode) }}",
        "{{ raise_exception(c|wordwrap(3)) }}", "{{ raise_exception(c|tojson) }}",
        "{{ raise_exception([c]|string) }}", "{{ raise_exception('%s' % c) }}",
        "{{ raise_exception('%r' % c) }}", "{{ raise_exception('{}'.format(c)) }}",
        "{{ raise_exception('{!r:>20}'.format(c)) }}", "{{ raise_exception(c.zfill(20)) }}",
        "{{ raise_exception(c.ljust(20, 'x')) }}", "{{ raise_exception(c.removesuffix('x')) }}",
        "{{ raise_exception({c: 1}.items()|list) }}", "{{ raise_exception({c: 1}|items|list) }}",
        "{{ raise_exception({c: 1}|xmlattr) }}",
        "{% set t %}{{ c }}{% endset %}{{ raise_exception('x ' ~ t) }}",
        "{% macro m() %}{{ c }}{% endmacro %}{{ raise_exception('x ' ~ m()) }}",
        "{{ raise_exception('-'.join(c)) }}", "{{ raise_exception(c * 2) }}",
        "{{ raise_exception([c, 'x']|max) }}", "{{ raise_exception(c|truncate(5, true)) }}",
        "{{ raise_exception(c.splitlines()[0]) }}", "{{ raise_exception(c.rsplit('-', 1)[1]) }}",
        "{{ raise_exception(c|striptags) }}", "{{ raise_exception(c|safe) }}",
        "{{ raise_exception(c.capitalize().swapcase()) }}", "{{ raise_exception(x|string) }}"};
    static const char *const secrets[] = {"pw", "PW", "Pw", "wp", "-q7", "q8", "p-w", "hunter",
        "4711", "4,711", "1267", "2.5", "47.1", "'p'", "unsecret"};
    struct kvr_template_run *run = kvr_template_run_new(NULL, 0);
    struct kvr_template_variable variables[] = {variable("r", "\"hunter\""),
        variable("c", "\"pw-q7\""), variable("n", "4711"), variable("xs", "[4711, \"pw-q7\"]"),
        variable("f", "2.5"), variable("x", "{\"unsecret\": 1}")};
    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        struct outcome out;
        bool leaks = false;
        render(run, sources[i], variables, 6, &out);
        if (out.status == KVR_OK)
            print_error("%s\n  no error\n", sources[i]);
        assert_int_not_equal(out.status, KVR_OK);
        for (size_t k = 0; k < sizeof secrets / sizeof *secrets; k++)
            leaks |= strstr(out.error.text, secrets[k]) != NULL;
        if (leaks)
            print_error("%s\n  %s\n", sources[i], out.error.text);
        assert_false(leaks);
        assert_non_null(strstr(out.error.text, "template line 1: "));
        if (i < 2)
            assert_non_null(
                strstr(out.error.text, i ? "role ... is none of ..." : "role ... with ..."));
        kvr_buffer_release(&out.text);
    }
    kvr_template_run_free(run);
}

static void reads_json_strictly(void **state)
{
    static const char *const bad[] = {"", "{", "[1,]", "01", "1.", "\"\x01\"", "nul", "\"abc",
        "{\"a\" 1}", "1 2", "NaN", "\"\xff\"", "\"\\x\"", "{1: 2}", "-"};
    struct kvr_template_run *run = kvr_template_run_new(NULL, 0);
    struct kvr_template_variable good =
        variable("v", " {\"a\": [1, -2.5e3, true, null], \"a\\u0041\\ud83d\\ude00\\ud83dx\\n\": "
                      "\"\\\\\", \"a\": 1} ");
    struct outcome out;
    char deep[1002];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct kvr_template_variable variables[] = {variable("v", bad[i])};
        render(run, "{{ v }}", variables, 1, &out);
        assert_int_equal(out.status, KVR_BAD_INPUT);
        assert_non_null(strstr(out.error.text, "JSON"));
        kvr_buffer_release(&out.text);
    }
    memset(deep, '[', 1001);
    deep[1001] = 0;
    good.json_length = strlen(good.json);
    render(run, "{{ v|tojson }}", &good, 1, &out);
    assert_string_equal(
        out.text.data, "{\"a\": 1, \"aA\xf0\x9f\x98\x80\xef\xbf\xbdx\\n\": \"\\\\\"}");
    kvr_buffer_release(&out.text);
    good = variable("v", deep);
    render(run, "{{ v }}", &good, 1, &out);
    assert_non_null(strstr(out.error.text, "nested too deeply"));
    kvr_buffer_release(&out.text);
    kvr_template_run_free(run);
}

/* The rendered text with the content pieces in {}. */
static void expect_pieces(const char *source, const char *marked)
{
    struct kvr_template_run *run = kvr_template_run_new(NULL, 0);
    struct kvr_template_variable variables[] = {variable("c", "\" <|x|> y\\nz \""),
        variable("list", "[\"a\", \"b\"]"), variable("bos", "\"<s>\"")};
    struct outcome out;
    struct kvr_buffer shown = {0};
    const struct kvr_template_range *pieces;
    size_t count;
    size_t at = 0;
    variables[2].trusted = true;
    render(run, source, variables, 3, &out);
    assert_int_equal(out.status, KVR_OK);
    pieces = kvr_template_trace(run, &count);
    for (size_t i = 0; i < count; i++) {
        assert_true(pieces[i].start >= at && pieces[i].end > pieces[i].start);
        assert_true(pieces[i].end <= out.text.length);
        kvr_buffer_append(&shown, out.text.data + at, pieces[i].start - at);
        kvr_buffer_append_byte(&shown, '{');
        kvr_buffer_append(&shown, out.text.data + pieces[i].start, pieces[i].end - pieces[i].start);
        kvr_buffer_append_byte(&shown, '}');
        at = pieces[i].end;
    }
    kvr_buffer_append(&shown, out.text.data + at, out.text.length - at);
    assert_string_equal(kvr_buffer_text(&shown), marked);
    kvr_buffer_release(&shown);
    kvr_buffer_release(&out.text);
    kvr_template_run_free(run);
}

static void tells_content_from_template(void **state)
{
    (void)state;
    expect_pieces("{{ bos }}[{{ c }}]", "<s>[{ <|x|> y\nz }]");
    expect_pieces("{{ bos + c.strip() + '</s>' }}", "<s>{<|x|> y\nz}</s>");
    expect_pieces("{{ '[' ~ (c|trim)[2:5] ~ ']' }}", "[{x|>}]");
    expect_pieces("{{ c.split('\n')[1] + list|join('-') }}", "{z a}-{b}");
    expect_pieces(
        "{% set t = bos + c[:2] + '|' %}{% set u = t + c[1:2] %}{{ t + '.' }}{{ u }}{{ t }}",
        "<s>{ <}|.<s>{ <}|{<}<s>{ <}|");
    expect_pieces("{% macro m(x) %}({{ x }}){% endmacro %}{{ c[1] }}{{ m(c[1]) }}{{ m('k') }}",
        "{<}({<})(k)");
    expect_pieces("{% set t %}a{{ c[1] }}b{% endset %}{{ t[1:] + t.upper() }}", "{<}b{A<B}");
    expect_pieces("{{ ('a' + c[1] + 'b')[1:] }}|{{ ('a' + c[1] + 'b')|upper }}", "{<}b|{A<B}");
    expect_pieces(
        "{{ c[1] }}{{ c[1] }}{{ list|tojson }}{{ 1 }}{{ 'x'|tojson }}", "{<<[\"a\", \"b\"]}1\"x\"");
    expect_pieces(
        "{{ 'a,b'.replace(',', c[1]) }}{{ '%s' % c[1] }}{{ '{}'.format(bos) }}", "{a<b<}<s>");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_as_jinja2),
        cmocka_unit_test(stops_at_its_bounds),
        cmocka_unit_test(names_what_it_does_not_know),
        cmocka_unit_test(raises_with_its_own_text),
        cmocka_unit_test(keeps_content_out_of_messages),
        cmocka_unit_test(reads_json_strictly),
        cmocka_unit_test(tells_content_from_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
