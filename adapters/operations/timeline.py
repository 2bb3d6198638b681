"""Events and calls as people read them, on a terminal and on the page.

An event is an item of a timeline. A call is shown by its portable names, its command lines taken apart, its edits as
lines; nothing is left out: what is not shown as a command or an edit is in `rest`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from difflib import unified_diff
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall, rule_name
from proctor.policies.events.run_context import PORTABLE, Tool
from proctor.policies.language.facts import ToolTable
from proctor.policies.limits import BUDGETS, LIMITS
from proctor.policies.shell.parser import read_commands
from proctor.policies.values.amounts import dollars, figure_in, used_of
from proctor.supervisor.ports.stored_types import APPROVAL_WORDS
from proctor.supervisor.store.invariants import state_after, violations_of

from ..evaluate.judge import CallLine
from .views import CallShown, CommandLine, CommandPart, Edit, EditLine, TimelineItem, expiry

_LONGEST = 300
_CALLS_KNOWN = 4096
"""How many of the latest calls are remembered with their input."""


class TimelineItems:
    """Turns events into items, one after another; an event that says nothing to people gives none.

    `ran`: how many calls of the session ran in all, where that is known; the place of a call in an order is then told
    as `call 3 of 7`.
    """

    def __init__(self, *, ran: int | None = None) -> None:
        self._ran = ran
        self._calls: dict[str, dict[str, Any]] = {}
        self._denied: dict[str, None] = {}
        self._requesting: dict[str, set[tuple[str, str]]] = {}
        """The policies and rules that request the approval of a call, by call."""
        self._units: dict[str, str] = {}
        """By budget."""

    def of(self, event: ev.Event) -> TimelineItem | None:
        """The item of one event."""
        described = _DESCRIBED.get(type(event))
        if described is None:
            return None
        kind, describe = described
        input = self._new_input(event) if isinstance(event, ev.ToolEvent) else None
        tone, label, text = describe(self, event)
        item = TimelineItem(
            seq=event.seq,
            at=event.at,
            run_id=event.run_id,
            event=event.type,
            kind=kind,
            tone=tone,
            label=label,
            text=_cut(text) if kind in _WHOLE else text,
            whole=text if kind in _WHOLE and len(text.strip()) > _LONGEST else None,
            tool_call_id=getattr(event, "tool_call_id", None) or None,
            tool_name=getattr(event, "tool_name", None) or None,
            tool_input=input,
        )
        if isinstance(event, ev.PolicyViolated):
            requesting = self._requesting.get(event.tool_call_id or "", ())
            item = replace(item, repeats=(event.policy, event.rule) in requesting)
        if isinstance(event, ev.ToolCallDenied):
            item = replace(item, why=(f"the model is told: {event.tell_model or 'nothing'}",))
        if isinstance(event, ev.ToolApprovalRequested):
            answerable = not event.ran and bool(event.held or event.input_digest)
            waits = event.held and not event.ran
            why = tuple(_asked_by(event)) if waits else ()
            self._requesting[event.tool_call_id or ""] = {(v.policy, v.rule) for v in violations_of(event) if waits}
            _drop_oldest(self._requesting)
            item = replace(item, approval_id=event.approval_id if answerable else None, waits=waits, why=why)
        elif isinstance(event, ev.ApprovalEvent):
            item = replace(item, approval_id=event.approval_id, closed=f"{label}{_closed(event)}")
        return item

    def call(self, event: ev.ToolEvent | ev.ToolOutcome) -> str:
        """The call that an event is of, as far as it is known."""
        input = self._calls.get(event.tool_call_id)
        return event.tool_name if input is None else _call(event.tool_name, input)

    def decided(self, event: ev.ToolCallDenied | ev.ToolCallStarted) -> Rendering:
        """A call that was denied, or that runs: allowed, not asked about, or in spite of a denial."""
        denied, call = event.tool_call_id in self._denied, self.call(event)
        if isinstance(event, ev.ToolCallDenied):
            self._denied[event.tool_call_id] = None
            _drop_oldest(self._denied)
            return "bad", "denied", call
        return ("care", "ran", f"{call} although it was denied") if denied else ("good", "allowed", call)

    def requested(self, event: ev.ToolCallRequested) -> Rendering:
        """A call that is to be decided, also under the id of an earlier one."""
        self._denied.pop(event.tool_call_id, None)
        return "soft", "asked", self.call(event)

    def placed(self, event: ev.PolicyViolated) -> str:
        """A violation's message; a call's place in an order with the number of calls that ran, and this."""
        before = event.details.get("sequence_length", 0)
        if not isinstance(before, int):  # of another version
            return event.message
        place = f"{event.details.get('actual')} (call {before + 1}"
        if self._ran is None or not event.message.startswith((f"{place})", f"{place};")):
            return event.message
        of = self._ran + (event.enforcement == "prevented")
        return f"{place} of {of}{event.message[len(place) :]}"

    def budget_unit(self, event: ev.BudgetReserved) -> str:
        """What a budget counts in; known from here on."""
        kind = BUDGETS.get(f"max_{event.counts}")
        return self._units.setdefault(event.budget, kind.unit if kind else "")

    def limit_unit(self, event: ev.BudgetWarned) -> str:
        """What a limit counts in, or a budget from which the run has reserved."""
        kind = LIMITS.get(event.limit)
        return kind.unit if kind else self._units.get(event.limit, "")

    def _new_input(self, event: ev.ToolEvent) -> dict[str, Any] | None:
        """The input of a call, where it was not known so."""
        before = self._calls.get(event.tool_call_id)
        if before == event.tool_input and not isinstance(event, ev.ToolCallRequested):
            return None
        self._calls[event.tool_call_id] = event.tool_input
        _drop_oldest(self._calls)
        return event.tool_input


def _drop_oldest(by_call: dict[str, Any]) -> None:
    if len(by_call) > _CALLS_KNOWN:
        del by_call[next(iter(by_call))]


def is_visible(event: ev.Event) -> bool:
    """Whether an event has an item."""
    return type(event) in _DESCRIBED


Rendering: TypeAlias = tuple[Any, str, str]
"""The tone, the label and the text of an item."""


def _violated(items: TimelineItems, event: ev.PolicyViolated) -> Rendering:
    expected = event.details.get("expected")
    message = items.placed(event)
    why = f"{message}; expected {expected}" if expected else message
    tone = "care" if event.enforcement == "observed" else "bad"
    return tone, "violation", f"{rule_name(event.policy, event.rule)}: {why} ({event.enforcement})"


def _used(_: TimelineItems, event: ev.TokenUsageUpdated) -> Rendering:
    cost = f", {dollars(event.cost_usd)}" if event.cost_usd else ""
    apart = f", {event.subagent_tokens:,} of them by subagents" if event.subagent_tokens else ""
    used = f"{event.input_tokens:,} in, {event.output_tokens:,} out{apart}{cost}"
    return "soft", "tokens", f"{used} so far" if event.scope == "cumulative" else f"+ {used}"


def _warned(items: TimelineItems, event: ev.BudgetWarned) -> Rendering:
    unit = items.limit_unit(event)
    return "care", "warning", f"{event.limit}: {used_of(unit, event.used, event.max)} used"


def _reserved(items: TimelineItems, event: ev.BudgetReserved) -> Rendering:
    unit = items.budget_unit(event)
    left = f"{used_of(unit, event.used, event.max)} used"
    if event.granted:
        return "soft", "budget", f"{event.budget}: {left}, {figure_in(unit, event.reserved)} reserved"
    return "care", "budget", f"{event.budget}: {left}, nothing can be reserved"


def _approval_requested(_: TimelineItems, event: ev.ToolApprovalRequested) -> Rendering:
    call = _call(event.tool_name, event.tool_input)
    if event.ran:
        return "care", "approval", f"{call} ran without the one it needed: it could not be held"
    if event.held:
        how_long = _seconds(event.at, expiry(event.at, event.expires_at))
        return "care", APPROVAL_WORDS["requested"], f"{call} waits {f'{how_long} ' if how_long else ''}for a person"
    if event.input_digest:
        return "care", "approval", f"{call} needs one before a later run"
    return "care", "approval", f"{event.violation_kind or 'what happened'} would have needed one"


STARTER_UNKNOWN = "who started the run is not known; give its context a `user`"
"""Why nobody may answer under `four_eyes`, if the run's context has no user."""


