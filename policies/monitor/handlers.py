"""The effect of each type of event on the state of a session."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from .. import events as ev
from ..errors import PolicyError, Violation, wrong_type
from ..events import NetJoined, NetLeft
from ..policy import Policy, members_of
from ..reading.load import check_policy
from ..rules.memory import EMPTY, message_text
from ..rules.net_shorthand import NetLine, line_problems, net_of
from ..rules.petri_net import Net, NetMachine
from ..stack.clauses import net_name, scope_of
from .call_table import HELD, LAPSED, REQUESTED, UNDECIDED, CallState, Grant, RuleName
from .limit_checker import finding_of
from .program import CompiledRule, check_hooks
from .state import MonitorState


def add_net(on: MonitorState, net: str | NetLine | Net, **attached: Any) -> None:
    """Add a net. A net that was removed before continues with its state."""
    if not isinstance(net, str | NetLine | Net):
        raise ValueError(wrong_type("a net", net))
    check_policy(Policy(name="added", nets=[net]))
    if not isinstance(net, Net):
        names = scope_of(members_of(on.program.policy))
        for _, message in line_problems(net if isinstance(net, str) else net.line, scope=names):
            raise PolicyError(message)
    name = net_name(net)
    if any(rule.id == name for rule in on.program.rules):
        raise ValueError(f"a rule or net `{name}` is active already")
    check_hooks([(name, hook) for hook in attached.values() if hook is not None])
    if (removed := on.removed_nets.get(name)) is not None:
        if not isinstance(removed.machine, NetMachine) or removed.machine.net != net_of(net):
            raise ValueError(f"a net `{name}` was removed, and it is another one: give this one another name")
        _reactivate(on, name, {kind: hook for kind, hook in attached.items() if hook is not None})
    else:
        known_rules = (*on.program.rules, *on.removed_nets.values())
        number = 1 + max((rule.number for rule in known_rules), default=-1)
        on.adopt(on.program.with_net(net, number, **attached))
        on.added_nets = (*on.added_nets, net)


def net_joined(on: MonitorState, event: NetJoined) -> None:
    """Add the net, unless the session has it: a live session adds it before the event is recorded."""
    if not _active(on, event.name):
        add_net(on, read_net(event.net))


def net_left(on: MonitorState, event: NetLeft) -> None:
    """Remove the net, unless it was removed before the event was recorded."""
    if _active(on, event.name):
        remove_net(on, event.name)


def restore_nets(on: MonitorState) -> None:
    """Begin another run, which only the nets of its policies evaluate."""
    added = {net_name(net) for net in on.added_nets}
    for name in added:
        if _active(on, name):
            remove_net(on, name)
    for name in [name for name in on.removed_nets if name not in added]:
        _reactivate(on, name)


def _reactivate(on: MonitorState, name: str, attached: Mapping[str, Any] | None = None) -> None:
    """Activate a removed net again; a function that is attached now replaces the earlier one."""
    rule = on.removed_nets[name]
    if attached and isinstance(rule.machine, NetMachine):
        rule = msgspec.structs.replace(rule, machine=rule.machine.with_hooks(attached))
    on.removed_nets = {other: one for other, one in on.removed_nets.items() if other != name}
    on.adopt(on.program.with_rule(rule))


def read_net(data: Any) -> str | Net | NetLine:
    """Decode a net. Raises one of UNREADABLE for anything else."""
    if isinstance(data, str):
        return data
    return msgspec.convert(data, NetLine) if "line" in data else msgspec.convert(data, Net)


def _active(on: MonitorState, name: str) -> CompiledRule | None:
    return next((rule for rule in on.program.rules if rule.kind == "net" and rule.id == name), None)


def remove_net(on: MonitorState, name: str) -> None:
    """Remove a net, which keeps its state. Raises KeyError if no active net has the name."""
    if (rule := _active(on, name)) is None:
        raise KeyError(name)
    on.removed_nets = {**on.removed_nets, name: rule}
    on.adopt(on.program.without(rule.number))


def run_started(on: MonitorState, event: ev.RunStarted) -> None:
    """Begin a new run of the session, unless it is the current one."""
    session = on.session
    if session.runs and event.run_id == session.run_id:
        return
    if session.runs or session.ended:
        for call in on.calls.values():
            if call.status == HELD:
                on.mark_unapproved(call)
        on.calls.clear()
        session.limits = on.program.limits.new_run(session.limits)
        restore_nets(on)
    session.new_run(event.run_id, event.model or "")


def message(on: MonitorState, event: ev.MessageEvent) -> None:
    """Remember a message if the user wrote it; other messages are no evidence."""
    if not (event.role == "user" or on.program.keeps_messages) or not (text := message_text(event.content)):
        return
    if event.role == "user":
        on.session.user_text.add(text, on.program.phrases, on.program.keeps_words)
    if on.program.keeps_messages:
        on.session.user_text.note(event.role, text)


def error_occurred(on: MonitorState, event: ev.ErrorOccurred) -> None:
    """Forget the latest user message, if messages are no longer recorded."""
    if event.code == ev.USER_MESSAGES_FULL:
        on.session.user_text.last = EMPTY


def turn(on: MonitorState, event: ev.TurnEvent) -> None:
    """A turn has begun or ended."""
    if event.turn > 0:
        turn = on.come_to(event.turn)
        over = isinstance(event, ev.TurnCompleted)
        if over:
            on.session.limits.turns_over = turn - on.session.turn_base
        on.session.begin_turn(turn + over)


def usage(on: MonitorState, event: ev.TokenUsageUpdated) -> list[Violation]:
    """Count tokens, and find money budgets for which their model has no price."""
    meter = on.session.meter
    unpriced = len(meter.unpriced)
    meter.add(event, on.program.prices)
    if len(meter.unpriced) == unpriced:
        return []
    found = on.program.budgets.unpriced(meter.unpriced)
    return [on.violation(entry, finding) for entry, finding in found]


def approval_requested(on: MonitorState, event: ev.ToolApprovalRequested) -> None:
    """Mark a call as pending approval, and the limits that ask as reported."""
    call = on.calls.get(event.tool_call_id)
    for violation in event.violations:
        _mark_reported(on, violation.get("policy"), violation.get("kind"))
    if call is not None and call.status in UNDECIDED and event.held:
        call.status, call.approval = HELD, event.approval_id
        for violation in event.violations:
            _add_shown(call, (violation.get("policy", ""), violation.get("rule", "")))


def granted(on: MonitorState, event: ev.ToolApprovalGranted) -> None:
    """Keep a person's approval of one tool with one input, for the rules that were shown to them.

    An answer is ignored if its call is not pending any more, or waits for another approval.
    """
    id, digest = event.tool_call_id, event.input_digest
    call = on.calls.get(id)
    for policy, name in event.asking:
        _mark_reported(on, policy, name)
    if not digest:
        return
    if call is None:
        if id not in on.session.finished and id not in on.session.earlier:
            on.session.granted[id] = Grant(event.tool_name, digest)
    elif call.status in (REQUESTED, HELD) and _answers(event, call):
        for rule in event.asking:
            _add_shown(call, rule)
        on.session.granted[id] = Grant(event.tool_name or call.name, digest, call.shown or None, event.approval_id)


def lapsed(on: MonitorState, event: ev.ToolApprovalDenied | ev.ToolApprovalExpired) -> None:
    """Note that the approval of a call was declined, or has expired."""
    call = on.calls.get(event.tool_call_id)
    if call is not None and call.status in UNDECIDED and _answers(event, call):
        on.mark_unapproved(call)
        call.status, call.shown = LAPSED, ()
        on.session.granted.pop(call.id, None)


def _answers(event: ev.ApprovalEvent, call: CallState) -> bool:
    """Whether an event is about the approval that the call waits for."""
    return event.approval_id == (call.approval or event.approval_id)


def violated(on: MonitorState, event: ev.PolicyViolated) -> None:
    """Replay a violation; one found at the end of a run is open again in the next run."""
    rule = on.program.named(event.policy, event.rule)
    waits = event.action == "request_approval" and _held(on, event)
    if rule is not None and rule.kind == event.kind and not (waits or event.at_end or rule.machine.denies_none):
        on.session.violated |= {rule.id}
    _mark_reported(on, event.policy, event.kind)


def _mark_reported(on: MonitorState, policy: str | None, name: str | None) -> None:
    """Note that a limit, if it is one, was reported, as it is once in a run."""
    for number, entry in enumerate(on.program.limits.entries):
        if entry.name == name and entry.policy == policy:
            on.session.limits.reported |= {number}


def warned(on: MonitorState, event: ev.BudgetWarned) -> None:
    """Replay a warning, so that it is not repeated."""
    for number in on.program.limits.warns:
        entry = on.program.limits.entries[number]
        if (entry.name, entry.limit.max) == (event.limit, event.max):
            on.session.limits.warned |= {number}


def budget_reserved(on: MonitorState, event: ev.BudgetReserved) -> list[Violation]:
    """Note the store's answer about a shared budget; a run that can reserve nothing is cancelled at its start."""
    entry = on.program.budgets.entry(event.budget, event.key)
    if entry is None:
        return []
    on.session.budgets.apply(event)
    if event.granted:
        return []
    finding = finding_of(entry, event)
    if entry.action == "warn" or event.asked_for == "usage":
        return [on.violation(entry, finding)]
    if event.asked_for == "call":
        return []  # it is decided on next
    return [on.violation(entry, msgspec.structs.replace(finding, action="cancel"))]


