"""What the record of session `s` says of how its runs went on."""

from __future__ import annotations

from typing import Any

from proctor.policies.events import ErrorOccurred, RunStarted, SessionStarted
from proctor.supervisor import RunResult, Store


def ways(result: RunResult) -> tuple[Any, list[str]]:
    """How a run was meant to go on, and what of errors it recorded."""
    [started] = [event for event in result.events if isinstance(event, RunStarted)]
    errors = [event.code for event in result.events if isinstance(event, ErrorOccurred)]
    return started.metadata.get("continuation"), errors


async def provider_ids(store: Store) -> list[str | None]:
    """The client's own ids of the session, in order."""
    return [event.provider_session_id async for event in store.read("s") if isinstance(event, SessionStarted)]
