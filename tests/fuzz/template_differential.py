#!/usr/bin/env python3
"""Random templates, rendered by kvr and by jinja2, compared.

python3 tests/fuzz/template_differential.py [COUNT [SEED]]

Needs jinja2==3.1.6 and a C compiler; prints what differs and exits 1 if anything does. Templates are
drawn from a grammar of statements, operators, filters, tests and methods over a small context, so that
most of them mean something; errors must be of the same kind. What kvr says it does not support is
counted, not compared.
"""
import copy
import os
import random
import subprocess
import sys
import tempfile
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, HERE)
import template_peer  # noqa: E402

CONTEXT = {
    "i": 3, "j": -2, "z": 0, "f": 2.5, "g": -0.125, "yes": True, "no": False, "nil": None, "s": "Hello World",
    "t": " a,b ,c\n", "e": "", "u": "Straße Ω 天é", "num": "42", "xs": [3, 1, 2], "ys": ["b", "A", "c"],
    "mixed": [1, "a", None, 2.5, True, [1], {"k": 1}], "empty": [], "d": {"a": 1, "b": "x", "c": [1, 2]},
    "rows": [{"n": "Bob", "v": 2, "o": {"p": 1}}, {"n": "al", "v": 1}, {"n": "Cy", "v": 2, "o": {"p": None}}],
    "ms": [{"role": "user", "content": " hi "}, {"role": "assistant", "content": None}, {"role": "tool"}],
    "nest": [[1, [2]], [], [3]],
}
NAMES = list(CONTEXT) + ["missing", "x", "y", "ns"]
LITERALS = ["0", "1", "2", "-1", "10", "1.5", "0.1", "1e3", "true", "false", "none", "''", "'a'", "','", "' '",
            "'role'", "'a,b,c'", "'%s'", "'é'", "'abc'", "'A'", "[]", "{}", "()", "[1, 2]", "'{}'", "3", "'n'"]
FILTERS = [
    "length", "upper", "lower", "trim", "title", "capitalize", "first", "last", "list", "string", "int", "float",
    "sort", "reverse", "unique", "join", "join(%e)", "join(', ', attribute=%a)", "default(%e)",
    "default(%e, true)", "replace(%e, %e)", "tojson", "tojson(indent=2)", "map('upper')", "map('int')",
    "map(attribute=%a)", "map(attribute=%a, default=%e)", "map('default', %e)", "select", "reject",
    "select('string')", "select(%t)", "reject(%t)", "selectattr(%a)", "rejectattr(%a)", "map('length')",
    "selectattr(%a, 'equalto', %e)", "selectattr(%a, 'defined')", "rejectattr(%a, 'none')", "items", "dictsort",
    "dictsort(true, 'value')", "sum", "min", "max", "abs", "round", "round(1)", "round(%e)", "batch(2)|list",
    "batch(2, %e)|list", "slice(2)|list", "indent", "indent(2, true)", "indent(%e)", "wordcount", "e", "safe",
    "groupby(%a)|map('first')|list", "sort(reverse=true)", "sort(attribute=%a)", "sum(attribute=%a)", "count",
    "format(%e)", "center(7)", "truncate(5)", "truncate(5, true, '')", "attr('upper')", "int(%e)", "float(%e)",
    "unique(attribute=%a)|list", "min(attribute=%a)", "max(attribute=%a)", "list|length", "map('list')|list",
    "trim(%e)", "urlencode", "filesizeformat", "forceescape", "map('trim')|join(%e)", "int(0, 16)",
]
TESTS = [
    "defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping",
    "sequence", "iterable", "odd", "even", "divisibleby(2)", "divisibleby %e", "lower", "upper", "callable",
    "eq %e", "ne(%e)", "gt %e", "lt(%e)", "ge %e", "le %e", "in %e", "sameas(none)", "escaped", "equalto(%e)",
]
METHODS = [
    "strip()", "strip(%e)", "lstrip()", "rstrip(%e)", "upper()", "lower()", "title()", "capitalize()", "split()",
    "split(%e)", "split(%e, 1)", "rsplit(%e, 1)", "rsplit(none, 1)", "splitlines()", "startswith(%e)",
    "endswith(%e)", "replace(%e, %e)", "find(%e)", "rfind(%e)", "count(%e)", "index(%e)", "join(%e)", "isdigit()",
    "isalpha()", "isspace()", "islower()", "isupper()", "istitle()", "isalnum()", "isnumeric()", "format(%e)",
    "format(%e, a=%e)", "removeprefix(%e)", "removesuffix(%e)", "zfill(5)", "center(9, '*')", "ljust(%e)",
    "rjust(5)", "partition(%e)", "rpartition(%e)", "swapcase()", "get(%e)", "get('a', %e)", "items()", "keys()",
    "values()", "copy()", "append(%e)", "pop()", "update({})", "casefold()", "expandtabs()", "isidentifier()",
    "split(%e)[0]", "split(%e)[-1]", "keys()|list", "values()|list", "items()|list", "encode()",
]
ATTRIBUTES = ["role", "content", "a", "b", "n", "v", "o", "o.p", "0", "c.1", "nope", "items", "upper"]
SLICES = ["[0]", "[-1]", "[1:]", "[:-1]", "[::2]", "[::-1]", "[1:3]", "[-2:]", "[5]", "['a']", "[%e]", "[%e:%e]",
          "[:%e]", "[2:0:-1]", "[none:]"]