def _held(on: MonitorState, event: ev.PolicyViolated) -> bool:
    """Whether a violation's call (without an id: the last one being decided) is held for approval; marks it so."""
    id = event.tool_call_id
    undecided = [call for call in on.calls.values() if call.status in UNDECIDED]
    waiting = [call for call in undecided if call.id == id or (id is None and _is_undecided(on, call))]
    if waiting:
        waiting[-1].status = HELD
        _add_shown(waiting[-1], (event.policy, event.rule))
    return bool(waiting)


def _is_undecided(on: MonitorState, call: CallState) -> bool:
    """Whether no approval was requested yet, or the latest was granted."""
    grant = on.session.granted.get(call.id)
    return not call.approval or (grant is not None and grant.approval == call.approval)


def _add_shown(call: CallState, rule: RuleName) -> None:
    """Add a rule to those shown to the person who answers."""
    if rule not in call.shown:
        call.shown = (*call.shown, rule)


def ended(on: MonitorState, event: ev.Event) -> None:
    """The run is over."""
    on.session.ended = event.type


def unconcerned(on: MonitorState, event: ev.Event) -> None:
    """Ignore an event that no rule depends on."""


Handler: TypeAlias = Callable[[MonitorState, Any], list[Violation] | None]
"""Returns the violations found; None for types of events that cannot violate anything."""

