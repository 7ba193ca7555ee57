#!/usr/bin/env python3
"""Chats rendered by kvr-tokenize --render and by jinja2, compared (pip install jinja2==3.1.6).

    chat_differential.py FOLDER [SECONDS [SEED]]

FOLDER holds chat templates as models ship them: NAME.jinja, or tokenizer_config.json files, gzip or not.
Conversations are made at random: roles in and out of order, tools, calls with their arguments as objects
and as text, results, reasoning, parts, images, nulls, and the arguments that templates know. Texts must be
equal, also where the last message is to be continued, as transformers does it; where jinja2 raises, kvr
must have an error. Prints what differs; the exit status is 1 if anything did.
"""
import copy
import glob
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time

import jinja2

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import template_peer  # noqa: E402

PROGRAM = os.path.join(os.environ.get("BUILD", "build"), "bin", "kvr-tokenize")
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "image_token": "<image>"}
TAG = "CONTINUE_FINAL_MESSAGE_TAG "
TEXTS = ["Hello", "  padded  ", "\n\nlines\n", "", "日本語 テキスト", "emoji 😀 é", "<think>why</think> answer", "quote \"q\" 'a' \\ back",
         "<|im_start|>user", "{\"a\": 1}", "tab\there", "a\r\nb", "&<>\u2028", "{{ not }} {% jinja %}", "[TOOL_CALLS]", "\u00a0nbsp\u00a0", "0", "true"]
ARGUMENTS = [{}, {"city": "Paris"}, {"city": "Zürich \"x\"", "n": 3}, {"n": 1.0, "big": 12345678901234567890, "e": 1e-7, "t": True, "x": None},
             {"s": "multi\nline", "u": "😀", "l": [1, "a", {"k": []}]}, {"o": {"a": {"b": 1}}}]
KEYWORDS = {"enable_thinking": [True, False], "thinking": [True, False], "reasoning_effort": ["low", "high", None], "builtin_tools": [["browser"], ["python"], []],
            "model_identity": ["You are X."], "tools_in_user_message": [True, False], "date_string": ["01 Jan 2025"], "keep_thinking": [True],
            "clear_thinking": [True, False], "preserve_thinking": [True], "add_vision_id": [True], "thinking_budget": [0, 512, -1],
            "documents": [[{"title": "T", "text": "body"}]], "xml_tools": [["x"]], "safety_mode": ["NONE"], "custom_tools": [None],
            "drop_thinking": [True, False], "thinking_mode": ["chat", "thinking"], "bos_token": ["<B>"], "add_generation_prompt": [False]}
ROLES = ["user", "assistant", "tool", "system", "developer", "ipython", "function", "environment", "weird"]


def rarely(chance):
    return random.random() < chance


def content():
    kind = random.random()
    if kind < 0.72:
        return random.choice(TEXTS)
    if kind < 0.8:
        return None
    parts = [{"type": "text", "text": random.choice(TEXTS)}, {"type": "text", "text": "more"}, {"type": "image"},
             {"type": "image_url", "image_url": {"url": "data:x"}}, {"type": "audio", "audio": "x"}, {"type": "video"}, "bare", {"text": "untyped"}]
    return [random.choice(parts[:random.choice([2, 4, 8])]) for _ in range(random.randint(0, 3))]


def tool():
    kind = random.choice(["integer", ["integer", "null"], "number"])
    function = {"name": random.choice(["get_weather", "add"]), "description": random.choice(TEXTS),
                "parameters": {"type": "object", "properties": {
                    "city": {"type": "string", "description": "The <b>city</b> & more"}, "é": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "n": {"type": kind, "default": random.choice([1, 1.5, None, True]), "enum": [1, 2]},
                    "list": {"type": "array", "items": {"type": "string"}},
                    "object": {"type": "object", "properties": {"z": {"type": "boolean"}}, "required": ["z"]}},
                    "required": random.choice([["city"], [], ["city", "n"]])}}
    for name in ("description", "parameters"):
        if rarely(0.1):
            function.pop(name)
    if rarely(0.1):
        function["return"] = {"type": "string", "description": "r"}
    return function if rarely(0.1) else {"type": "function", "function": function}


def call(number):
    arguments = random.choice(ARGUMENTS)
    if rarely(0.35):
        arguments = json.dumps(arguments, ensure_ascii=False)
    function = {"name": random.choice(["get_weather", "add"]), "arguments": None if rarely(0.03) else arguments}
    made = {"id": random.choice([f"call_{number}", f"abcdefgh{number % 10}", f"functions.f:{number}"]), "type": "function", "function": function}
    for name in ("id", "type"):
        if rarely(0.07):
            made.pop(name)
    return function if rarely(0.05) else made


