"""Text for people: without secrets and control characters, counts and times in few figures.

It is imported by every command, also by those that need nothing else of the package.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from msgspec.json import Encoder

    from proctor.policies.events.run_context import Usage
    from proctor.supervisor.redaction import Redactor

T = TypeVar("T")
_BLANKS = re.compile(r"\s")
"""Characters between words, line breaks too."""
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0e\uffa0\U000e0100-\U000e01ef]"
    "|(?<![\u00a9-\ufdff\U0001f000-\U0001faff])\ufe0f"
)
"""Characters that count as printable and show nothing; the last makes a picture of a symbol before it."""


def escape_control(text: str) -> str:
    """The text on one line: white space as a blank, unprintable characters (bidirectional too) as escapes."""
    return _clean(_redactor().redact(text))


def escape_control_lines(text: str) -> str:
    """The same, with line breaks kept."""
    return "\n".join(_clean(line.rstrip("\r")) for line in _redactor().redact(text).split("\n"))


def encoded(value: Any) -> str:
    """A value as JSON on one line, with line breaks and unprintable characters as escapes."""
    return escape_control_json(_encoder().encode(redacted(value)).decode())


def redacted(value: T) -> T:
    """A value redacted by the setting PROCTOR_REDACTION, for output that does not go to a terminal."""
    return _redactor().redact(value)


@cache
def _encoder() -> Encoder:
    from msgspec.json import Encoder

    return Encoder(enc_hook=str)


@cache
def _redactor() -> Redactor:
    from proctor.supervisor.errors import UsageError
    from proctor.supervisor.redaction import Redaction, Redactor

    try:
        return Redactor()
    except UsageError:  # it is said elsewhere, with this
        return Redactor(Redaction())


def _clean(text: str) -> str:
    text = _INVISIBLE.sub(lambda found: _escaped(found[0]), text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if _BLANKS.match(c) else _escaped(c) for c in text)


def escape_control_json(text: str) -> str:
    """The same JSON, with unprintable characters as escapes."""
    text = _INVISIBLE.sub(lambda found: _json_escape(found[0]), text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _json_escape(c) for c in text)


def _escaped(c: str) -> str:
    code = ord(c)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(c: str) -> str:
    units = c.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))


def took(ms: int) -> str:
    """How long something took, in the two largest units."""
    seconds = ms / 1000
    if seconds < 1:
        return f"{ms}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 48 else f"{hours // 24}d{hours % 24:02}h"


def amount(count: int) -> str:
    """A count in at most five characters: 999, 12.3k, 4.5M."""
    if count < 1000:
        return str(count)
    for unit, size in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if count / size < 999.5:
            return f"{count / size:.1f}{unit}" if count / size < 99.95 else f"{count / size:.0f}{unit}"
    return f"{count / 1e12:.1f}T"


def tokens_used(usage: Usage) -> str:
    """The number of tokens, and the subagents' part of it."""
    from proctor.policies.values.amounts import noun_of  # whoever has a usage has loaded it

    of_subagents = f" ({amount(usage.subagent_tokens)} by subagents)" if usage.subagent_tokens else ""
    return f"{amount(usage.total_tokens)} {noun_of(usage.total_tokens, 'token')}{of_subagents}"