LOOP = ["index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem", "depth",
        "cycle('p', 'q')", "changed(x)", "nope"]


class Maker:
    def __init__(self, rng):
        self.rng = rng
        self.depth = 0
        self.loops = 0
        self.macros = []

    def pick(self, items):
        return self.rng.choice(items)

    def fill(self, text):
        out = ""
        at = 0
        while at < len(text):
            two = text[at:at + 2]
            if two == "%e":
                out += self.expression(self.rng.choice([0, 0, 1]))
            elif two == "%a":
                out += repr(self.pick(ATTRIBUTES))
            elif two == "%t":
                out += repr(self.pick(TESTS).split(" ")[0].split("(")[0])
            else:
                out += text[at]
                at += 1
                continue
            at += 2
        return out

    def expression(self, size):
        rng = self.rng
        if size <= 0:
            kind = rng.random()
            if self.loops and kind < 0.1:
                return "loop." + self.pick(LOOP)
            return self.pick(NAMES) if kind < 0.65 else self.pick(LITERALS)
        kind = rng.randrange(16)
        inner = self.expression(size - 1)
        if kind <= 3:
            return "%s|%s" % (self.group(inner), self.fill(self.pick(FILTERS)))
        if kind == 4:
            return "%s is %s%s" % (self.group(inner), self.pick(["", "not "]), self.fill(self.pick(TESTS)))
        if kind <= 6:
            return "%s.%s" % (self.group(inner), self.fill(self.pick(METHODS)))
        if kind == 7:
            return "%s.%s" % (self.group(inner), self.pick(ATTRIBUTES).split(".")[0])
        if kind == 8:
            return self.group(inner) + self.fill(self.pick(SLICES))
        if kind <= 10:
            operator = self.pick(["+", "-", "*", "/", "//", "%", "~", "+", "~", "**"])
            other = self.expression(rng.randrange(size))
            if operator in ("*", "**"):
                other = self.pick(["0", "1", "2", "-1", "3", "i", "f", "yes", "'a'", "nil"])
            return "%s %s %s" % (self.maybe(inner), operator, self.maybe(other))
        if kind == 11:
            operator = self.pick(["==", "!=", "<", "<=", ">", ">=", "in", "not in", "==", "in"])
            return "%s %s %s" % (self.maybe(inner), operator, self.maybe(self.expression(rng.randrange(size))))
        if kind == 12:
            return "%s %s %s" % (inner, self.pick(["and", "or"]), self.expression(rng.randrange(size)))
        if kind == 13:
            return self.pick(["not %s", "-%s", "(%s)", "(%s,)"]) % self.group(inner)
        if kind == 14:
            text = "%s if %s" % (self.maybe(inner), self.maybe(self.expression(rng.randrange(size))))
            return text + (" else " + self.maybe(self.expression(0)) if rng.random() < 0.8 else "")
        return self.pick(["[%s, %s]", "{'k': %s, 'l': %s}", "(%s, %s)", "dict(k=%s, l=%s)", "[%s] + [%s]"]) % (
            self.maybe(inner), self.maybe(self.expression(rng.randrange(size))))

    def group(self, text):
        return text if text.replace("_", "").isalnum() and not text.isdigit() else "(%s)" % text

    def maybe(self, text):
        return "(%s)" % text if self.rng.random() < 0.7 else text

    def tag(self, inside):
        rng = self.rng
        return "{%%%s %s %s%%}" % (self.pick(["", "", "-", "+"]), inside, self.pick(["", "", "-", "+"]))

    def output(self):
        return "{{%s %s %s}}" % (self.pick(["", "", "-"]), self.expression(self.rng.choice([1, 2, 2, 3])),
                                 self.pick(["", "", "-"]))

    def statement(self, size):
        rng = self.rng
        kind = rng.randrange(13)
        if size <= 0 or kind <= 3:
            return self.output()
        if kind == 4:
            return self.pick(["text", " ", "\n", "  \n ", "\r\n", "é", "{# c #}", "{#- c -#}\n", "  {# c #}\n"])
        if kind == 5:
            text = self.tag("if " + self.expression(2)) + self.body(size - 1)
            if rng.random() < 0.3:
                text += self.tag("elif " + self.expression(1)) + self.body(size - 1)
            if rng.random() < 0.5:
                text += self.tag("else") + self.body(size - 1)
            return text + self.tag("endif")
        if kind <= 7:
            target = self.pick(["x", "x", "x", "y", "x, y"])
            over = self.expression(rng.choice([0, 1, 1, 2]))
            if rng.random() < 0.6:
                over = self.pick(["xs", "ys", "rows", "ms", "range(3)", "d.items()", "nest", "s", "mixed"])
            text = "for %s in %s" % (target, self.group(over))
            if rng.random() < 0.2:
                text += " if " + self.expression(1)
            recursive = rng.random() < 0.05
            self.loops += 1
            inside = self.body(size - 1)
            if recursive:
                inside += "{% if x is iterable and x is not string %}{{ loop(x) }}{% endif %}"
                text += " recursive"
            if rng.random() < 0.15:
                inside += "{% if " + self.expression(1) + " %}{% " + self.pick(["break", "continue"]) + " %}{% endif %}"
                inside += self.output()
            self.loops -= 1
            text = self.tag(text) + inside
            if rng.random() < 0.2:
                text += self.tag("else") + self.body(size - 1)
            return text + self.tag("endfor")
        if kind == 8:
            return self.tag("set %s = %s" % (self.pick(["x", "y", "x, y", "ns.a"]), self.expression(2)))
        if kind == 9:
            name = self.pick(["x", "y"])
            bar = self.pick(["", "", " | upper", " | trim"])
            return self.tag("set " + name + bar) + self.body(size - 1) + self.tag("endset")
        if kind == 10:
            name = "m%d" % len(self.macros)
            loops, self.loops = self.loops, 0
            text = self.tag("macro %s(x, y=%s)" % (name, self.expression(0))) + self.body(size - 1)
            if rng.random() < 0.3:
                text += "{{ caller() if caller }}"
            text += self.tag("endmacro")
            self.loops = loops
            self.macros.append(name)
            call = "%s(%s)" % (name, self.pick(["", "1", "xs, 2", "y=1", "x=s", "1, 2, 3", "*xs", "**d"]))
            if rng.random() < 0.3:
                return text + self.tag("call " + call) + self.body(size - 1) + self.tag("endcall")
            return text + "{{ %s }}" % call
        if kind == 11:
            return self.pick([
                self.tag("with x = %s" % self.expression(1)) + self.body(size - 1) + self.tag("endwith"),
                self.tag("filter " + self.fill(self.pick(["upper", "trim", "replace(%e, 'z')", "length", "tojson"])))
                + self.body(size - 1) + self.tag("endfilter"),
                self.tag("generation") + self.body(size - 1) + self.tag("endgeneration"),
                self.tag("raw") + " {{ x }} " + self.tag("endraw").replace("+%}", "%}")])
        return self.tag("set ns = namespace(a=%s)" % self.expression(1)) + self.tag(
            "set ns.a = " + self.expression(2)) + "{{ ns.a }}"

    def body(self, size):
        return "".join(self.statement(size) for _ in range(self.rng.choice([0, 1, 1, 2, 3])))