def _asked_by(event: ev.ToolApprovalRequested) -> Iterator[str]:
    yield from (f"{rule_name(found.policy, found.rule)}: {found.message}" for found in violations_of(event))
    if event.started_by == "":
        yield f"nobody may answer: {STARTER_UNKNOWN}"


def _approval_closed(_: TimelineItems, event: ev.ApprovalEvent) -> Rendering:
    state = state_after(event)
    tone = {"granted": "good", "denied": "bad"}.get(state, "care")
    return tone, APPROVAL_WORDS[state], f"{event.tool_name}{_closed(event)}"


def _closed(event: ev.ApprovalEvent) -> str:
    """Who answered an approval, and why; or why nobody did."""
    if isinstance(event, ev.ToolApprovalExpired):
        return f": {event.reason or 'nobody answered in time'}"
    return f" by {event.by or 'unknown'}{f': {event.reason}' if event.reason else ''}"


def _failed(_: TimelineItems, event: ev.RunFailed) -> Rendering:
    error = event.error
    return "bad", "failed", str(error.get("message", error) if isinstance(error, dict) else error)


def _message(_: TimelineItems, event: ev.MessageSent | ev.MessageReceived) -> Rendering:
    own = isinstance(event, ev.MessageReceived) and event.role == "assistant"
    return "plain", "agent" if own else event.role, _content(event.content)


