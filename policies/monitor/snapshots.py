"""A monitor's state as bytes, and restored from them."""

from dataclasses import replace
from typing import Any

import msgspec

from ..errors import EventError
from ..events.calls import UNREADABLE, mark
from ..events.run_context import RunContext
from ..language.facts import SeenValues
from ..values.json_values import is_unserializable
from .call_table import RUNNING, CallState, RuleName, Session
from .handlers import add_net, read_net, remove_net
from .program import CallPlan, Program
from .state import MonitorState

FORMAT = 6


class StoredCall(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A call that has not ended, in a snapshot."""

    id: str
    name: str
    input: Any
    turn: int
    status: str
    approval: str = ""
    shown: tuple[RuleName, ...] = ()
    kept: bytes = b""
    visits: list[tuple[int, int]] = []


class Snapshot(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything a monitor keeps. `rules` are the ids of the policy's rules, by their number in `states`."""

    format: int
    policy: str
    context: RunContext
    session: Session
    calls: list[StoredCall] = []
    states: dict[int, Any] = {}
    rules: dict[int, str] = {}
    returned: list[SeenValues] = []
    added: list[Any] = []
    removed: list[str] = []


_SETS = ("conflicting", "exercised", "violated")
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Snapshot)


def write(on: MonitorState) -> bytes:
    """The state as bytes. A call's input that is not JSON is left out; a lone surrogate becomes `?`."""
    snapshot = _snapshot(on)
    try:
        return _encoder.encode(snapshot)
    except UnicodeEncodeError:
        return _encoder.encode(_as_utf8(msgspec.to_builtins(snapshot, str_keys=True)))


def _as_utf8(value: Any) -> Any:
    if isinstance(value, dict):
        return {_as_utf8(key): _as_utf8(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_utf8(item) for item in value]
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _snapshot(on: MonitorState) -> Snapshot:
    return Snapshot(
        format=FORMAT,
        policy=on.program.name,
        context=on.context,
        session=_in_order(on.session),
        calls=[
            StoredCall(
                id=call.id,
                name=call.name,
                input=None if is_unserializable(call.given) else call.given,
                turn=call.turn,
                status=call.status,
                approval=call.approval,
                shown=call.shown,
                kept=call.kept or (_mark_of(call) if is_unserializable(call.given) else b""),
                visits=_outcomes(call) if call.status in RUNNING else [],
            )
            for call in on.calls.values()
        ],
        states=_all_states(on),
        rules={number: rule.id for number, rule in on.rules.items()},
        returned=list(on.returned.values()),
        added=list(on.added_nets),
        removed=list(on.removed_nets),
    )


def _mark_of(call: CallState) -> bytes:
    try:
        return mark(call.name, call.given)
    except UNREADABLE:
        return b""


def _in_order(session: Session) -> Session:
    """The same with its sets sorted."""
    sets: dict[str, Any] = {name: sorted(getattr(session, name)) for name in _SETS}
    return replace(session, **sets)


def _outcomes(call: CallState) -> list[tuple[int, int]]:
    return [(rule.number, mask) for rule, mask in call.bound.plan.outcomes]


def _all_states(on: MonitorState) -> dict[int, Any]:
    """All states, unused ones too, in one order, so that equal states give equal bytes."""
    present = {number: on.states[number] for number in on.rules}
    return dict(sorted((on.states | present).items()))


def read(program: Program, data: bytes) -> MonitorState:
    """Restore a state. Raises EventError for bytes that are not a snapshot, or one of another policy."""
    try:
        snapshot = _decoder.decode(data)
        if snapshot.format != FORMAT:
            raise EventError(f"a snapshot of format {snapshot.format}; this version reads format {FORMAT}")
        return _restored(program, snapshot)
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError, LookupError) as error:
        if isinstance(error, EventError):
            raise
        raise EventError(f"not a snapshot of a monitor: {str(error)[:200]}") from None


def _restored(program: Program, snapshot: Snapshot) -> MonitorState:
    on = MonitorState(program.for_context(snapshot.context), snapshot.context)
    for net in snapshot.added:
        add_net(on, read_net(net))
    for name in snapshot.removed:
        remove_net(on, name)
    if snapshot.rules != {number: rule.id for number, rule in on.rules.items()}:
        raise EventError(
            f"a snapshot of policy `{snapshot.policy}`, whose rules differ from those of `{program.name}`"
        )
    on.session = snapshot.session
    compiled = {**{rule.number: rule for rule in on.removed_nets.values()}, **on.rules}
    for number, state in snapshot.states.items():
        on.states[number] = compiled[number].machine.decode_state(state)
    for ref, returned in zip(on.returned, snapshot.returned, strict=True):
        on.returned[ref] = returned
    on.rebind()
    for stored in snapshot.calls:
        call = on.subject(stored.id, stored.name, stored.input, stored.turn, stored.status)
        rules = [(compiled[number], mask) for number, mask in stored.visits]
        call.bound = on.bound(CallPlan(rules, on.program.remembers(call.kind)))
        call.approval, call.shown, call.kept = stored.approval, stored.shown, stored.kept
        on.calls[call.id] = call
    return on
