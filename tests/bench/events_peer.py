#!/usr/bin/env python3
"""KV events in Python, as routers written in it read them.

  events_peer.py decode FILE           frames decoded into structs like vLLM's own by msgspec: blocks/s
  events_peer.py read PUB REPLAY N     reads N stored blocks of a published stream over pyzmq, then
                                       asks for a replay of all of it, and checks both
"""
import json
import struct
import sys
import time
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
else:
    read(sys.argv[2], sys.argv[3], int(sys.argv[4]))
