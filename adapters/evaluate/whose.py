"""Whose session it is: what its record says of the user, the role, the tenant and the labels."""

from __future__ import annotations

from typing import Any

import msgspec

from proctor.adapters.traces import TraceSession
from proctor.policies import RunContext

_FIELDS = ("user", "user_role", "tenant", "labels")


def whose(session: TraceSession) -> dict[str, Any] | msgspec.UnsetType:
    """For programs: what is recorded of them, UNSET where nothing is."""
    context: RunContext = session.metadata.get("context", RunContext())
    found = {name: value for name in _FIELDS if (value := getattr(context, name)) not in (msgspec.UNSET, None, {})}
    return found or msgspec.UNSET


def in_words(found: dict[str, Any] | msgspec.UnsetType) -> str:
    """On one line: `user=ana labels.job=mail`."""
    if found is msgspec.UNSET:
        return ""
    labels = {f"labels.{name}": value for name, value in found.get("labels", {}).items()}
    flat = {name: value for name, value in found.items() if name != "labels"} | labels
    return " ".join(f"{name}={value}" for name, value in flat.items())