HANDLERS: dict[type[ev.Event], Handler] = {
    **dict.fromkeys((*ev.EVENT_TYPES.values(), ev.Unrecognized), unconcerned),
    ev.RunStarted: run_started,
    ev.MessageSent: message,
    ev.MessageReceived: message,
    ev.TurnStarted: turn,
    ev.TurnCompleted: turn,
    ev.TokenUsageUpdated: usage,
    ev.ToolCallRequested: MonitorState.on_requested,
    ev.ToolCallStarted: MonitorState.on_started,
    ev.ToolCallCompleted: MonitorState.on_completed,
    ev.ToolCallFailed: MonitorState.on_failed,
    ev.ToolCallDenied: MonitorState.on_denied,
    ev.ToolApprovalRequested: approval_requested,
    ev.ToolApprovalGranted: granted,
    ev.ToolApprovalDenied: lapsed,
    ev.ToolApprovalExpired: lapsed,
    ev.PolicyViolated: violated,
    ev.BudgetWarned: warned,
    ev.BudgetReserved: budget_reserved,
    ev.NetJoined: net_joined,
    ev.NetLeft: net_left,
    ev.ErrorOccurred: error_occurred,
    ev.RunCompleted: ended,
    ev.RunFailed: ended,
    ev.RunCancelled: ended,
}
"""The handler of each type of event."""


def observe_limited(on: MonitorState, event: ev.Event, handler: Handler) -> list[Violation]:
    """Handle an event; returns its violations, those of limits included."""
    limits = on.program.limits
    found: list[Violation] = []
    if on.clocked and event.at is not None:
        if isinstance(event, ev.RunStarted):  # a new run's clocks begin with it
            run_started(on, event)
            handler = unconcerned
        now = ev.at_ms(event.at)
        passed(on, now)
        on.session.limits.acted(now, over=bool(on.session.ended))
        found += newly_exceeded(on, limits.clocks)
    found += handler(on, event) or ()
    if moved := limits.moved(type(event)):
        found += newly_exceeded(on, moved)
    return found


def passed(on: MonitorState, now: int) -> None:
    """Set the time, in milliseconds since the epoch."""
    on.program.limits.passed(on.session.limits, now, on.waiting)


def newly_exceeded(on: MonitorState, moved: Sequence[int]) -> list[Violation]:
    """The violations of those of these limits that are exceeded now and were not before."""
    session = on.session
    if session.ended:
        return []
    found = on.program.limits.exceeded_now(session.limits, session.meter, moved)
    return [on.exceeded(each, None) for each in found] if found else []
