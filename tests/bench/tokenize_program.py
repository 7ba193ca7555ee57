#!/usr/bin/env python3
"""kvr-tokenize, reading and writing NDJSON, beside the library that it is made of: MB/s of text by
processor time, both over the same texts once, in turns, each in a fresh process, the best of some
rounds. Start-up (measured with one short line) is not counted; it is printed by itself.

    tokenize_program.py VOCABULARY_FILE TEXTS.ndjson PROMPTS.ndjson WORK_FOLDER [ROUNDS]
"""
import json
import os
import resource
import subprocess
import sys

PROGRAM, LIBRARY = "build/bin/kvr-tokenize", "build/bench/bench_tokenize"
MODES = {"--count": ["--count"], "default": [], "--ids": ["--ids"]}


def processor_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    vocabulary, texts, prompts, folder = sys.argv[1:5]
    rounds = int(sys.argv[5]) if len(sys.argv) > 5 else 7
    os.environ["HOME"] = os.environ["XDG_CACHE_HOME"] = os.path.abspath(folder)
    program, line = [PROGRAM, "-t", vocabulary], os.path.join(folder, "line.ndjson")
    with open(line, "w", encoding="utf8") as out:
        out.write('{"prompt":"Hello, world"}\n')
    first = min(processor_seconds(program + ["--no-cache", line]) for _ in range(3))
    processor_seconds(program)  # keeps the compiled vocabulary
    start, library, size, seconds = [], [], 0, {mode: [] for mode in MODES}
    for _ in range(rounds):
        run = subprocess.run([LIBRARY, vocabulary, texts, "pass"], capture_output=True, check=True)
        result = json.loads(run.stdout)
        size = result["bytes"] / 1e6
        library.append(result["mb_s"])
        start.append(processor_seconds(program + [line]))
        for mode, options in MODES.items():
            seconds[mode].append(processor_seconds(program + options + [prompts]))
    own = min(start)
    rates = {mode: size / (min(times) - own) for mode, times in seconds.items()}
    print(json.dumps({"vocabulary": os.path.basename(vocabulary), "start_ms": round(own * 1e3, 1),
                      "start_without_cache_ms": round(first * 1e3, 1), "library_mb_s": max(library),
                      "program_mb_s": {mode: round(rate, 1) for mode, rate in rates.items()},
                      "program_over_library": {mode: round(rate / max(library), 2)
                                               for mode, rate in rates.items()}}), flush=True)


main()
