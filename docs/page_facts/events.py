"""Every type of event: its fields, those of several types once, and one as it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import msgspec

from proctor.policies.events import EVENT_TYPES, Event, encode_event

from .docstrings import text_of
from .examples import example_of
from .markdown import entries
from .records import field_rows

_EVERY = tuple(field.encode_name for field in msgspec.structs.fields(Event))
_SHARED = 2
"""A field of so many types, of one meaning, stands once."""


def reference(_: str) -> str:
    """Every type in its order, after the fields that all of them have, and those that several have."""
    counted = Counter(tuple(row) for cls in EVENT_TYPES.values() for row in field_rows(cls, _EVERY))
    often = [row for row, times in counted.most_common() if times >= _SHARED]
    shared = set({row[0]: row for row in reversed(often)}.values())  # of two meanings of a name, the more common one
    common = entries(row for row in counted if row in shared)
    sections = (_section(cls, shared) for cls in EVENT_TYPES.values())
    return "\n".join(
        [
            f"## Every event\n\n{entries(field_rows(Event))}",
            f"## Fields of several events\n\n{common}",
            *sections,
        ]
    )


def _section(cls: type[Event], shared: Collection[tuple[str, ...]]) -> str:
    tag = str(cls.__struct_config__.tag)
    rows = [tuple(row) for row in field_rows(cls, _EVERY)]
    own = entries(kept).rstrip() if (kept := [row for row in rows if row not in shared]) else ""
    names = [row[0] for row in rows if row in shared]
    more = f"{'Also' if own else 'Has'} {', '.join(names)}." if names else ""
    parts = [f"## `{tag}`", text_of(cls), own, more, f"```json\n{example(cls).decode()}\n```"]
    return "\n\n".join(part for part in parts if part) + "\n"


def example(cls: type[Event]) -> bytes:
    """An event of this type, as the store keeps it."""
    return encode_event(cls(**example_of(str(cls.__struct_config__.tag))))
