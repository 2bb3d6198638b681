"""Where in a text the secrets are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import re2

from ..errors import UsageError
from . import patterns
from .config import Redaction

PLACEHOLDER = b"[redacted:"
"""How what stands for a secret begins."""
_REST = re.compile(rb"[\w-]*")


class SecretSpan(NamedTuple):
    """A secret: where it begins and ends in a text's bytes, and its kind."""

    start: int
    end: int
    kind: str


class Detector:
    """Finds what the shipped patterns and the caller's describe. Raises UsageError for one RE2 cannot read."""

    def __init__(self, redaction: Redaction) -> None:
        self._own = [_compiled(kind, regex) for kind, regex in redaction.patterns.items()]
        self._allowed = frozenset(value.encode() for value in redaction.allow)

    def suspects(self, data: bytes) -> bool:
        """Whether something may be found in a text, or in JSON that holds it: quick, and never wrongly false."""
        return bool(self._own) or _triggers().search(data) is not None

    def find(self, text: bytes) -> list[SecretSpan]:
        """The secrets in a text, from left to right, none inside another."""
        shipped = _shipped() if _triggers().search(text) else ()
        found = sorted(span for span in self._all(text, (*self._own, *shipped)) if span.start < span.end)
        return _apart(found)

    def may_be_named(self, value: str) -> bool:
        """Whether a value may be what its name says: it is no placeholder, no variable, and not allowed."""
        data = value.encode("utf-8", "surrogatepass")
        return bool(data) and not data.startswith((PLACEHOLDER, b"$")) and data not in self._allowed

    def _all(self, text: bytes, wanted: Sequence[tuple[str, Any, int]]) -> Iterator[SecretSpan]:
        for kind, regex, group in wanted:
            done = 0
            for match in regex.finditer(text):
                start, end = match.span(group if match[group] is not None else 0)
                if start < done:
                    continue  # it stands in what was taken whole
                if group == 0:
                    end = _REST.match(text, end).end()  # type: ignore[union-attr]  # it matches everywhere
                done = end
                if text.startswith(PLACEHOLDER, start):
                    continue  # it was replaced before
                if text[start:end] not in self._allowed and match[0] not in self._allowed:
                    yield SecretSpan(start, end, kind)


def _apart(found: list[SecretSpan]) -> list[SecretSpan]:
    """Spans that overlap as one."""
    apart: list[SecretSpan] = []
    for span in found:
        if apart and span.start < apart[-1].end:
            last = apart[-1]
            apart[-1] = last._replace(end=max(last.end, span.end))
        else:
            apart.append(span)
    return apart


@cache
def _triggers() -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = True
    return re2.compile(patterns.TRIGGERS.encode(), options)


@cache
def _shipped() -> tuple[tuple[str, Any, int], ...]:
    return tuple((pattern.kind, re2.compile(pattern.regex.encode()), pattern.group) for pattern in patterns.shipped())


def _compiled(kind: str, regex: str) -> tuple[str, Any, int]:
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(regex.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        raise UsageError(f"redaction pattern `{kind}` cannot be read: {error}") from None
    return kind, compiled, min(compiled.groups, 1)
