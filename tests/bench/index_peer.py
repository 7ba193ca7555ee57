#!/usr/bin/env python3
"""The RadixTree of ai-dynamo-runtime on the workload that bench_index wrote.

  index_peer.py WORKLOAD WORKERS BLOCK_TOKENS REPEAT

WORKLOAD: one line a request, "worker held id...": the blocks after the first `held` are new on the
worker. Each becomes one Stored event, made before the clock starts. Processor time of all its threads, which share one core here; best of
REPEAT, one JSON line.
The floors are what a call costs that does almost nothing in the tree: most of a small request's
time goes there, through the Python binding.
"""
import ctypes
import gc
import importlib.metadata
import json
import os
import sys
import time

from dynamo._core import RadixTree

MASK = (1 << 64) - 1


def mix(word):
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def resident_bytes():
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def read_workload(path):
    queries, events, stored = [], [], 0
    with open(path) as file:
        for number, line in enumerate(file):
            worker, held, *ids = map(int, line.split())
            local = [mix(block) for block in ids]
            chain = [mix(block ^ 0xABCDEF0123456789) for block in ids]
            queries.append(local)
            if held == len(ids):
                continue
            event = {"event_id": number, "dp_rank": 0, "data": {"stored": {
                "parent_hash": chain[held - 1] if held else None,
                "blocks": [{"block_hash": chain[i], "tokens_hash": local[i]} for i in range(held, len(ids))]}}}
            events.append((worker, json.dumps(event, separators=(",", ":")).encode()))
            stored += len(ids) - held
    return queries, events, stored


def fill(tree, events):
    for worker, event in events:
        tree.apply_event(worker, event)
    tree.find_matches([])  # waits for the tree's own thread


def best(repeat, work):
    least = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        work()
        least = min(least, time.process_time() - start)
    return least


def main():
    path, workers, block_tokens, repeat = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    queries, events, stored = read_workload(path)
    gc.collect()
    gc.disable()
    tree = RadixTree()
    fill(tree, [])
    before = resident_bytes()
    start = time.process_time()
    fill(tree, events)
    fill_s = time.process_time() - start
    held = resident_bytes() - before
    for _ in range(repeat - 1):
        other = RadixTree()
        fill_s = min(fill_s, best(1, lambda: fill(other, events)))
        del other
    find_s = best(repeat, lambda: [tree.find_matches(query) for query in queries])
    matched = 0
    for query in queries:
        scores = tree.find_matches(query).scores
        matched += max(scores.values()) if scores else 0
    empty, calls = RadixTree(), 20000
    cleared = b'{"event_id":0,"data":"cleared","dp_rank":0}'

    def clear_often():
        for _ in range(calls):
            empty.apply_event(1, cleared)
        empty.find_matches([])

    print(json.dumps({
        "program": "ai-dynamo-runtime " + importlib.metadata.version("ai-dynamo-runtime"),
        "block_tokens": block_tokens, "workers": workers, "requests": len(queries), "pairs": stored,
        "stored_per_s": round(stored / fill_s), "finds_per_s": round(len(queries) / find_s),
        "matched_blocks_per_s": round(matched / find_s), "matched_blocks": matched,
        "bytes_per_pair": round(held / stored, 2),
        "apply_floor_us": round(best(repeat, clear_often) / calls * 1e6, 3),
        "find_floor_us": round(
            best(repeat, lambda: [empty.find_matches([]) for _ in range(calls)]) / calls * 1e6, 3),
    }))


main()