_DESCRIBED: dict[type[ev.Event], tuple[Any, Callable[[TimelineItems, Any], Rendering]]] = {
    ev.RunStarted: (
        "run",
        lambda _, e: ("plain", "run", f"{e.run_id} under {e.metadata.get('policy') or 'no policy'}"),
    ),
    ev.MessageSent: ("message", _message),
    ev.MessageReceived: ("message", _message),
    ev.ToolCallRequested: ("request", TimelineItems.requested),
    ev.ToolCallStarted: ("call", TimelineItems.decided),
    ev.ToolCallCompleted: ("result", lambda _, e: ("soft", "result", _output(e.tool_output))),
    ev.ToolCallFailed: ("result", lambda _, e: ("care", "failed", _output(e.error))),
    ev.ToolCallDenied: ("call", TimelineItems.decided),
    ev.TokenUsageUpdated: ("usage", _used),
    ev.PolicyViolated: ("violation", _violated),
    ev.BudgetWarned: ("limit", _warned),
    ev.BudgetReserved: ("limit", _reserved),
    ev.ToolApprovalRequested: ("approval", _approval_requested),
    ev.ToolApprovalGranted: ("approval", _approval_closed),
    ev.ToolApprovalDenied: ("approval", _approval_closed),
    ev.ToolApprovalExpired: ("approval", _approval_closed),
    ev.ErrorOccurred: ("error", lambda _, e: ("bad", "error", f"{e.code}: {e.message}")),
    ev.ErrorRecovered: ("error", lambda _, e: ("good", "recovered", f"{e.code}: {e.message}")),
    ev.RunCompleted: ("end", lambda _, e: ("good", "completed", _output(e.output))),
    ev.RunFailed: ("end", _failed),
    ev.RunCancelled: ("end", lambda _, e: ("bad", "cancelled", e.reason + (f" (by {e.by})" if e.by else ""))),
    ev.Unrecognized: ("other", lambda _, e: ("soft", "other", e.type)),
}
"""The subject and the text of each event."""
_WHOLE = ("message", "result", "end")
"""The kinds whose texts may be long."""


def _call(name: str, input: dict[str, Any]) -> str:
    return CallLine(position=0, seq=0, id="", name=name, input=input).text


def _content(content: Any) -> str:
    """The text of a message; of a list of blocks, that of its blocks."""
    if isinstance(content, list):
        return " ".join(_block_texts(content))
    return content if isinstance(content, str) else _output(content)


def _block_texts(blocks: list[Any]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, dict):
            yield str(block.get("text") or block.get("thinking") or f"[{block.get('type', 'block')}]")


def _output(value: Any) -> str:
    """A call's output; for a command, its printed text."""
    if isinstance(value, dict) and "exit_code" in value:
        printed = f"{value.get('stdout') or ''}{value.get('stderr') or ''}".strip() or "(nothing printed)"
        code = value.get("exit_code")
        return f"exit {code}: {printed}" if code else printed
    if value is None:
        return "(nothing)"
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _seconds(start: datetime | None, end: datetime | None) -> str:
    return f"{(end - start).total_seconds():.0f} s" if start and end else ""


MOST_LINES = 400
"""Of one edit."""
MOST_TEXT = 200_000
"""Characters of a text that is compared or taken apart; what is longer is shown as it is."""
_NO_END = "(no line break at the end)"
_BEFORE = ("old_string", "oldString", "old_str", "oldText", "old_text")
_AFTER = ("new_string", "newString", "new_str", "newText", "new_text")
_PATHS = ("file_path", "filePath", "filepath", "path", "notebook_path", "abs_path")
_CONTENTS = ("content", "new_source", "contents")
_PATCHES = ("diff", "patch", "unified_diff")
_MARKS = {"add": "+", "delete": "-"}
"""Kinds of changes whose `diff` is the file's text, with the mark of its lines."""
_EDITS = {"write", "edit"}


