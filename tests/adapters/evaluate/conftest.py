"""Fixtures: sessions and policies for one test."""

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import pytest

from proctor.adapters.traces import TraceSession
from proctor.policies import CompiledPolicy, compile_policy, decode_event, merge_policies, parse_policies

MakeSession: TypeAlias = Callable[..., TraceSession]
Compile: TypeAlias = Callable[..., CompiledPolicy]


@pytest.fixture
def make_session() -> MakeSession:
    """A session of these events; a text `tool` stands for a call of it that completed."""

    def make(
        *events: dict[str, Any] | str,
        id: str = "s1",
        complete: bool = True,
        never_ran: Iterable[str] = (),
        **metadata: Any,
    ) -> TraceSession:
        records: list[dict[str, Any]] = []
        for n, event in enumerate(events):
            if isinstance(event, dict):
                records.append(event)
            else:
                call = {"tool_call_id": f"c{n}", "tool_name": event}
                records += [{"type": "tool_call_started", **call}, {"type": "tool_call_completed", **call}]
        stamped = ({"session_id": id, "seq": seq, **record} for seq, record in enumerate(records, 1))
        decoded = [decode_event(json.dumps(record)) for record in stamped]
        return TraceSession(
            id=id,
            source="traces/one.jsonl",
            format="events",
            events=decoded,
            complete=complete,
            never_ran=frozenset(never_ran),
            metadata=metadata,
        )

    return make


@pytest.fixture
def policy() -> Compile:
    """Rules as a compiled policy named `p`."""

    def compiled(*rules: dict[str, Any], **more: Any) -> CompiledPolicy:
        return compile_policy(merge_policies(parse_policies({"name": "p", "rules": list(rules), **more})))

    return compiled
