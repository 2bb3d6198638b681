"""Which trace a run is part of, for the processes its agent is made of. Whoever traces runs says so here.

Kept for the process as a whole: an adapter that starts a client knows its run's id, and nothing of who observes it.
"""

from __future__ import annotations

from collections.abc import Mapping

_carried: dict[str, dict[str, str]] = {}


def carry_trace(run_id: str, carrier: Mapping[str, str]) -> None:
    """Give this trace context to the processes of a run from now on; an empty one ends that."""
    if carrier:
        _carried[run_id] = {name.upper(): value for name, value in carrier.items()}
    else:
        _carried.pop(run_id, None)


def trace_environment(run_id: str) -> Mapping[str, str]:
    """The variables (TRACEPARENT, TRACESTATE) that a run's processes get."""
    return _carried.get(run_id, {})
