"""Tokens and answers of the simulated engine: a deterministic function of the prompt, without sense."""

from __future__ import annotations

import hashlib
import json
import random
import re
import zlib

WORDS = (  # noqa: SIM905 -- a list of 140 lines reads worse
    "above after again air answer around because before being below between book bright build call change city clear "
    "cloud color count cut day deep draw early earth end even face far field fire first floor food form garden glass "
    "green group hand head heat hill hold home hour house idea inside keep kind lake land late leaf light line list "
    "many moon more morning mountain name near new night north note often open order other paper part path place "
    "plan plant point quiet rain reach read rest river road rock room round same sea season seed short side sing sky "
    "small snow soft song sound south stand star stone summer sun table thing time tree under valley voice walk wall "
    "watch water way week west wheel white wide wind window winter wood word work year"
).split()
PIECE = re.compile(r"\s?[^\s]{1,5}|\s")
THINKING = ["simulated", " thinking"]


def tokens(text):
    """Pieces of up to five characters: about as many as a real tokenizer makes of English."""
    return PIECE.findall(text)


def token_ids(text):
    return [zlib.crc32(piece.encode("utf-8", "replace")) % 151_000 for piece in tokens(text)]


def digest(prompt_ids, salt=""):
    return hashlib.sha256(f"{salt}|{','.join(map(str, prompt_ids))}".encode()).digest()


def render(messages, tools):
    """A conversation as one text, as a chat template would make it."""
    parts = [f"<|tools|>{json.dumps(tools)}"] if tools else []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        calls = json.dumps(message["tool_calls"]) if message.get("tool_calls") else ""
        parts.append(f"<|im_start|>{message.get('role', '')}\n{content or ''}{calls}<|im_end|>\n")
    return "".join(parts) + "<|im_start|>assistant\n"


def answer(prompt_ids, salt="", endless=False):
    """Pieces of the answer to a prompt: the same ones each time. endless: goes on for as long as it is asked."""
    chance = random.Random(digest(prompt_ids, salt))
    yield from ("Simulated", " answer", ":")
    count = chance.randint(30, 90)
    while endless or count:
        count -= 1
        yield " " + chance.choice(WORDS)
    yield "."


def example(schema, depth=0):
    """A value that a JSON schema allows, as far as it is made of type, enum, const, anyOf, properties and items."""
    if not isinstance(schema, dict) or depth > 8:
        return "simulated"
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return example(schema[key][0], depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        wanted = schema.get("required", list(properties))
        return {name: example(properties.get(name, {}), depth + 1) for name in wanted}
    if kind == "array":
        return [example(schema.get("items", {}), depth + 1) for _ in range(max(1, schema.get("minItems", 1)))]
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    return {"boolean": True, "null": None}.get(kind, "simulated")


def call_arguments(tool):
    return json.dumps(example(tool["function"].get("parameters") or {"type": "object"}))
