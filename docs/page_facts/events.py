"""Every type of event: its fields, and one as it is written."""

from __future__ import annotations

import msgspec

from proctor.policies.events import EVENT_TYPES, Event
from proctor.policies.events.codec import encode_event

from .docstrings import text_of
from .examples import example_of
from .records import field_table

_EVERY = tuple(field.encode_name for field in msgspec.structs.fields(Event))


def reference(_: str) -> str:
    """Every type in its order, after the fields that all of them have."""
    return "\n".join([f"## Every event\n\n{field_table(Event)}", *(_section(cls) for cls in EVENT_TYPES.values())])


def _section(cls: type[Event]) -> str:
    tag = str(cls.__struct_config__.tag)
    own = field_table(cls, _EVERY) if len(msgspec.structs.fields(cls)) > len(_EVERY) else ""
    return f"## `{tag}`\n\n{text_of(cls)}\n\n{own}\n```json\n{example(cls).decode()}\n```\n"


def example(cls: type[Event]) -> bytes:
    """An event of this type, as the store keeps it."""
    return encode_event(cls(**example_of(str(cls.__struct_config__.tag))))
