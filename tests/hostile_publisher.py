"""A publisher that speaks ZMTP and means no good: hostile_publisher.py KIND CONNECTIONS
Prints its port, attacks so many connections until they are closed, and prints "done". KIND: endless (a message whose frames never
end), empty (the same with frames without bytes), huge (a frame of a terabyte), ranks (messages of
other ranks and numbers, all with gaps)."""
import socket
import struct
import sys


def frame(body, more=False, size=None):
    return struct.pack(">BQ", 2 | more, len(body) if size is None else size) + body


def greet(peer):
    peer.sendall(b"\xff" + 8 * b"\0" + b"\x7f\x03\0" + b"NULL".ljust(20, b"\0") + 32 * b"\0")
    got = b""
    while len(got) < 64:
        part = peer.recv(64 - len(got))
        if not part:
            raise OSError("gone")
        got += part
    ready = b"\5READY\x0bSocket-Type\0\0\0\3PUB"
    peer.sendall(bytes([4, len(ready)]) + ready)
    peer.recv(1000)


def ranks():
    for first in range(0, 400000, 2000):
        data = b""
        for number in range(first + 2, first + 2002, 2):
            payload = b"\x93\x01\x90\xcd" + struct.pack(">H", number % 1000)
            data += frame(b"", True) + frame(struct.pack(">Q", number), True) + frame(payload)
        yield data


def attack(kind):
    if kind == "ranks":
        yield from ranks()
        return
    data = {"endless": frame(b"x" * 65536, True), "empty": b"\1\0" * 32768, "huge": frame(b"", size=1 << 40)}[kind]
    while True:
        yield data


kind, wanted = sys.argv[1], int(sys.argv[2])
server = socket.create_server(("127.0.0.1", 0))
server.settimeout(60)
print(server.getsockname()[1], flush=True)
attacked = 0
for _ in range(10 * wanted):
    peer, _ = server.accept()
    peer.settimeout(60)
    sent = 0
    try:
        greet(peer)
        for data in attack(kind):
            peer.sendall(data)
            sent += len(data)
            if sent > 1 << 30:
                sys.exit("it takes a gigabyte")
    except OSError:
        pass
    peer.close()
    attacked += sent > 0  # a busy machine may close one before that; it comes again
    if attacked == wanted:
        break
print("done" if attacked == wanted else "never let in", flush=True)
