"""A monitor's state written down, and read back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from ..errors import EventError
from ..rules.nets.written import Net, NetLine
from ..stream.calls import RunContext
from ..values.equality import unkeepable
from .compiled import CompiledPolicy
from .index import Visits
from .memory import Returned
from .monitor import Monitor
from .session import RUNNING, Call, Session

FORMAT = 2


class StoredCall(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A call in flight as a snapshot holds it."""

    id: str
    name: str
    input: Any
    turn: int
    status: str
    visits: list[tuple[int, int]] = []


class Snapshot(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything a monitor keeps. `rules` are the ids of the policy it was taken under, by state."""

    format: int
    policy: str
    context: RunContext
    session: Session
    calls: list[StoredCall] = []
    states: dict[int, Any] = {}
    rules: dict[int, str] = {}
    returned: list[Returned] = []
    added: list[Any] = []
    removed: list[str] = []


_SETS = ("clashing", "denied", "exercised", "violated")
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Snapshot)


def write(monitor: Monitor) -> bytes:
    """The state as bytes. Of what is no JSON, a call's input is left out and half a character is `?`."""
    snapshot = _snapshot(monitor)
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


def _snapshot(monitor: Monitor) -> Snapshot:
    return Snapshot(
        format=FORMAT,
        policy=monitor.compiled.name,
        context=monitor.context,
        session=_in_order(monitor.session),
        calls=[
            StoredCall(
                id=call.id,
                name=call.name,
                input=None if unkeepable(call.input) else call.input,
                turn=call.turn,
                status=call.status,
                visits=_outcomes(call) if call.status in RUNNING else [],
            )
            for call in monitor.calls.values()
        ],
        states=_all_states(monitor),
        rules={number: rule.id for number, rule in monitor.rules.items()},
        returned=list(monitor.returned.values()),
        added=list(monitor.added_nets),
        removed=list(monitor.removed_nets),
    )


def _in_order(session: Session) -> Session:
    """With its sets in one order."""
    sets: dict[str, Any] = {name: sorted(getattr(session, name)) for name in _SETS}
    return replace(session, **sets)


def _outcomes(call: Call) -> list[tuple[int, int]]:
    return [(rule.number, mask) for rule, mask in call.steps.visits.outcomes]


def _all_states(monitor: Monitor) -> dict[int, Any]:
    """Those not asked for yet too, in one order, so that the same state is the same bytes."""
    present = {number: monitor.states[number] for number in monitor.rules}
    return dict(sorted((monitor.states | present).items()))


def read(compiled: CompiledPolicy, data: bytes, *, explain: bool = False) -> Monitor:
    """The monitor that was written. Raises EventError if the bytes are none, or of another policy."""
    try:
        snapshot = _decoder.decode(data)
        if snapshot.format != FORMAT:
            raise EventError(f"a snapshot of format {snapshot.format}; this version reads format {FORMAT}")
        return _restored(compiled, snapshot, explain)
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError, LookupError) as error:
        if isinstance(error, EventError):
            raise
        raise EventError(f"not a snapshot of a monitor: {str(error)[:200]}") from None


def _restored(compiled: CompiledPolicy, snapshot: Snapshot, explain: bool) -> Monitor:
    monitor = Monitor(compiled.at(snapshot.context), snapshot.context, explain=explain)
    for net in snapshot.added:
        monitor.add_net(net if isinstance(net, str) else _net(net))
    for name in snapshot.removed:
        monitor.remove_net(name)
    if snapshot.rules != {number: rule.id for number, rule in monitor.rules.items()}:
        raise EventError(f"a snapshot of policy `{snapshot.policy}`, whose rules are others than `{compiled.name}`'s")
    monitor.session = snapshot.session
    gone = {rule.number: rule for rule in monitor.removed_nets.values()}
    for number, state in snapshot.states.items():
        rule = monitor.rules.get(number) or gone[number]
        monitor.states[number] = rule.machine.load(state)
    for ref, returned in zip(monitor.returned, snapshot.returned, strict=True):
        monitor.returned[ref] = returned
    monitor.rebind()
    for stored in snapshot.calls:
        rules = [(monitor.rules.get(number) or gone[number], mask) for number, mask in stored.visits]
        call = monitor.subject(stored.id, stored.name, stored.input, stored.turn, stored.status)
        call.steps = monitor.bound(Visits(rules, monitor.compiled.plan(call.kind).remembers))
        monitor.calls[call.id] = call
    return monitor


def _net(data: dict[str, Any]) -> Net | NetLine:
    return msgspec.convert(data, NetLine) if "line" in data else msgspec.convert(data, Net)
