#!/usr/bin/env python3
"""Peers for evict.sh.

evict_peer.py convert TRACE.jsonl[.gz] OUT.oracleGeneral   block accesses of a trace
evict_peer.py run FILE.oracleGeneral REPEATS NAME@CAPACITY...   libCacheSim's policies, NDJSON
"""
import gzip
import json
import struct
import sys
import time


def convert(source, target):
    """time = the request's number, size = the tokens of the block."""
    opened = gzip.open(source, "rt") if source.endswith(".gz") else open(source)
    ids, places = [], []
    with opened as lines:
        for number, line in enumerate(lines):
            record = json.loads(line)
            size = record.get("block_size", 64 if "bs64" in source else 512)
            left = record["input_length"]
            for block in record["hash_ids"]:
                ids.append(block)
                places.append((number, min(size, max(left, 0))))
                left -= size
    following, last = [0] * len(ids), {}
    for i in range(len(ids) - 1, -1, -1):
        following[i] = last.get(ids[i], -1)
        last[ids[i]] = i
    with open(target, "wb") as out:
        for (number, tokens), block, after in zip(places, ids, following):
            out.write(struct.pack("<IQIq", number, block, tokens, after))


def run(path, repeats, cells):
    import libcachesim

    for cell in cells:
        name, capacity = cell.split("@")
        best, misses = 1e9, None
        for _ in range(repeats):
            reader = libcachesim.TraceReader(
                path,
                libcachesim.TraceType.ORACLE_GENERAL_TRACE,
                libcachesim.ReaderInitParam(ignore_obj_size=True),
            )
            total = reader.get_num_of_req()
            cache = getattr(libcachesim, name)(int(capacity), hashpower=18)
            started = time.process_time()
            ratio, _ = cache.process_trace(reader)
            best = min(best, time.process_time() - started)
            misses = round(ratio * total)
        print(
            json.dumps(
                dict(tool="libcachesim", policy=name, capacity=int(capacity), accesses=total,
                     misses=misses, maccess_s=round(total / best / 1e6, 2))
            ),
            flush=True,
        )


if sys.argv[1] == "convert":
    convert(sys.argv[2], sys.argv[3])
else:
    run(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
