"""What the conformance suite has shown of each adapter, as it is kept beside this file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from proctor.policies.events.run_context import Capabilities

RECORD = Path(__file__).with_name("record.yaml")
_OF_ONE_USE = frozenset({"mostly", "tools", "other_tools", "elsewhere", "model", "workspace", "home", "shell"})
_HEADER = "# What the conformance suite has shown. Written by: PROCTOR_MATRIX=write pytest tests/adapters\n"


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter declares, and the names of those capabilities that the suite saw to be so."""

    declared: Capabilities
    shown: tuple[str, ...] = ()


def read_record() -> dict[str, Shown]:
    """The record by the adapter's name."""
    if not RECORD.exists():
        return {}
    return msgspec.yaml.decode(RECORD.read_bytes(), type=dict[str, Shown])


def write_record(name: str, shown: Shown) -> None:
    """Put one adapter's results in the place of its earlier ones."""
    record = {**read_record(), name: shown}
    RECORD.write_text(_HEADER + msgspec.yaml.encode(dict(sorted(record.items()))).decode())


def settled(capabilities: Capabilities) -> Capabilities:
    """What an adapter can do, without what differs from one use of it to the next."""
    same = {name: getattr(capabilities, name) for name in capabilities.__struct_fields__ if name not in _OF_ONE_USE}
    return Capabilities(**same)
