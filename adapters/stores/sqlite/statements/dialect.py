"""What SQLite says in its own way.

A lease runs by the machine's clock since its boot, which all its processes share and nobody can set: a file of this
kind is used on one machine only. An owner from before the last boot is gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from proctor.supervisor.ports.processes import machine

from ...tables.asking import Condition, Dialect

_encode = msgspec.json.Encoder().encode
_LABEL = """(SELECT iif(type IN ('true', 'false', 'null'), type, CAST(atom AS TEXT))
    FROM json_each(labels) WHERE json_each.key = ?) = ?"""


def _is_over(until: float | None, where: str) -> bool:
    return until is None or until <= time.monotonic() or bool(where and _boot(where) != _boot(machine()))


def _boot(where: str) -> str:
    return where.partition("/")[0]


def _among(value: str, values: Sequence[Any]) -> Condition:
    return f"{value} IN (SELECT value FROM json_each(?))", _encode(values).decode()


def _begins(text: str, with_what: str) -> Condition:
    return f"substr({text}, 1, ?) = ?", len(with_what), with_what


def _labelled(labels: Mapping[str, str]) -> Iterator[Condition]:
    return ((_LABEL, name, text) for name, text in labels.items())


SQLITE = Dialect(
    until="until",
    is_over=_is_over,
    lease_end="?",
    lease=lambda length_s: time.monotonic() + length_s,
    among=_among,
    begins=_begins,
    labelled=_labelled,
    last_instruction="SELECT seq FROM sqlite_sequence WHERE name = 'instructions'",
    claim="budget, key, counts, window, max",
    until_value="until",
    in_log="CROSS JOIN",  # the log is what is walked through, whatever else there is an index for
)
