"""Mutated JSON lines through a kvr filter and through Python's strict reader: which lines are
accepted, and what they say, must be the same.   json_differential.py SEED COUNT TOOL [ARG...]"""
import json
import random
import re
import subprocess
import sys

SCALARS = [0, 1, -1, 1.5, 1e300, "a", 'é\n"\\', "", None, True, False, 12345678901234567890, "\x01", "😀"]


def make(depth=0):
    chance = random.random()
    if depth > 3 or chance < 0.35:
        return random.choice(SCALARS)
    if chance < 0.65:
        return [make(depth + 1) for _ in range(random.randint(0, 4))]
    return {random.choice(["a", "b c", "é", ""]): make(depth + 1) for _ in range(random.randint(0, 4))}


def mutate(line):
    line = bytearray(line)
    for _ in range(random.choice([0, 1, 1, 2, 3])):
        place = random.randrange(len(line))
        chance = random.random()
        if chance < 0.4:
            line[place] = random.choice(b'{}[]:,"\\ 0123.eE-tfnu\xc3\xa9\x00\x7f\xff')
        elif chance < 0.7 and len(line) > 1:
            del line[place]
        else:
            line.insert(place, random.choice(b'{}[]:,"\\ 01-.e'))
    return bytes(line).replace(b"\n", b" ").replace(b"\r", b" ")


def refuse(constant):
    raise ValueError(constant)


def strict(line):
    try:
        return json.loads(line.decode(), parse_constant=refuse)
    except (ValueError, RecursionError):
        return None


def main():
    random.seed(int(sys.argv[1]))
    lines = []
    for _ in range(int(sys.argv[2])):
        separators = random.choice([(",", ":"), (", ", ": ")])
        text = json.dumps({"k": make(), "x": make()}, ensure_ascii=random.random() < 0.5, separators=separators)
        lines.append(mutate(text.encode()))
    ran = subprocess.run(sys.argv[3:], input=b"\n".join(lines) + b"\n", capture_output=True, timeout=120)
    bad = {int(number) for number in re.findall(rb"stdin:(\d+): ", ran.stderr)}
    output = iter(ran.stdout.splitlines())
    for number, line in enumerate(lines, 1):
        if not line.strip(b" \t"):
            continue
        value = strict(line.strip(b" \t"))
        if isinstance(value, dict) == (number in bad):
            sys.exit(f"line {number}: accepted by one reader only: {line}")
        if number in bad:
            continue
        if "event" in value:
            continue
        passed = json.loads(next(output))
        if any(passed.get(name, refuse) != value[name] for name in value if name not in ("match", "route")):
            sys.exit(f"line {number}: changed: {line}")
    if next(output, None) is not None:
        sys.exit("more lines came out than went in")


main()
