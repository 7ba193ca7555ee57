#!/usr/bin/env python3
"""KV events in Python, as routers written in it read them.

  events_peer.py decode FILE           frames decoded into structs like vLLM's own by msgspec: blocks/s
  events_peer.py index FILE WHO CORE BIN  the frames over TCP to WHO until a query finds the last prompt:
                                       "dynamo", ai-dynamo-runtime's own indexer service (one thread
                                       of it indexes), or "kvr", kvr-events | kvr-match of BIN; all
                                       of their processes on one core, and their processor time
  events_peer.py published BIN         event lines published by kvr-events of BIN, in both layouts, and
                                       found by dynamo's indexer
  events_peer.py read PUB REPLAY N     reads N stored blocks of a published stream over pyzmq, then
                                       asks for a replay of all of it, and checks both
"""
import importlib.metadata
import json
import os
import queue
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from typing import Any, Optional, Union

import msgspec
import zmq


class BlockStored(msgspec.Struct, tag=True, omit_defaults=True):
    block_hashes: list[Union[int, bytes]]
    parent_block_hash: Optional[Union[int, bytes]]
    token_ids: list[int]
    block_size: int
    lora_id: Optional[int] = None
    medium: Optional[str] = None
    lora_name: Optional[str] = None
    extra_keys: Optional[list[Any]] = None
    group_idx: Optional[int] = None
    kv_cache_spec_kind: Optional[str] = None


class BlockRemoved(msgspec.Struct, tag=True, omit_defaults=True):
    block_hashes: list[Union[int, bytes]]
    medium: Optional[str] = None
    group_idx: Optional[int] = None


class AllBlocksCleared(msgspec.Struct, tag=True):
    pass


class Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[Union[BlockStored, BlockRemoved, AllBlocksCleared]]
    data_parallel_rank: Optional[int] = None


decoder = msgspec.msgpack.Decoder(type=Batch)


def payloads(path):
    data, at = open(path, "rb").read(), 4
    for _ in range(struct.unpack(">I", data[:4])[0]):
        frames = struct.unpack_from(">I", data, at)[0]
        at += 4
        for _ in range(frames):
            length = struct.unpack_from(">I", data, at)[0]
            payload = data[at + 4 : at + 4 + length]
            at += 4 + length
        yield payload


def decode(path):
    messages = list(payloads(path))
    start, blocks = time.process_time(), 0
    for payload in messages:
        for event in decoder.decode(payload).events:
            if not isinstance(event, AllBlocksCleared):
                blocks += len(event.block_hashes)
    took = time.process_time() - start
    print(json.dumps({"figure": "decode alone", "program": "msgspec " + msgspec.__version__, "blocks": blocks, "blocks_per_s": round(blocks / took)}))


