#!/usr/bin/env python3
"""Writes template_unicode_table.h: how Python's str sees Unicode, asked from the running Python.

python3 libkvr/token/template_unicode_table.py > libkvr/token/template_unicode_table.h
"""
import sys
import unicodedata

# In the order of the POINT_* of template_internal.h.
BITS = ["PRINTABLE", "ALPHA", "UPPER", "LOWER", "TITLE", "CASED", "IGNORABLE", "DECIMAL", "DIGIT",
        "NUMERIC", "ID_START", "ID_CONTINUE"]


def bits(point):
    c = chr(point)
    last_sigma = lambda text: text.lower()[-1] == "\u03c2"
    firmly_cased = last_sigma(c + "\u03a3")
    flags = [
        c.isprintable(), c.isalpha(), c.isupper(), c.islower(), c.istitle() and not c.isupper(),
        (c + "a").title()[-1] == "a", last_sigma("A" + c + "\u03a3") and not firmly_cased,
        c.isdecimal(), c.isdigit(), c.isnumeric(), c.isidentifier(), ("a" + c).isidentifier(),
    ]
    assert len(flags) == len(BITS)
    return sum(1 << i for i, flag in enumerate(flags) if flag)


def mapped(name, point):
    c = chr(point)
    if name == "upper":
        return c.upper()
    if name == "lower":
        return c.lower() if point != 0x3a3 else "\u03c3"
    if name == "title":
        return c.title()
    return c.casefold()


def case_ranges(name):
    """Runs of equal distance, with a stride of 1 or 2, and those that become several characters."""
    ranges, several = [], []
    for point in range(0x110000):
        if 0xd800 <= point < 0xe000:
            continue
        result = mapped(name, point)
        if len(result) > 1:
            several.append((point, [ord(c) for c in result]))
        elif result != chr(point):
            delta = ord(result) - point
            if ranges:
                first, last, stride, same = ranges[-1]
                if same == delta and (point - last == stride or (first == last and point - last == 2)):
                    ranges[-1] = (first, point, point - last, delta)
                    continue
            ranges.append((point, point, 1, delta))
    return ranges, several


def rows(items, per_line):
    for i in range(0, len(items), per_line):
        print("    " + " ".join(items[i:i + per_line]))


print("/* Made by template_unicode_table.py from Unicode %s as Python %d.%d has it; do not edit. */"
      % (unicodedata.unidata_version, *sys.version_info[:2]))
starts, flags = [], []
for point in range(0x110000):
    value = 0 if 0xd800 <= point < 0xe000 else bits(point)
    if not flags or flags[-1] != value:
        starts.append(point)
        flags.append(value)
print("\n/* clang-format off */")
print("static const uint32_t run_starts[] = {")
rows(["0x%x," % s for s in starts], 12)
print("};\n\nstatic const uint16_t run_bits[] = {")
rows(["0x%x," % f for f in flags], 16)
print("};\n\nstruct case_range {\n    uint32_t first, last, stride;\n    int32_t delta;\n};")
print("struct case_several {\n    uint32_t point, out[3];\n};")
for name in ("upper", "lower", "title", "fold"):
    ranges, several = case_ranges(name)
    print("\nstatic const struct case_range %s_ranges[] = {" % name)
    rows(["{0x%x,0x%x,%d,%d}," % r for r in ranges], 4)
    print("};\nstatic const struct case_several %s_several[] = {" % name)
    rows(["{0x%x,{%s}}," % (p, ",".join("0x%x" % o for o in out)) for p, out in several], 4)
    print("};")
print("/* clang-format on */")
