"""What somebody probably meant by a word that is not known."""

from __future__ import annotations

import re
from collections.abc import Iterable

SYNONYMS = {
    "halt": "cancel",
    "stop": "cancel",
    "block": "deny",
    "ask": "request_approval",
    "approve": "request_approval",
    "log": "warn",
    "tell_llm": "tell_model",
    "message": "tell_model",
    "max_tokens": "max_total_tokens",
    "max_calls": "max_tool_calls",
    "max_cost": "max_cost_usd",
    "title": "name",
    "rationale": "description",
    "comment": "description",
}
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """A suggestion for a misspelt word, empty if none of the known ones is near."""
    names = list(candidates)
    plain = snake_case(word)
    for guess in (plain, SYNONYMS.get(plain, "")):
        if guess in names:
            return f"did you mean `{guess}`?"
    from difflib import get_close_matches  # needed for a misspelt word only, and slow to import

    near = get_close_matches(plain, names, n=1, cutoff=0.6)
    near = near or [name for name in names if len(plain) > 3 and (plain in name or name in plain)]
    return f"did you mean `{near[0]}`?" if near else ""


def snake_case(word: str) -> str:
    """A word as the language writes it: `maxPerSession` and `max-per-session` are `max_per_session`."""
    return _HUMP.sub("_", word).replace("-", "_").replace("__", "_").lower()


def either(words: Iterable[str]) -> str:
    """Words as a choice: a, b or c."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
