"""Any text in a column of type text, which cannot hold U+0000: that and lone surrogates are kept as escapes.

A text without these and without a backslash is kept as it is. Each character becomes what no other one begins with,
so that what a text begins with is also what its kept form begins with.
"""

from __future__ import annotations

import re
from typing import Any

from psycopg import Connection
from psycopg.adapt import Dumper, Loader
from psycopg.pq import Format

_TEXT_OID = 25
_ODD = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPE = re.compile(rb"\\(\\|0|u[0-9a-f]{4})")


def kept(text: str) -> str:
    """A text as a column holds it."""
    return _ODD.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    return {"\\": "\\\\", "\0": "\\0"}.get(char) or f"\\u{ord(char):04x}"


def _unescape(found: re.Match[bytes]) -> bytes:
    code = found[1]
    if code == b"\\":
        return code
    return b"\0" if code == b"0" else chr(int(code[1:], 16)).encode("utf-8", "surrogatepass")


class _Dumper(Dumper):
    oid = _TEXT_OID

    def dump(self, obj: str) -> bytes:
        return kept(obj).encode()


class _BinaryDumper(_Dumper):
    format = Format.BINARY


class _Loader(Loader):
    def load(self, data: Any) -> str:
        found = bytes(data)
        if b"\\" in found:
            return _ESCAPE.sub(_unescape, found).decode("utf-8", "surrogatepass")
        return found.decode()


class _BinaryLoader(_Loader):
    format = Format.BINARY


def keep_any_text(connection: Connection[Any]) -> None:
    """Have every text that goes through a connection kept so, and come back as it was."""
    for dumper in (_BinaryDumper, _Dumper):  # the last one is taken where the query does not say
        connection.adapters.register_dumper(str, dumper)
    for loader in (_Loader, _BinaryLoader):
        connection.adapters.register_loader("text", loader)
