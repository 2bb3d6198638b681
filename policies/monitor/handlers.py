"""What each type of event does to the state of a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..stream import events as ev
from ..stream.calls import Violation
from .limits import UNITS
from .memory import message_text
from .session import HELD, REQUESTED, RUNNING, STARTED, Call, Output, mark
from .state import Judging


def run_started(on: Judging, event: ev.RunStarted) -> list[Violation]:
    """A new run of the session, unless it is the one going on."""
    session = on.session
    if session.runs and event.run_id == session.run_id:
        return []
    if session.runs or session.ended:
        on.calls.clear()
        on.compiled.limits.new_run(session.limits)
    session.new_run(event.run_id, event.model or "")
    return []


def message(on: Judging, event: ev.MessageEvent) -> list[Violation]:
    """What a user wrote is remembered; what anybody else did is no evidence."""
    if event.role == "user" and (text := message_text(event.content)):
        on.session.words.add(text, on.compiled.phrases, on.compiled.keeps_words)
    return []


def turn(on: Judging, event: ev.TurnEvent) -> list[Violation]:
    """The stream has come to a model response, or to its end."""
    if event.turn > 0:
        turn = on.session.session_turn(event.turn)
        on.reach_turn(turn)
        if isinstance(event, ev.TurnCompleted):
            on.session.limits.turns_over = turn - on.session.turn_base
    return []


def usage(on: Judging, event: ev.TokenUsageUpdated) -> list[Violation]:
    """Tokens were used."""
    on.session.meter.add(event, on.compiled.prices)
    return []


def requested(on: Judging, event: ev.ToolCallRequested) -> list[Violation]:
    """A call was asked for; judging it is `propose`'s."""
    id = event.tool_call_id
    known = on.calls.get(id)
    if _clashes(on, known, event):
        on.session.clashing |= {id}
    elif known is None or known.status == REQUESTED:
        first = known is None and id not in on.session.finished
        on.request(id, event.tool_name, event.tool_input, event.turn, REQUESTED, first)
    return []


def _clashes(on: Judging, known: Call | None, event: ev.ToolCallRequested) -> bool:
    """Whether an id is asked for again with another call, while the first runs or is held, or after it."""
    if known is None:
        before = on.session.finished.get(event.tool_call_id)
        return before is not None and before != mark(event.tool_name, event.tool_input)
    if known.status in (REQUESTED, HELD):
        return known.status == HELD and known.name != event.tool_name
    return not known.is_again(event.tool_name, event.tool_input)


def started(on: Judging, event: ev.ToolCallStarted) -> list[Violation]:
    """A call runs: if it was not let through as it runs now, it is judged as something that happened."""
    id, name, input = event.tool_call_id, event.tool_name, event.tool_input
    first = id not in on.calls and id not in on.session.finished
    if not first and _let_through(on, id, name, input):
        return []
    call = on.request(id, name, input, event.turn, STARTED, first)
    violations = on.judged(call, [], repeat=False)
    if violations and call.approved:
        violations = [v for v in violations if v.action != "request_approval"]
    on.start(call)
    return violations


def _let_through(on: Judging, id: str, name: str, input: Any) -> bool:
    """Whether a call was judged as it runs now: at the gate, or when its start was first reported."""
    known = on.calls.get(id)
    if known is not None and known.status in RUNNING:
        same = known.input is input or mark(known.name, known.input) == mark(name, input)
        if same:
            known.status = STARTED
        return same
    session = on.session
    return id not in session.denied and id in session.finished and session.finished[id] == mark(name, input)


def completed(on: Judging, event: ev.ToolCallCompleted) -> list[Violation]:
    """A call succeeded; an outcome for an unknown id changes nothing."""
    call = on.calls.get(event.tool_call_id)
    if call is None or call.status not in RUNNING:
        return []
    del on.calls[call.id]
    steps = call.steps
    if steps.outcomes or steps.remembers:
        on.succeeded(call, Output(event.tool_output))
    on.session.finish(call)
    return []


def failed(on: Judging, event: ev.ToolCallFailed) -> list[Violation]:
    """A call failed."""
    call = on.calls.get(event.tool_call_id)
    return on.ended(call, "failed") if call is not None and call.status in RUNNING else []


def denied(on: Judging, event: ev.ToolCallDenied) -> list[Violation]:
    """A call was refused and never ran; one that was allowed here and then refused has failed."""
    if event.tool_call_id in on.session.clashing:
        on.session.clashing -= {event.tool_call_id}
        return []  # another call was refused, for having this one's id
    call = on.calls.get(event.tool_call_id)
    if call is None:
        return []
    if call.status in RUNNING:
        return on.ended(call, "failed")
    call.steps = on.steps(call)
    on.session.denied.add(call.id)
    return on.ended(call, "denied")


def approval_requested(on: Judging, event: ev.ToolApprovalRequested) -> list[Violation]:
    """A call is held for a person."""
    call = on.calls.get(event.tool_call_id)
    if call is not None and call.status == REQUESTED and event.held:
        call.status = HELD
    return []


def granted(on: Judging, event: ev.ToolApprovalGranted) -> list[Violation]:
    """A person agreed to one call with one input."""
    if event.input_digest:
        on.session.granted[event.tool_call_id] = event.input_digest
    return []


def violated(on: Judging, event: ev.PolicyViolated) -> list[Violation]:
    """What the live session found is known when its record is folded."""
    on.session.violated |= {event.rule}
    if event.action == "request_approval":
        _held(on, event.tool_call_id)
    if event.kind in UNITS:
        for number, entry in enumerate(on.compiled.limits.entries):
            if entry.name == event.kind and entry.policy == event.policy:
                on.session.limits.reported |= {number}
    return []


def warned(on: Judging, event: ev.BudgetWarned) -> list[Violation]:
    """What the live session warned of is known when its record is folded."""
    for number in on.compiled.limits.warns:
        entry = on.compiled.limits.entries[number]
        if (entry.name, entry.limit.max) == (event.limit, event.max):
            on.session.limits.warned |= {number}
    return []


def _held(on: Judging, id: str | None) -> None:
    """The call that a person is asked for waits; where the record does not name it, the last one asked for."""
    waiting = [call for call in on.calls.values() if call.status == REQUESTED and call.id == (id or call.id)]
    if waiting:
        waiting[-1].status = HELD


def ended(on: Judging, event: ev.Event) -> list[Violation]:
    """The run is over."""
    on.session.ended = event.type
    return []


Handler: TypeAlias = Callable[[Judging, Any], list[Violation]]

HANDLERS: dict[type[ev.Event], Handler | None] = {
    **dict.fromkeys((*ev.EVENT_TYPES.values(), ev.Unrecognized)),
    ev.RunStarted: run_started,
    ev.MessageSent: message,
    ev.MessageReceived: message,
    ev.TurnStarted: turn,
    ev.TurnCompleted: turn,
    ev.TokenUsageUpdated: usage,
    ev.ToolCallRequested: requested,
    ev.ToolCallStarted: started,
    ev.ToolCallCompleted: completed,
    ev.ToolCallFailed: failed,
    ev.ToolCallDenied: denied,
    ev.ToolApprovalRequested: approval_requested,
    ev.ToolApprovalGranted: granted,
    ev.PolicyViolated: violated,
    ev.BudgetWarned: warned,
    ev.RunCompleted: ended,
    ev.RunFailed: ended,
    ev.RunCancelled: ended,
}
"""By type; None for what says nothing to any rule."""