def build(directory):
    target = os.path.join(directory, "libkvr-template.so")
    sources = [os.path.join("libkvr", folder, name) for folder, prefix in (("token", "template"), ("base", "buffer"),
                                                                           ("base", "digits"), ("base", "error"))
               for name in sorted(os.listdir(os.path.join(ROOT, "libkvr", folder)))
               if name.startswith(prefix) and name.endswith(".c")]
    subprocess.check_call(["cc", "-D_GNU_SOURCE", "-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-Ilibkvr", "-I.", "-o",
                           target] + sources + ["-lxxhash", "-lm"], cwd=ROOT)
    return target


def same(ours, theirs):
    if ours == theirs:
        return True
    if ours[0] == "error" and any(why in ours[2] for why in (
            "object is not subscriptable", "'slice'", "slice indices must be")):
        return True  # jinja2 folds slices of constants into undefined
    if ours[0] != "error" or theirs[0] != "error":
        return False
    if ours[1] == "compile":
        return theirs[1] in ("TemplateSyntaxError", "TemplateAssertionError", "SyntaxError")
    return ours[1] == theirs[1]


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    wrong = unsupported = errors = 0
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        limits = template_peer.Limits(2000000, 1 << 24, 1 << 28, 0)
        ours = template_peer.Ours(build(directory), limits)
        for number in range(seed, seed + count):
            rng = random.Random(number)
            source = Maker(rng).body(3) if number % 3 else "{{ %s }}" % Maker(rng).expression(4)
            # A list that is indented grows in place there.
            theirs = template_peer.theirs(source, copy.deepcopy(CONTEXT))
            mine = ours.render(source, CONTEXT)
            if theirs[0] == "text" and (" object at 0x" in theirs[1] or "<function " in theirs[1]):
                continue  # an address
            if mine[0] == "error" and (mine[1] == "not supported" or "not supported" in mine[2]):
                unsupported += 1
                continue
            errors += mine[0] == "error"
            if not same(mine, theirs):
                wrong += 1
                if wrong <= 20:
                    print("seed %d\n  %r\n  kvr:    %r\n  jinja2: %r" % (number, source, mine, theirs))
    print("%d templates, %d raised alike, %d not supported, %d differ" % (count, errors, unsupported, wrong))
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
