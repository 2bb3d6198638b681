"""Every type of event: its fields, those of several types once, and one as it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import groupby

import msgspec

from proctor.policies.events import EVENT_TYPES, Event, encode_event

from .docstrings import text_of
from .examples import example_of
from .markdown import code, codes, entries
from .records import field_rows

_EVERY = tuple(field.encode_name for field in msgspec.structs.fields(Event))
_SHARED = 2
"""A field of so many types, of one meaning, stands once."""


def reference(_: str) -> str:
    """Every type in its order, after the fields that all of them have, and those that several have. Types in a row
    with the same fields share a section.
    """
    counted = Counter(row for cls in EVENT_TYPES.values() for row in _rows(cls))
    often = [row for row, times in counted.most_common() if times >= _SHARED]
    shared = set({row[0]: row for row in reversed(often)}.values())  # of two meanings of a name, the more common one
    common = entries(row for row in counted if row in shared)
    alike = [list(types) for _, types in groupby(EVENT_TYPES.values(), _rows)]
    return "\n".join(
        [
            f"## Every event\n\n{entries(field_rows(Event))}",
            f"## Fields of several events\n\n{common}",
            *(_section(types, shared) for types in alike),
        ]
    )


def _rows(cls: type[Event]) -> list[tuple[str, ...]]:
    return [tuple(row) for row in field_rows(cls, _EVERY)]


def _section(types: Sequence[type[Event]], shared: Collection[tuple[str, ...]]) -> str:
    tags = [str(cls.__struct_config__.tag) for cls in types]
    rows = _rows(types[0])
    own = entries(kept).rstrip() if (kept := [row for row in rows if row not in shared]) else ""
    names = [row[0] for row in rows if row in shared]
    more = f"Has {', '.join(names)}{', and:' if own else '.'}" if names else ""
    texts = [text_of(cls) for cls in types]
    about = (
        texts[0] if len(types) == 1 else entries((code(tag), "", text) for tag, text in zip(tags, texts, strict=True))
    )
    shown = max(map(example, types), key=len)
    parts = [f"## {codes(tags)}", about.rstrip(), more, own, f"```json\n{shown.decode()}\n```"]
    return "\n\n".join(part for part in parts if part) + "\n"


def example(cls: type[Event]) -> bytes:
    """An event of this type, as the store keeps it."""
    return encode_event(cls(**example_of(str(cls.__struct_config__.tag))))
