"""Edits lists of frames: frames.py IN OUT OPERATION... with the messages' numbers.
drop:A-B  double:N  double:all  swap:A,B  keep:A-B  junk:N (its payload cut)"""
import struct
import sys


def read(path):
    data = open(path, "rb").read()
    at, messages = 4, []

    def number():
        nonlocal at
        at += 4
        return struct.unpack(">I", data[at - 4 : at])[0]

    for _ in range(struct.unpack(">I", data[:4])[0]):
        frames = []
        for _ in range(number()):
            length = number()
            frames.append(data[at : at + length])
            at += length
        messages.append(frames)
    return messages


def write(path, messages):
    with open(path, "wb") as file:
        file.write(struct.pack(">I", len(messages)))
        for frames in messages:
            file.write(struct.pack(">I", len(frames)))
            for frame in frames:
                file.write(struct.pack(">I", len(frame)) + frame)


def main():
    messages = read(sys.argv[1])
    for operation in sys.argv[3:]:
        kind, _, numbers = operation.partition(":")
        if kind == "double":
            messages = [m for i, f in enumerate(messages) for m in [f] * (1 + (numbers in ("all", str(i))))]
            continue
        first, _, last = numbers.replace(",", "-").partition("-")
        first, last = int(first), int(last or first)
        if kind == "drop":
            del messages[first : last + 1]
        elif kind == "keep":
            messages = messages[first : last + 1]
        elif kind == "swap":
            messages[first], messages[last] = messages[last], messages[first]
        elif kind == "junk":
            messages[first] = messages[first][:2] + [messages[first][2][:-3]]
        elif kind == "append":
            messages += read(sys.argv[1])
        else:
            sys.exit("unknown " + operation)
    write(sys.argv[2], messages)


if __name__ == "__main__":
    main()
