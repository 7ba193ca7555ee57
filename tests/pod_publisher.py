"""Publishers that connect, as llm-d has them: pod_publisher.py PORT FILE TOPIC...
Sends the messages of a list of frames under each topic, each over a connection of its own, and
waits until the other side has had time to read them."""
import socket
import struct
import sys
import time

from frames import read


def frame(body, more):
    return struct.pack(">BQ", 2 | more, len(body)) + body


peers = []
for topic in sys.argv[3:]:
    for _ in range(400):
        try:
            peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
            break
        except OSError:
            time.sleep(0.05)
    else:
        sys.exit("nobody listens")
    peer.sendall(b"\xff" + 8 * b"\0" + b"\x7f\x03\0" + b"NULL".ljust(20, b"\0") + 32 * b"\0")
    got = b""
    while len(got) < 64:
        got += peer.recv(64 - len(got))
    ready = b"\5READY\x0bSocket-Type\0\0\0\3PUB"
    peer.sendall(bytes([4, len(ready)]) + ready)
    while b"\0\1\1" not in got:  # the subscription to everything
        got += peer.recv(1000)
    peers.append((peer, topic.encode()))
for frames in read(sys.argv[2]):
    for peer, topic in peers:
        peer.sendall(b"".join(frame(part, i < 2) for i, part in enumerate([topic, *frames[1:]])))
time.sleep(0.3)