def message(role):
    made = {"role": role, "content": content()}
    if rarely(0.02):
        made.pop("content")
    if rarely(0.04):
        made["name"] = "bob"
    if role == "assistant":
        if rarely(0.4):
            made["tool_calls"] = [call(number) for number in range(random.choice([0, 1, 1, 2]))]
            if rarely(0.6):
                made["content"] = random.choice([None, ""])
        elif rarely(0.1):
            made["tool_calls"] = random.choice([None, []])
        if rarely(0.25):
            made[random.choice(["reasoning_content", "thinking", "reasoning"])] = random.choice([*TEXTS, None])
    if role in ("tool", "ipython"):
        if rarely(0.7):
            made["tool_call_id"] = random.choice(["call_0", "abcdefgh0", "functions.f:0"])
        if rarely(0.3):
            made["name"] = "get_weather"
        if rarely(0.15):
            made["content"] = random.choice([{"temp": 20.5, "ok": True}, [{"type": "text", "text": "r"}], [{"output": "x"}]])
    return made


def request(number):
    messages = [message(random.choice(["system", "system", "system", "developer"]))] if rarely(0.55) else []
    role = "user"
    for _ in range(random.randint(0 if rarely(0.1) else 1, 5)):
        if rarely(0.07):
            role = random.choice(ROLES)
        messages.append(message(role))
        calls = messages[-1].get("tool_calls")
        role = {"user": "assistant", "assistant": "tool" if calls else "user", "tool": random.choice(["assistant", "tool", "user"])}.get(role, "user")
    made = {"id": number, "messages": messages}
    if rarely(0.4):
        made["tools"] = [tool() for _ in range(random.randint(0 if rarely(0.15) else 1, 3))]
    made["add_generation_prompt"] = rarely(0.7)
    if rarely(0.2):
        messages.append({"role": "assistant", "content": random.choice(["It is ", " ok", "x\n", "  ", [{"type": "text", "text": "part "}]])})
        made.update(add_generation_prompt=False, continue_final_message=True)
    keywords = {name: random.choice(values) for name, values in KEYWORDS.items() if rarely(0.06)}
    if keywords:
        made["chat_template_kwargs"] = keywords
    return made


def wanted(template, line):
    """What transformers' apply_chat_template gives, or None where it raises."""
    line = copy.deepcopy(line)
    messages, last = line["messages"], None
    try:
        if line.get("continue_final_message"):
            parts = messages[-1]["content"]
            holder, key = (messages[-1], "content") if isinstance(parts, str) else ([p for p in parts if "text" in p][-1], "text")
            last = holder[key]
            holder[key] += TAG
        context = {"tools": line.get("tools"), "documents": None, "add_generation_prompt": line["add_generation_prompt"], **TOKENS,
                   **line.get("chat_template_kwargs", {}), "messages": messages}
        text = template.render(**context)
    except Exception:  # whatever a template can raise
        return None
    if last is None:
        return text
    if last.strip() not in text or TAG.strip() not in text:
        return None
    at = text.rindex(TAG.strip())
    return text[:at] if text[at:at + len(TAG)] == TAG else text[:at].rstrip()


def templates(folder):
    for path in sorted(glob.glob(folder + "/*")):
        name = path.removesuffix(".gz")
        if not name.endswith((".jinja", "tokenizer_config.json")):
            continue
        with (gzip.open if path != name else open)(path, "rt", encoding="utf-8", newline="") as file:
            text = file.read()
        source = json.loads(text).get("chat_template") if name.endswith(".json") else text
        for part in source if isinstance(source, list) else [{"name": "", "template": source}]:
            if isinstance(part["template"], str):
                yield os.path.basename(name) + part["name"], part["template"]


def compare(name, source, lines, folder):
    """How many were rendered, and how many differ."""
    path = os.path.join(folder, "template.jinja")
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(source)
    try:
        template = template_peer.ENVIRONMENT.from_string(source)
    except jinja2.TemplateSyntaxError:
        return 0, 0
    run = subprocess.run([PROGRAM, "--no-cache", "-t", os.path.join(folder, "tokenizer.json"), "--template", path, "--render", "--count",
                          "--style", "plain", "--keep-bad"], input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True, text=True)
    got = {line["id"]: line.get("prompt") for line in map(json.loads, run.stdout.split("\n")[:-1])}
    rendered = wrong = 0
    for line in lines:
        text = wanted(template, line)
        rendered += text is not None
        if got.get(line["id"]) != text:
            wrong += 1
            if wrong <= 2:
                print(f"{name}: {json.dumps(line, ensure_ascii=False)}\n    kvr    {got.get(line['id'])!r}\n    jinja2 {text!r}")
    return rendered, wrong


def main():
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 30
    random.seed(int(sys.argv[3]) if len(sys.argv) > 3 else None)
    found, stop = list(templates(sys.argv[1])), time.time() + seconds
    chats = rendered = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}, file)
        with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
            json.dump(TOKENS, file)
        while found and not chats or time.time() < stop and found:
            lines = [request(number) for number in range(100)]
            for name, source in found:
                made, different = compare(name, source, lines, folder)
                chats, rendered, wrong = chats + len(lines), rendered + made, wrong + different
    print(f"{len(found)} templates, {chats} chats, {rendered} rendered, {wrong} differ")
    sys.exit(wrong > 0)


main()