def call_shown(call: ToolCall, tools: Iterable[Tool]) -> CallShown:
    """A call made readable, with the help of its client's tools, if they are known."""
    table = ToolTable(tools)
    names = table.names(table.kind(call.name, call.input))
    own = (name.casefold() for name in names.own)
    acts = tuple(dict.fromkeys((*(name for name in own if name in PORTABLE), *names.acts)))
    if "bash" in acts:
        return _command(call, table, acts)
    if _EDITS & set(acts) or "delete" in acts or "move" in acts:
        edits, used = _edits(call.input)
        rest = {key: value for key, value in call.input.items() if key not in used}
        return CallShown(acts=acts, edits=edits, rest=rest)
    return CallShown(acts=acts, rest=call.input)


def _command(call: ToolCall, table: ToolTable, acts: tuple[str, ...]) -> CallShown:
    given = call.input.get("command")
    if given is None:
        given = table.input(call.name, call.input).get("command")
    is_words = isinstance(given, list) and given and all(isinstance(word, str) for word in given)
    line = shlex.join(given) if is_words else given
    if not isinstance(line, str) or len(line) > MOST_TEXT:
        return CallShown(acts=acts, rest=call.input)
    found = read_commands(line)
    parts = msgspec.convert(found.parts, tuple[CommandPart, ...], from_attributes=True)
    shown = CommandLine(line=line, parts=parts, dynamic=found.dynamic)
    rest = {key: value for key, value in call.input.items() if key != "command"}
    return CallShown(acts=acts, commands=(shown,), rest=rest)


def _edits(input: dict[str, Any]) -> tuple[tuple[Edit, ...], set[str]]:
    """The edits in an input, and which of its keys they show whole."""
    found: list[Edit] = []
    used: set[str] = set()
    path = _text(input, _PATHS)
    edit = _edit(input, path)
    if edit is not None:
        shown, keys = edit
        found.append(shown)
        used |= keys
    for key in ("edits", "changes", "diffs"):
        several = input.get(key)
        if isinstance(several, list) and several and all(isinstance(each, dict) for each in several):
            made = [_edit(each, _text(each, _PATHS) or path) for each in several]
            if all(each is not None for each in made):
                found += [_with_rest(*each, item) for each, item in zip(made, several, strict=True) if each]
                used.add(key)
    if found and path is not None and all(each.path == path for each in found):
        used |= {key for key in _PATHS if input.get(key) == path}
    return tuple(found), used


def _edit(item: dict[str, Any], path: str | None) -> tuple[Edit, set[str]] | None:
    before, after = _key(item, _BEFORE), _key(item, _AFTER)
    own = {key for key in _PATHS if item.get(key) == path}
    if after is not None:
        old = item[before] if before else ""
        return _cut_edit(path, _compared(old, item[after])), own | {after} | ({before} if before else set())
    if (patch := _key(item, _PATCHES)) is not None:
        mark = _MARKS.get(str(item.get("kind")))
        lines = _marked(mark, item[patch]) if mark else map(_line, item[patch].split("\n"))
        return _cut_edit(path, lines), own | {patch}
    if (whole := _key(item, _CONTENTS)) is not None:
        return _cut_edit(path, _marked("+", item[whole])), own | {whole}
    return None


def _with_rest(edit: Edit, used: set[str], item: dict[str, Any]) -> Edit:
    return msgspec.structs.replace(edit, rest={key: value for key, value in item.items() if key not in used})


def _key(item: dict[str, Any], names: Iterable[str]) -> str | None:
    return next((n for n in names if isinstance(item.get(n), str) and len(item[n]) <= MOST_TEXT), None)


def _text(item: dict[str, Any], names: Iterable[str]) -> str | None:
    key = _key(item, names)
    return None if key is None else str(item[key])


def _compared(old: str, new: str) -> Iterator[EditLine]:
    before, after = _lines(old), _lines(new)
    if old and new and old.endswith("\n") != new.endswith("\n"):
        (before if new.endswith("\n") else after).append(_NO_END)
    for line in list(unified_diff(before, after, lineterm="", n=3))[3:]:
        yield _line(line)


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _marked(mark: str, text: str) -> Iterable[EditLine]:
    return (EditLine(mark=mark, text=line) for line in _lines(text))


def _line(line: str) -> EditLine:
    if line.startswith("@@"):
        return EditLine(mark="@", text=line)
    return EditLine(mark=line[0], text=line[1:]) if line[:1] in ("+", "-", " ") else EditLine(mark=" ", text=line)


def _cut_edit(path: str | None, lines: Iterable[EditLine]) -> Edit:
    whole = list(lines)
    return Edit(path=path, lines=tuple(whole[:MOST_LINES]), cut=max(0, len(whole) - MOST_LINES))
