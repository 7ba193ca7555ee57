"""bench_template's work done by jinja2: template_jinja2.py CONFIG|TEMPLATE MESSAGE_BYTES TURNS.

Parses the JSON of the messages and renders them each time, as a server in Python would; one JSON line.
"""
import gzip
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz"))
sys.dont_write_bytecode = True
import template_peer as peer  # noqa: E402

PROSE = ("The cache of one worker holds what another has not seen;\nits \"prefix\" is a tree \u2013 and routing is a "
         "walk in it. Na\u00efve hashing would not know.\tSo we ask first. ")


def main():
    path, size, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        source = file.read()
    names = {}
    if ".json" in path:
        config = json.loads(source)
        source = config["chat_template"]
        for name, value in config.items():
            if name.endswith("_token") and isinstance(value, (str, dict)):
                names[name] = value if isinstance(value, str) else value["content"]
    content = PROSE * -(-size // len(PROSE.encode()))
    messages = json.dumps([{"role": "assistant" if i % 2 else "user", "content": content} for i in range(turns)],
                          ensure_ascii=False)
    template = peer.ENVIRONMENT.from_string(source)
    start, seconds, rounds, rendered = time.process_time(), 0.0, 0, 0
    while seconds < 1:
        text = template.render(messages=json.loads(messages), tools=None, documents=None, add_generation_prompt=True,
                               **names)
        rounds += 1
        rendered += len(text.encode())
        seconds = time.process_time() - start
    print(json.dumps({"bench": "jinja2", "turns": turns, "message_bytes": size, "text_bytes": rendered // rounds,
                      "mb_per_s": round(rendered / seconds / 1e6, 1),
                      "us_per_rendering": round(seconds / rounds * 1e6, 2)}))


main()
