"""`provenance`: a value that must come from the user or from a listed tool."""

import re
from collections.abc import Iterator
from typing import Any

from .precondition import output_of
from .selecting import ids, meets, text
from .trace import Call, Rule, World


def provenance(rule: Rule, world: World, call: Call) -> bool:
    """Violated by a value that no earlier user message contains and no listed tool's output supplied."""
    if not meets(rule["tool"], call, world, permits=False):
        return False
    excepted = [text(value) for value in rule.get("except", ())]
    for value in _values(rule, call):
        if value not in excepted and not any(_supplied(source, value, world) for source in rule["from"]):
            return True
    return False


def _values(rule: Rule, call: Call) -> Iterator[str]:
    for value in ids(rule["path"], call.input):
        yield from re.findall(rule["extract"], value) if "extract" in rule else [value]


def _supplied(source: Any, value: str, world: World) -> bool:
    if source == "user_message":
        return any(contains(words, value) for words in world.user_texts)
    for call in world.completed():
        if meets(source["tool"], call, world, permits=True):
            if "path" in source and value in ids(source["path"], output_of(call)):
                return True
            if "regex" in source and value in re.findall(source["regex"], str(call.output)):
                return True
    return False


def contains(words: str, value: str) -> bool:
    """Whether the value is in the text, not inside a longer word or number."""
    number = r"(?<!\w)(?<!\d[.,])(?<![^\w.]\.)(?<!^\.)"
    before = number if re.match(r"\d", value) else r"(?<!\w)" if re.match(r"\w", value) else ""
    behind = r"(?!\w)(?![.,]\d)" if re.search(r"\d$", value) else r"(?!\w)" if re.search(r"\w$", value) else ""
    before = r"(?<!\d)" if re.match(r"[.,]\d", value) else before
    behind = r"(?!\d)" if re.search(r"\d[.,]$", value) else behind
    return re.search(before + re.escape(value) + behind, words, re.IGNORECASE) is not None
