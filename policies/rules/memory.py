"""A session's bounded memory for its rules: the user's texts, and the tools' outputs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol
from unicodedata import category

import msgspec

from ..events.run_context import RunContext, Usage
from ..language.conditions import OutputRef
from ..language.facts import Directories, SeenValues, ToolTable, directories_of
from ..values.regexes import Regex

USER_TEXT_BOUND = 1_000_000
MESSAGES_KEPT = 10_000
"""How many characters of the latest user messages are kept; values in dropped text no longer count."""

EMPTY: frozenset[Any] = frozenset()
"""Shared by all sessions, to save memory."""


class UserText(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The user's texts, in lower case, and the patterns found in any of them and in the last.

    `messages` are everybody's, for rules that read them; `forgotten` counts those dropped.
    """

    texts: list[str] = []
    size: int = 0
    ever: frozenset[str] = frozenset()
    last: frozenset[str] = frozenset()
    messages: list[tuple[str, str]] = []
    messages_size: int = 0
    forgotten: int = 0

    def add(self, text: str, phrases: dict[str, Regex], keep: bool) -> None:
        """Read a user message; its text is kept if some rule looks values up in it."""
        found = frozenset(pattern for pattern, regex in phrases.items() if regex.found_in(text))
        self.last = found or EMPTY
        if found:
            self.ever |= found
        if not keep:
            return
        folded = text.casefold()[-USER_TEXT_BOUND:]
        self.texts.append(folded)
        self.size += len(folded)
        while self.size > USER_TEXT_BOUND:
            self.size -= len(self.texts.pop(0))

    def note(self, role: str, text: str) -> None:
        """Keep a message for rules that read messages; the user's are dropped last."""
        self.messages.append((role, text[-USER_TEXT_BOUND:]))
        self.messages_size += len(self.messages[-1][1])
        while self.messages_size > USER_TEXT_BOUND or len(self.messages) > MESSAGES_KEPT:
            oldest = next((n for n, (by, _) in enumerate(self.messages) if by != "user"), 0)
            self.messages_size -= len(self.messages.pop(oldest)[1])
            self.forgotten += 1

    def contain(self, value: str) -> bool:
        """Whether a message contains the value, not inside a longer word or number."""
        folded = value.casefold()
        return any(_stands_in(text, folded) for text in self.texts)


class Metered(Protocol):
    """Counts what is used; `run` is the run's usage so far."""

    run: Usage


@dataclass(slots=True, eq=False)
class SessionFacts:
    """Facts about a session that rules may look up besides their own state; `redact` makes an input what the event
    log has of it.
    """

    returned: dict[OutputRef, SeenValues]
    user_text: UserText
    meter: Metered
    context: RunContext
    tools: ToolTable
    redact: Callable[[Any], Any] | None = None
    directories: Directories = field(init=False)

    def __post_init__(self) -> None:
        self.directories = directories_of(self.context)


def _stands_in(text: str, value: str) -> bool:
    at = text.find(value)
    while at >= 0:
        end = at + len(value)
        if not _joined(text, at - 1, -1, value[:2]) and not _joined(text, end, 1, value[:-3:-1]):
            return True
        at = text.find(value, at + 1)
    return False


def _joined(text: str, at: int, step: int, edge: str) -> bool:
    """Whether a word or number goes on beyond the edge of a value; `edge` are its two characters there."""
    if not 0 <= at < len(text):
        return False
    neighbour, beyond = text[at], text[at + step] if 0 <= at + step < len(text) else " "
    if edge[0] in ".,":
        return neighbour.isdigit() and edge[1:].isdigit()
    if not edge[0].isdigit() or neighbour not in ".,":
        return is_of_word(edge[0]) and is_of_word(neighbour)
    begins = step < 0 and neighbour == "." and beyond != "." and not is_of_word(beyond)  # .5 is a number, too
    return beyond.isdigit() or begins


def is_of_word(char: str) -> bool:
    """Whether a character continues a word or a number."""
    return char.isalnum() or char == "_" or category(char) in ("Mn", "Mc")  # vowel signs and accents


def message_text(content: Any) -> str | None:
    """The text of a message; None for tool results, which nobody wrote."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list | tuple):
        return None
    blocks = [block for block in content if isinstance(block, dict)]
    if any(block.get("type") == "tool_result" for block in blocks):
        return None
    texts = [block["text"] for block in blocks if isinstance(block.get("text"), str)]
    return "\n".join([*texts, *(item for item in content if isinstance(item, str))])
