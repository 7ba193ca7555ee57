#!/usr/bin/env python3
"""Writes template_cases.h: small templates and what jinja2 3.1.6, set up as transformers does, makes of
them. Needs jinja2==3.1.6 (a virtual environment), so it is run by hand:

python3 tests/unit/template_cases.py > tests/unit/template_cases.h
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz"))
import template_peer  # noqa: E402

CONTEXT = {
    "n": 7, "f": 2.5, "big": 123456789012345678901234567890, "yes": True, "no": False, "nil": None,
    "s": "Hello, World", "e": "", "u": "naïve Straße Ωμέγα 天気 👩‍👩‍👧 ﬃ", "html": "<a href='x'>\"&\"</a>",
    "words": "the quick  brown\tfox\njumps ", "num": " 42 ", "xs": [3, 1, 2], "mixed": [1, "a", None, 2.0, True],
    "d": {"b": 1, "a": 2, "C": 3, "items": "shadow", "get": "shadow"},
    "rows": [{"name": "Bob", "age": 25, "at": {"city": "X"}}, {"name": "alice", "age": 30},
             {"name": "Carl", "age": 25, "at": {"city": "Y"}}],
    "nested": [[1, [2, [3]]], [4]],
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "  Hi \n"},
                 {"role": "assistant", "content": None, "tool_calls": [
                     {"function": {"name": "f", "arguments": {"x": 1, "y": ["é", None, 1e22]}}}]}],
}

# One template a line, "\\n" and the like as in a Python string.
SOURCES = r'''
{{ n }} {{ f }} {{ big }} {{ yes }} {{ nil }} {{ s }} {{ missing }}|
{{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789.123 }} {{ 1e-5 }} {{ 0.0001 }} {{ 1.5e300 }} {{ -0.0 }} {{ 0.1 + 0.2 }} {{ 1e22 }} {{ 5e-324 }}
{{ [1, 'a', none, true, 1.5, [], {}, (), (1,), {'k': 'v'}] }}
{{ 'it\'s' }} {{ ['it\'s', "a\"b", '\'"', 'tab\t', '\\', '\x00\x7f\xa0', 'é', '\u200b'] }}
{{ 0x1f }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1_0.5_0 }} {{ 00 }}
{{ 'a' 'b' "c" }} {{ '\d\n'|length }} {{ 'x\
y' }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 100 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}
{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 1e308 * 10 }} {{ 3 * 1.5 }}
{{ 9223372036854775807 + 1 }} {{ -9223372036854775808 - 1 }} {{ big + 1 }} {{ big == 123456789012345678901234567890 }} {{ big > 1 }} {{ big > 1e29 }} {{ -big }}
{{ 1 + true }} {{ true + true }} {{ 'a' * 3 }} {{ 3 * 'ab' }} {{ [1] * 2 }} {{ 'a' * -1 }}| {{ [1] + [2] }} {{ (1,) + (2,) }}
{{ 1 ~ 2 ~ none ~ true ~ 'x' ~ missing ~ [1] }} {{ 1 + 2 ~ 3 }} {{ 'a' ~ 1 + 1 }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ [1] + (2,) }}
{{ none + 1 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.5 % 0 }}
{{ missing + 1 }}
{{ 's' + missing }}
{{ missing.x }}
{{ missing['x'] }}
{{ d.nope.x }}
{{ d['nope']['x'] }}
{{ xs[10].a }}
{{ nil.foo.bar }}
{{ n.foo() }}
{{ missing() }}
{{ n() }}
{{ 's'() }}
{{ d.nope }}|{{ xs[10] }}|{{ n.foo }}|{{ nil['x'] }}|{{ missing|default('dflt') }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 == true }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1,) < (1, 0) }} {{ 'Z' < 'a' }} {{ 1 != 2 }} {{ 2 >= 2 }} {{ 1 <= 0 }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ {} < {} }}
{{ [1] < [1, 'a'] }} {{ ['a'] < [1] }}
{{ 1 in xs }} {{ 5 in xs }} {{ 'a' in d }} {{ 'ell' in s }} {{ 'x' not in s }} {{ none in mixed }} {{ 1.0 in xs }} {{ '' in '' }} {{ 2 in (1, 2) }} {{ 1 in missing }}
{{ 1 in 'abc' }}
{{ 'a' in nil }}
{{ 'a' in 5 }}
{{ [] in d }}
{{ missing in 'abc' }}
{{ not yes }} {{ not e }} {{ not not xs }} {{ yes and 'x' }} {{ no or 'y' }} {{ e and 1 / 0 }}| {{ 1 or 1 / 0 }} {{ not 1 in xs }} {{ no and no or yes }}
{{ 'a' if yes else 'b' }} {{ 'a' if no else 'b' }} {{ 'a' if no }}| {{ 'a' if no else 'b' if no else 'c' }}
{{ ('a' if no).x }}
{{ 1 if missing else 2 }} {{ 1 if e else 2 }} {{ 1 if [] else 2 }} {{ 1 if {} else 2 }} {{ 1 if 0.0 else 2 }} {{ 1 if xs|map('int') else 2 }}
{{ s[0] }} {{ s[-1] }} {{ s[100] }}| {{ u[3] }} {{ u[-1] }} {{ s[1:4] }} {{ s[:3] }} {{ s[-3:] }} {{ s[::2] }} {{ s[::-1] }} {{ s[5:1] }}| {{ s[5:1:-1] }} {{ u[13:18] }} {{ u[::-3] }} {{ u[-4:] }}
{{ xs[0] }} {{ xs[-1] }} {{ xs[1:] }} {{ xs[::-1] }} {{ xs[:-1] }} {{ xs[true] }} {{ (1, 2, 3)[1:] }} {{ xs[none:2] }} {{ xs[:100] }} {{ xs[-100:2] }}
{{ range(10)[2:8:3] }} {{ range(5)|list }} {{ range(2, 8, 3)|list }} {{ range(5, 0, -2)|list }} {{ range(3) }} {{ range(0, 10, 2) }} {{ range(5)[1] }} {{ 3 in range(5) }} {{ range(0)|list }}
{{ xs[1:2:0] }}
{{ d[1:] }}
{{ nil[1:] }}
{{ missing[1:] }}
{{ n[0] }}|{{ nil[0] }}|{{ xs['a'] }}|{{ d[0] }}
{{ xs['a'].b }}
{{ xs[none].b }}
{{ xs.0 }}| {{ nested.0.1.0 }} {{ 'abc'.1 }}

{{ d.items is callable }}

{{ d['items'] }} {{ d.items() }} {{ d.get('a') }} {{ d.get('z') }} {{ d.get('z', 5) }} {{ d.keys() }} {{ d.values() }} {{ d.keys()|list }} {{ d.copy() }}
{{ d['get'] }} {{ {'x y': 1}['x y'] }} {{ {1: 'a', none: 'b', true: 'c', (1, 2): 'd'} }} {{ {1: 'a'}[1.0] }} {{ {1: 'a'}[true] }}
{{ {[]: 1} }}
{{ d.update({'x': 1}) }}
{{ xs.append(4) }}
{{ d.pop('a') }}
{% if d.update %}a{% else %}b{% endif %}|{{ xs.append is defined }} {{ xs.append is undefined }}
{{ ''.__class__ }}
{{ ''.__class__.__mro__ }}
{{ xs.__len__ }}|{{ d.__foo__ }}|{{ d._x }}
{{ xs.index(2) }} {{ xs.count(1) }} {{ (1, 2).index(2) }} {{ xs.copy() }}
{{ xs.index(99) }}
{{ s.upper() }} {{ s.lower() }} {{ u.upper() }} {{ u.lower() }} {{ u.title() }} {{ 'ΑΣ ΑΣ.'.lower() }} {{ s.swapcase() }} {{ 'ß'.casefold() }} {{ 'hELLO wORLD'.capitalize() }} {{ "they're bill's".title() }}
{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcba'.lstrip('ab') }}|{{ 'ééaé'.strip('é') }}|{{ '\u3000x\x1c'.strip() }}|{{ 'x'.strip(none) }}
{{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ words.split() }} {{ words.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ words.rsplit(none, 2) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a b'.split(maxsplit=1) }} {{ 'a--b-c'.split('--') }}
{{ 'a'.split('') }}
{{ 'a\nb\r\nc\x0bd\u2028e'.splitlines() }} {{ 'a\nb\n'.splitlines(true) }} {{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }}
{{ s.startswith('Hell') }} {{ s.startswith('World', 7) }} {{ s.endswith(('x', 'ld')) }} {{ s.endswith('lo', 0, 5) }} {{ ''.startswith('') }} {{ s.startswith('') }} {{ 'abc'.startswith('', 4) }}
{{ s.startswith(1) }}
{{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ s.find('o', 5) }} {{ u.find('Ω') }} {{ u.rfind('天') }} {{ s.index('W') }} {{ s.count('l') }} {{ 'aaa'.count('aa') }} {{ 'abc'.count('') }} {{ 'abc'.find('', 1) }} {{ 'abc'.rfind('') }} {{ s.rindex('o', 0, 5) }}
{{ s.index('zz') }}
{{ 'a.b.c'.replace('.', '-') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '-') }} {{ 'abc'.replace('x', 'y') }} {{ 'aaa'.replace('a', '') }}| {{ ''.replace('', 'x') }} {{ 'abc'.replace('', '-', 2) }}
{{ ','.join(['a', 'b']) }} {{ ''.join([]) }}| {{ ', '.join('abc') }} {{ '-'.join(d) }}
{{ ','.join([1]) }}
{{ 'x'.join(5) }}
{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'x'.removeprefix('y') }} {{ 'x'.removesuffix('') }}
{{ 'x'.center(5) }}| {{ 'x'.center(4, '*') }} {{ 'ab'.center(5, '*') }} {{ 'x'.ljust(3, '.') }} {{ 'x'.rjust(3) }} {{ '-5'.zfill(4) }} {{ 'é'.ljust(3, 'ß') }} {{ 'a\tb'.expandtabs(4) }}
{{ '12'.isdigit() }} {{ '²'.isdigit() }} {{ '²'.isdecimal() }} {{ '½'.isnumeric() }} {{ 'a1'.isalnum() }} {{ 'aé'.isalpha() }} {{ ''.isalpha() }} {{ ' \n'.isspace() }} {{ 'ab'.islower() }} {{ 'A1'.isupper() }} {{ '1'.isupper() }} {{ 'Ab Cd'.istitle() }} {{ 'x_1'.isidentifier() }} {{ 'é\n'.isprintable() }} {{ 'é'.isascii() }}
{{ '{} {}'.format(1, 'a') }} {{ '{1} {0}'.format(1, 2) }} {{ '{a} {b!r}'.format(a=1, b='x') }} {{ '{:>5}|{:<5}|{:^5}|{:*^5}'.format(1, 'a', 'b', 'c') }} {{ '{:05d} {:+d} {:x} {:#b} {:,}'.format(42, 5, 255, 5, 1234567) }} {{ '{:.2f} {:e} {:g} {:%} {:.3}'.format(3.14159, 12345.678, 0.0001, 0.25, 'abcdef') }} {{ '{{}} {0[a]} {0.b}'.format(d) }} {{ '{:{w}}|'.format('a', w=4) }}
{{ '{}'.format() }}
{{ '{x}'.format() }}
{{ '{:d}'.format('x') }}
{{ '%s is %d years, %.2f%%' % ('Bob', 5, 1.5) }} {{ '%s' % 5 }} {{ '%r %s' % ('a', [1]) }} {{ '%5d|%-5d|%05d|%+d|%x|%o|%e|%g' % (1, 2, 3, 4, 255, 8, 1.5, 1e20) }} {{ '%(a)s-%(b)03d' % {'a': 'x', 'b': 7} }} {{ '%c%c' % ('a', 66) }} {{ '%5.1f|%.3s' % (2.25, 'abcdef') }}
{{ '%d' % 'x' }}
{{ '%s %s' % 'x' }}
{{ 'x' % 5 }}
{{ '%s'|format(5) }} {{ '%(a)s'|format(a=1) }} {{ '%s-%s'|format('a', none) }}
{{ s|upper }} {{ s|lower }} {{ 'hello world-foo (bar'|title }} {{ 'hELLO'|capitalize }} {{ n|upper }} {{ u|title }} {{ none|lower }}
{{ words|trim }}| {{ 'xxaxx'|trim('x') }} {{ 5|trim }} {{ missing|trim }}|
{{ s|length }} {{ u|length }} {{ xs|length }} {{ d|count }} {{ missing|length }} {{ range(4)|length }} {{ e|length }} {{ d.keys()|length }}
{{ 5|length }}
{{ nil|length }}
{{ xs|map('string')|length }}
{{ d|tojson }} {{ [1, 2.0, none, true, 'é"\\\n<&>\x01\x7f', {}, [], (1,)]|tojson }} {{ u|tojson(ensure_ascii=true) }} {{ big|tojson }}
{{ d|tojson(indent=2) }}
{{ {'a': [], 'b': {}, 'c': [1, {'d': 2}]}|tojson(indent=4) }}
{{ d|tojson(separators=(',', ':'), sort_keys=true) }} {{ {1: 2, true: 3, none: 4, 1.5: 5}|tojson }} {{ [1, [2]]|tojson(indent='--') }} {{ [1,2]|tojson(true) }}
{{ missing|tojson }}
{{ xs|map('string')|tojson }}
{{ {(1, 2): 3}|tojson }}
{{ d.keys()|tojson }}
{{ 'a\nb\n\nc'|indent }} {{ 'a\nb'|indent(2, true) }} {{ 'a\n\nb'|indent(width='>>', blank=true) }} {{ 'a\nb\n'|indent(1) }}| {{ ''|indent(2, true) }}|
{{ 5|indent }}
{{ missing|default }}| {{ missing|default(3) }} {{ e|default('x') }}| {{ e|default('x', true) }} {{ nil|default('x') }} {{ nil|d('x', boolean=true) }} {{ d.z|default('q') }} {{ none|default(missing, true) }}|
{{ xs|join }} {{ xs|join(', ') }} {{ rows|join('; ', attribute='name') }} {{ 'abc'|join('-') }} {{ mixed|join('|') }} {{ missing|join }}| {{ d|join(',') }} {{ rows|map(attribute='at.city')|join(',') }}
{{ 5|join }}
{{ d|items|list }} {{ missing|items|list }} {{ {}|items|list }}
{{ xs|items|list }}
{{ rows|map(attribute='name')|list }} {{ xs|map('string')|list }} {{ rows|map(attribute='at', default='none')|list }} {{ ['a', 'b']|map('upper')|join }} {{ xs|map('default', 5)|list }} {{ [' a ', 'b']|map('trim')|list }} {{ nested|map('first')|list }} {{ missing|map('upper')|list }}
{{ xs|map('nope')|list }}
{{ xs|map|list }}
{{ xs|select('odd')|list }} {{ mixed|select|list }} {{ xs|reject('odd')|list }} {{ xs|select('>', 1)|list }} {{ xs|select('in', [1, 2])|list }} {{ ['a', none]|select('string')|list }} {{ mixed|reject('none')|list }}
{{ rows|selectattr('at')|map(attribute='name')|list }} {{ rows|selectattr('age', 'equalto', 25)|map(attribute='name')|list }} {{ rows|rejectattr('age', 'gt', 26)|list|length }} {{ rows|selectattr('at', 'defined')|list|length }} {{ rows|selectattr('at.city', 'eq', 'X')|map(attribute='name')|first }} {{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list|first }}
{{ xs|select('nope')|list }}
{{ xs|first }} {{ xs|last }} {{ 'abc'|first }} {{ 'abc'|last }} {{ []|first }}| {{ []|last }}| {{ d|first }} {{ d|last }} {{ range(3)|last }} {{ xs|map('string')|first }}
{{ xs|map('string')|last }}
{{ []|first + 1 }}
{{ ([]|last).x }}
{{ 'abc'|list }} {{ d|list }} {{ (1, 2)|list }} {{ missing|list }} {{ d.items()|list }}
{{ 5|list }}
{{ 5|string ~ 'x' }} {{ none|string }} {{ 1.0|string }} {{ [1]|string }}
{{ '42'|int }} {{ num|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '3.9'|int }} {{ 3.9|int }} {{ -3.9|int }} {{ '0x1F'|int(base=16) }} {{ '1f'|int(0, 16) }} {{ 'ff'|int(base=16) }} {{ true|int }} {{ none|int(3) }} {{ '1_000'|int }} {{ '1e3'|int }} {{ '-5'|int }} {{ '٣'|int }} {{ '99999999999999999999'|int }} {{ '0b11'|int(base=2) }} {{ '0'|int }} {{ 'inf'|int }} {{ ''|int(9) }}
{{ '1.5'|float }} {{ 'x'|float }} {{ 'x'|float(2.5) }} {{ 3|float }} {{ ' 1e3 '|float }} {{ 'nan'|float }} {{ '-inf'|float }} {{ '1_0.5'|float }} {{ none|float }}
{{ missing|int }}
{{ 'hello'|replace('l', 'L') }} {{ 'hello'|replace('l', 'L', 1) }} {{ 5|replace(5, 'x') }} {{ 'aaa'|replace('a', 'b', count=2) }}
{{ html|safe }} {{ html|e }} {{ html|escape|e }} {{ html|forceescape }} {{ (html|safe) + '<b>' }} {{ '<b>' + ('<i>'|safe) }} {{ ('<i>'|safe)|upper }} {{ 5|e }} {{ [html|safe] }} {{ ('<i>'|safe) ~ '<b>' }} {{ '<x>' + ('<i>'|safe) + '<y>' }}
{{ [1, 1, 2, 'a', 'A']|unique|list }} {{ ['a', 'A']|unique(case_sensitive=true)|list }} {{ rows|unique(attribute='age')|map(attribute='name')|list }}
{{ xs|sort }} {{ xs|sort(reverse=true) }} {{ ['b', 'A', 'c']|sort }} {{ ['b', 'A', 'c']|sort(case_sensitive=true) }} {{ rows|sort(attribute='name')|map(attribute='name')|list }} {{ rows|sort(attribute='age,name')|map(attribute='name')|list }} {{ rows|sort(true, attribute='age')|map(attribute='name')|list }} {{ d|sort }}
{{ mixed|sort }}
{{ d|dictsort }} {{ d|dictsort(true) }} {{ {'x': 2, 'y': 1}|dictsort(by='value') }} {{ {'x': 2, 'y': 1}|dictsort(reverse=true) }}
{{ d|dictsort(by='z') }}
{{ xs|dictsort }}
{{ xs|reverse|list }} {{ 'abc'|reverse }} {{ d|reverse|list }} {{ xs|map('string')|reverse }} {{ u|reverse }}
{{ 5|reverse }}
{{ xs|sum }} {{ [1.5, 2]|sum }} {{ rows|sum(attribute='age') }} {{ xs|sum(start=10) }} {{ []|sum }} {{ [[1], [2]]|sum(start=[]) }}
{{ ['a']|sum }}
{{ xs|min }} {{ xs|max }} {{ ['b', 'A']|min }} {{ rows|max(attribute='age') }} {{ []|min }}| {{ ['b', 'A', 'B']|max }}
{{ range(7)|batch(3)|list }} {{ range(7)|batch(3, 'x')|list }} {{ range(7)|slice(3)|list }} {{ range(7)|slice(3, 'x')|list }} {{ []|batch(2)|list }}
{% for g in rows|groupby('age') %}{{ g.grouper }}:{{ g.list|map(attribute='name')|join(',') }};{% endfor %}{% for a, b in rows|groupby('age') %}{{ a }}={{ b|length }} {% endfor %}{{ rows|groupby('at.city', default='-')|map('first')|list }} {{ (rows|groupby('age'))[0][0] }}
{{ 'a b  c-d é_f'|wordcount }} {{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(11, false, '!', 0) }} {{ 'x'|center(5) }}|
{{ -5|abs }} {{ (-5)|abs }} {{ -2.5|abs }} {{ true|abs }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.5|round(method='ceil') }} {{ 2.55|round(1, 'floor') }} {{ 25|round(-1) }} {{ 35|round(-1) }} {{ 1234.5|round(-2) }} {{ 5|round }} {{ 2.675|round(2) }}
{{ 1000|filesizeformat }} {{ 1|filesizeformat }} {{ 1500000|filesizeformat }} {{ 1024|filesizeformat(true) }} {{ 'a b/c?é'|urlencode }} {{ {'a': 1, 'b c': '/'}|urlencode }} {{ d|attr('a') }}|{{ s|attr('upper') is callable }}
{{ 'x'|abs }}
{{ 'x'|nope }}
{% if no %}{{ 'x'|nope }}{% endif %}ok
{% if yes %}{{ 'x'|nope }}{% endif %}ok
{{ ('x'|nope) if no else 'fine' }}
{% if yes %}{{ 1 is nope }}{% endif %}
{{ 1 is nope }}
{{ n is odd }} {{ n is even }} {{ n is divisibleby(7) }} {{ n is divisibleby 2 }} {{ n is defined }} {{ missing is defined }} {{ missing is undefined }} {{ nil is none }} {{ yes is boolean }} {{ yes is true }} {{ no is false }} {{ 1 is true }} {{ n is integer }} {{ yes is integer }} {{ f is float }} {{ yes is number }} {{ s is string }} {{ d is mapping }} {{ xs is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ xs is iterable }} {{ n is iterable }} {{ missing is iterable }} {{ missing is sequence }} {{ range is callable }} {{ n is callable }} {{ s is lower }} {{ 'ab' is lower }} {{ 'AB' is upper }} {{ big is integer }} {{ xs|map('int') is sequence }} {{ xs|map('int') is iterable }} {{ d.keys() is sequence }} {{ 's' is escaped }} {{ ('s'|safe) is escaped }}
{{ n is sameas 7 }} {{ nil is sameas none }} {{ n is eq 7 }} {{ n is equalto(7) }} {{ n is ne 8 }} {{ n is gt 6 }} {{ n is lt(6) }} {{ n is ge 7 }} {{ n is le 7 }} {{ n is in [7] }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ n is not odd }} {{ n is not none and n is odd }} {{ not n is odd }} {{ n is greaterthan 3 }} {{ 'a' is in 'abc' }}
{{ 'x' is odd }}
{{ 1 is odd is even }}
{% if n == 7 %}seven{% elif n == 8 %}eight{% else %}other{% endif %} {% if no %}a{% elif yes %}b{% else %}c{% endif %} {% if no %}a{% elif no %}b{% else %}c{% endif %}{% if no %}x{% endif %}
{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}
{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{{ loop.cycle('o', 'e') }} {% endfor %}{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}
{% for x in xs %}{{ loop.previtem.foo }}{% endfor %}
{% for x in xs %}{{ loop.nope.x }}{% endfor %}
{% for x in xs if x > 1 %}{{ x }}/{{ loop.index }}/{{ loop.length }} {% else %}none{% endfor %}{% for x in [] %}x{% else %}empty{% endfor %}{% for x in missing %}{{ x }}{% else %}undef{% endfor %}
{% for x in xs|map('string') %}{{ x }}{{ loop.last }}{{ loop.length }} {% endfor %}{% for x in xs|reverse %}{{ x }}{{ loop.nextitem }} {% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for c in 'héé' %}{{ c }}.{% endfor %}
{% for a, b in [[1]] %}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% for a, b in [5] %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for x in nil %}{% endfor %}
{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}E{% endfor %} {% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% else %}E{% endfor %} {% for x in [1] %}{% break %}{% else %}E{% endfor %}{% for x in [1] %}{% continue %}{% else %}E{% endfor %}
{% for x in nested recursive %}{% if x is iterable %}[{{ loop(x) }}]{{ loop.depth }}{% else %}{{ x }}{% endif %}{% endfor %}
{% for x in xs %}{{ loop(xs) }}{% endfor %}
{% set x = 1 %}{% for i in xs %}{{ x }}{% set x = x + 1 %}{{ x }} {% endfor %}{{ x }} {% if yes %}{% set x = 9 %}{% endif %}{{ x }}{% for i in xs %}{{ y is defined }}{% set y = i %}{% endfor %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = 1, 2 %}{{ t }}{% set c = (3) %}{{ c }}{% set e2 = () %}{{ e2 }}{% set (p, q) = [5, 6] %}{{ p + q }}
{% set ns = namespace(x=1, y='a') %}{% for i in xs %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z is defined }}{{ ns }}{% set ns.z, w = 1, 2 %}{{ ns.z }}{{ w }}{{ ns['x'] }} {{ namespace({'q': 1}).q }}
{% set ns = 5 %}{% set ns.x = 1 %}
{% set ns = namespace() %}{% set ns._x = 1 %}
{% set ns = namespace() %}{{ ns.nope.x }}
{% set ns = namespace(a=1) %}{% set ns.me = ns %}{{ ns }}{% set ns.b = [ns.me] %}{{ ns.b }}
{% set missing2.x = 1 %}
{% set x %}a{{ n }}b{% endset %}[{{ x }}]{% set y | upper | trim %} hi {% endset %}[{{ y }}]{% set z %}{% endset %}[{{ z }}]
{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, c=5) }}{{ m(b=1, a=0) }}{{ m(1, 2, 3) }}{{ m }} {{ m.name }} {{ m.arguments }}
{% macro m(a) %}{{ a is defined }}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m() }}{{ m(1, 2, z=3) }}
{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=1) }}
{% macro m(a) %}{% endmacro %}{{ m(1, a=1) }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(3) }}{% macro r(k) %}{{ k }}{% if k %}{{ r(k - 1) }}{% endif %}{% endmacro %}{{ r(5) }}{% set later = 5 %}{% macro g() %}{{ later }}{% endmacro %}{{ g() }}{% set later = 6 %}{{ g() }}
{% macro m(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) m(5) %}[{{ y }}]{% endcall %}{% macro q() %}{{ caller is defined }}{% endmacro %}{{ q() }}{% call q() %}{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{% macro outer() %}{% macro inner(i) %}({{ i }}{{ n }}){% endmacro %}{{ inner(1) }}{{ inner(2) }}{% endmacro %}{{ outer() }}{{ inner is defined }}
{% filter upper %}abc{{ n }}{% endfilter %}{% filter trim | replace('b', 'X') %}  abc {% endfilter %}{% with a=1, b=n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}{% with n=n+1 %}{{ n }}{% endwith %}{{ n }}{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}
{% generation %}x{{ n }}{% set g = 1 %}{% endgeneration %}{{ g is defined }}{% block b %}y{{ n }}{% endblock %}{% print n, s %}
{% raw %}{{ x }} {% if %}{% endraw %}{# comment {{ x }} #}!
a {%- if yes -%} b {%- endif -%} c {{- ' d ' -}} e {{ 'f' }} g {#- x -#} h
  {% if yes %}\n  a\n  {% endif %}\n b\n{% for x in xs %}\n  {{ x }}\n{% endfor %}\nend
  {%+ if yes %}\n  a\n  {%+ endif +%}\n b {# c #}\n  {# d #}\nx
x {% if yes %} y {% endif %} z\n\n  {%- if yes %}\n\n a{% endif %}\n
{% if yes %}\r\nline\r{% endif %}\n
  {{ n }}\n  {{- n -}}  \n  x
{%- set x = 1 -%}\n\n{{ x }}
{% raw -%}  a {%- endraw %}\nb{%- raw %} c {% endraw -%} d
{{ cycler is callable }}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}{% set j = joiner('; ') %}{{ j() }}1{{ j() }}2{{ j() }}
{{ dict(a=1, b='x') }} {{ dict({'q': 1}, z=2) }} {{ dict([['a', 1], ('b', 2)]) }} {{ dict() }} {{ dict(d, a=5) }}
{{ range() }}
{{ range(1, 2, 0) }}
{{ range(1000000) }}
{{ range('a') }}
{{ raise_exception('bad: ' ~ n) }}
{% if yes %}\n{{ raise_exception('nested') }}{% endif %}
{% for m in messages %}{{ '<|' + m['role'] + '|>' }}{{ m.content }}{% if m.tool_calls %}{% for t in m.tool_calls %}{{ t.function.name }}({{ t.function.arguments|tojson }}){% endfor %}{% endif %}{% endfor %}
{% for m in messages %}{% if m.role == 'user' %}{{ m.content | trim + '!' }}{{ (m.content | trim) + '!' }}{% endif %}{% endfor %}
{{ messages[0].role ~ messages[-2]['content'].strip() }} {{ messages[1:]|length }} {{ (messages|last).tool_calls[0].function.arguments.y }} {{ messages|map(attribute='role')|join(',') }} {{ messages[2].content is none }} {{ messages[0].tool_calls is defined }}
{{ messages[2].content + 'x' }}
{{ messages[0].tool_calls.x }}
{{ 'x' + messages[2].content }}
{{ messages[2].content.strip() }}
{{ m(*[1, 2], **{'c': 3}) }}
{% macro m(a, b, c=0) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*[1, 2], **{'c': 3}) }}{{ m(1, *[2]) }}{{ '{}{}{k}'.format(*xs, **{'k': 1}) }}
{{ [1, 2, 3,] }}{{ {'a': 1,} }}{{ (1, 2,) }}{{ [] }}{{ {} }}{{ () }}
{{ 1, 2 }}{{ 1, }}
{{ -1 }}{{ +1 }}{{ - - 1 }}{{ -n }}{{ -f|abs }}{{ +true }}
{{ -'a' }}
{{ s.upper().lower()[0:3].replace('h', 'j')|upper }} {{ (s ~ '!').upper() }} {{ 'a'.upper() + 'b' }} {{ [s][0][1] }} {{ {'f': s}.f.lower() }}
{{ "a" is string and "b" in "abc" or false }} {{ 1 if 2 is even and 3 is odd else 0 }} {{ [] is sequence and [] is not mapping }}
{{ xs is string or (xs is iterable and xs[0] is number) }} {{ 'abc'[1]|upper }} {{ n|string|length + 1 }} {{ -n|abs }} {{ 2 * n|string }}
{% if 'a' in d and d.a > 1 and not missing %}ok{% endif %}{% if missing is not defined or missing.x %}ok{% endif %}
{{ loop is defined }}{% for x in xs %}{% for y in xs %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}{% for x in xs %}{% set outer_loop = loop %}{% for y in [1] %}{{ outer_loop.index }}{% endfor %}{% endfor %}
{% for x in xs %}{{ x }}{{ ',' if not loop.last }}{% endfor %} {% for x in xs -%} {{ x }} {%- if not loop.last %}, {% endif -%} {% endfor %}
{% set x = [1, 2] %}{% set x = x + [3] %}{{ x }}{% set d2 = dict(d, **{'z': 1}) %}{{ d2.z }}{% set m2 = messages[:1] + messages[2:] %}{{ m2|length }}
{{ '\u00e9\x4' }}
{{ '\u00e9\x41\101\U0001F600\a\'' }}
{{ 'é\é' }}
{{
{% if %}
{% endif %}
{% if x %}
{% for x in xs %}{% endif %}
{{ 1 + }}
{{ [1, 2 }}
{{ (1 }}
{{ foo bar }}
{{ 'abc }}
{% nope %}
{% set %}
{% set 1 = 2 %}
{% set x.y.z = 2 %}
{% for x %}{% endfor %}
{% macro m(a=1, b) %}{% endmacro %}
{{ f(a=1, 2) }}
{{ 1 ! 2 }}
{% for loop in xs %}{{ loop.index }}{% endfor %}
{{ a.1.2 }}|{{ 1.5.x }}|{{ xs.-1 }}
{# unclosed
{% raw %} unclosed
'''


def c_string(text):
    out = []
    for byte in text.encode():
        char = chr(byte)
        if char in '"\\':
            out.append("\\" + char)
        elif 32 <= byte < 127 and char != "?":
            out.append(char)
        else:
            out.append("\\%03o" % byte)
    return '"%s"' % "".join(out)


def sources():
    lines, pending = [], ""
    for line in SOURCES.strip("\n").split("\n"):
        if line.endswith("\\"):
            pending += line[:-1] + "\\\n"
            continue
        text = pending + line
        pending = ""
        # Line ends outside of tags are written as escapes.
        parts, inside, at = [], False, 0
        while at < len(text):
            two = text[at:at + 2]
            if two in ("{{", "{%"):
                inside = True
            elif two in ("}}", "%}"):
                inside = False
            if not inside and two in ("\\n", "\\r"):
                parts.append("\n" if two == "\\n" else "\r")
                at += 2
                continue
            parts.append(text[at])
            at += 1
        lines.append("".join(parts))
    return lines


if __name__ == "__main__":
    print("/* Made by template_cases.py from jinja2 %s; do not edit. */" % template_peer.jinja2.__version__)
    print("/* clang-format off */")
    print("static const char template_context[] =\n    %s;\n" % c_string(json.dumps(CONTEXT, ensure_ascii=False)))
    print("static const struct {\n    const char *source;\n    const char *text;  /* NULL: an error */"
          "\n    const char *error; /* its kind and message; only the kind of syntax errors */"
          "\n} template_cases[] = {")
    for source in sources():
        result = template_peer.theirs(source, CONTEXT)
        if result[0] == "text":
            print("    {%s,\n        %s, NULL}," % (c_string(source), c_string(result[1])))
        else:
            syntax = result[1] in ("TemplateSyntaxError", "TemplateAssertionError")
            error = "syntax" if syntax else "%s: %s" % (result[1], result[2])
            print("    {%s,\n        NULL, %s}," % (c_string(source), c_string(error)))
    print("};\n/* clang-format on */")