def processor_s(pids):
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Dynamo:
    name = "dynamo.indexer"

    def __init__(self, endpoint, core, _):
        self.name += " " + importlib.metadata.version("ai-dynamo-runtime")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "dynamo.indexer", "--block-size", "16", "--port", str(self.port), "--threads", "1", "--workers", "1=" + endpoint]
        self.processes = [subprocess.Popen(["taskset", "-c", core, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]

    def query(self, tokens):
        body = json.dumps({"token_ids": tokens, "model_name": "default"}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/query", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                scores = json.load(answer).get("scores", {})
        except OSError:  # not up yet
            return 0
        return max((held for ranks in scores.values() for held in ranks.values()), default=0)


class Kvr:
    name = "kvr-events | kvr-match"

    def __init__(self, endpoint, core, programs):
        fifo = os.path.join(tempfile.mkdtemp(), "events")
        os.mkfifo(fifo)

        def start(name, *arguments, **pipes):
            return subprocess.Popen(["taskset", "-c", core, os.path.join(programs, name), *arguments], **pipes)

        ids = start("kvr-tokenize", "-b", "16", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        match = start("kvr-match", "-m", fifo, stdin=ids.stdout, stdout=subprocess.PIPE)
        events = start("kvr-events", "-q", "-o", fifo, "w0=" + endpoint)
        self.processes, self.to, self.answers = [events, match, ids], ids.stdin, queue.SimpleQueue()
        threading.Thread(target=self.read, args=[match.stdout], daemon=True).start()

    def read(self, lines):
        for line in lines:  # events are passed on too
            if not line.startswith(b'{"event"'):
                self.answers.put(json.loads(line)["match"].get("w0", 0))

    def query(self, tokens):
        self.to.write(json.dumps({"token_ids": tokens + [1]}).encode() + b"\n")
        self.to.flush()
        return self.answers.get(timeout=60)


def index(path, who, core, programs):
    messages = list(payloads(path))
    while any(isinstance(event, AllBlocksCleared) for event in decoder.decode(messages[-1]).events):
        messages.pop()
    blocks = sum(len(event.block_hashes) for payload in messages for event in decoder.decode(payload).events)
    last = decoder.decode(messages[-1]).events[-1].token_ids
    publisher = zmq.Context().socket(zmq.XPUB)
    publisher.setsockopt(zmq.SNDHWM, 0)
    publisher.setsockopt(zmq.RCVTIMEO, 30000)
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    target = {"dynamo": Dynamo, "kvr": Kvr}[who](f"tcp://127.0.0.1:{port}", core, programs)
    pids = [process.pid for process in target.processes]
    try:
        publisher.recv()
        time.sleep(1)
        assert target.query(last) == 0
        before, start = processor_s(pids), time.monotonic()
        for number, payload in enumerate(messages):
            publisher.send_multipart([b"", number.to_bytes(8, "big"), payload])
        while target.query(last) != len(last):
            assert time.monotonic() < start + 120, "the last prompt is not found"
            time.sleep(0.05)
        took, busy = time.monotonic() - start, processor_s(pids) - before
    finally:
        for process in target.processes:
            process.kill()
            process.wait()
    print(json.dumps({"figure": "socket to index", "program": target.name, "blocks": blocks, "blocks_per_s": round(blocks / took), "blocks_per_processor_s": round(blocks / busy)}), flush=True)


def published(programs):
    for layout in "map", "array":
        with socket.create_server(("127.0.0.1", 0)) as free:
            endpoint = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        tokens = [7 * i % 1000 for i in range(512)]
        line = {"event": "stored", "worker": "w0", "hash_ids": list(range(1, 33)), "parent": None, "block_size": 16, "medium": "gpu", "token_ids": tokens}
        publisher = subprocess.Popen([os.path.join(programs, "kvr-events"), "-q", "--publish", endpoint, "--layout", layout, "--wait", "1", "--linger", "60s"], stdin=subprocess.PIPE)
        publisher.stdin.write(json.dumps(line).encode() + b"\n")
        publisher.stdin.close()
        target, end = Dynamo(endpoint, "0-" + str(os.cpu_count() - 1), None), time.monotonic() + 30
        try:
            while target.query(tokens) != 512:
                assert time.monotonic() < end, "not found"
                time.sleep(0.1)
        finally:
            for process in [*target.processes, publisher]:
                process.kill()
                process.wait()
        print(f"32 blocks published as {layout}s, and found by {target.name}", flush=True)


def read(publisher, replay, count):
    context = zmq.Context()
    subscriber = context.socket(zmq.SUB)
    subscriber.connect(publisher)
    subscriber.setsockopt(zmq.SUBSCRIBE, b"")
    subscriber.setsockopt(zmq.RCVTIMEO, 10000)
    hashes, wanted = [], 0
    while len(hashes) < count:
        topic, sequence, payload = subscriber.recv_multipart()
        assert topic == b"kv-events" and int.from_bytes(sequence, "big") == wanted
        wanted += 1
        for event in decoder.decode(payload).events:
            assert len(event.token_ids) == event.block_size * len(event.block_hashes)
            hashes += event.block_hashes
    assert hashes == list(range(1, count + 1))
    dealer = context.socket(zmq.DEALER)
    dealer.connect(replay)
    dealer.setsockopt(zmq.RCVTIMEO, 10000)
    dealer.send_multipart([b"", (0).to_bytes(8, "big")])
    again = []
    while True:
        frames = dealer.recv_multipart()
        if frames[2] == b"\xff" * 8:
            break
        again += [h for event in decoder.decode(frames[3]).events for h in event.block_hashes]
    assert again == hashes
    print(f"{count} blocks in {wanted} messages, and all of them again by replay")


if sys.argv[1] == "decode":
    decode(sys.argv[2])
elif sys.argv[1] == "published":
    published(sys.argv[2])
elif sys.argv[1] == "index":
    index(*sys.argv[2:6])
else:
    read(sys.argv[2], sys.argv[3], int(sys.argv[4]))
