"""A suggested policy as a commented file, its tests, and its rest without what a base policy denies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from proctor.policies import (
    Allow,
    Allowlist,
    Blocklist,
    Check,
    Deny,
    Refuted,
    merge_policies,
    parse_policies,
    preflight,
    verify,
)
from proctor.policies.analysis.values import placed
from proctor.policies.language.selectors import NameScope
from proctor.policies.rules.net_shorthand import NetLine
from proctor.policies.rules.petri_net import Net
from proctor.policies.stack.clauses import clauses_of
from proctor.policies.stack.merge import effective_limits
from proctor.policies.values.amounts import counted
from proctor.policies.values.json_values import scalars_in

from .entries import Entry, flow
from .inputs import is_writable, names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from proctor.policies import Policy, Proved, Unknown
    from proctor.policies.events.run_context import Tool

    from .learning import Suggestion
    from .observed import ObservedCall, ObservedSession

    Agent: TypeAlias = tuple[Tool, ...]

_TESTED = 20
"""How many sessions become tests."""
_QUICK = 400_000
"""How many steps a search may take for a part of the base that is missing, before all of them are taken over."""
_MOST_CALLS = 40
"""A session with more calls does not become a test, which people should read."""


def policy_text(suggestion: Suggestion) -> str:
    """The policy as YAML, with the evidence above each entry."""
    return "\n".join(_lines(suggestion)) + "\n"


def _lines(suggestion: Suggestion) -> Iterator[str]:
    disturbed = len(suggestion.disturbed)
    sessions = counted(suggestion.sessions, "session")
    yield f"# Learned from {sessions}. Tried on each after learning from the others, it disturbed {disturbed:,}."
    yield "# RARE: fewer than three sessions show this. Look at it before you keep it."
    yield "version: 1"
    yield f"name: {flow(suggestion.name)}"
    yield f"on_violation: {suggestion.action}"
    if suggestion.limits:
        yield "limits:"
    for entry in suggestion.limits:
        yield from _entry(entry, 2)
        yield from (f"  {key}: {flow(value)}" for key, value in entry.part.items())
    yield "tool_rules:"
    yield "  - allow:" if suggestion.tools else '  - deny: ["*"]  # nothing is left that could be allowed'
    for entry in suggestion.tools:
        yield from _tool(suggestion, entry)
    for key, entries in (("rules", suggestion.rules), ("nets", suggestion.nets)):
        if entries:
            yield f"{key}:"
        for entry in entries:
            yield from _entry(entry, 2)
            yield f"  - {flow(entry.part)}"
    for entry, why in suggestion.dropped:
        yield f"# left out: {_one_line(entry.about)} ({entry.evidence}): {_one_line(why)}"


def _entry(entry: Entry, indent: int) -> Iterator[str]:
    yield f"{' ' * indent}# {_one_line(entry.about)}: {entry.evidence}"


def _tool(suggestion: Suggestion, entry: Entry) -> Iterator[str]:
    """One item of the allow list."""
    yield f"      # {entry.evidence}"
    conditions = [each for each in suggestion.of(entry.tool, "input") if "type" not in each.part]
    commands = suggestion.of(entry.tool, "command")
    if not conditions and not commands:
        yield f"      - {flow(entry.tool)}"
        return
    yield f"      - tool: {flow(entry.tool)}"
    yield "        where:"
    for each in conditions:
        yield from _entry(each, 10)
        yield f"          - {flow(each.part)}"
    if commands:
        yield f"          - path: {flow(commands[0].part['path'])}"
        yield "            runs:"
        yield from (f"              - {flow(each.part['runs'])}  # {each.evidence}" for each in commands)


def _one_line(text: str) -> str:
    return re.sub(r"[^\x20-\x7e]+", " ", text)


def tests_text(
    suggestion: Suggestion, sessions: Sequence[ObservedSession], policy: str, without: Collection[str]
) -> str:
    """Tests of the policy, which is in that file as seen from their folder: the fewest of the `sessions` it was
    learnt from that use every tool, which it allows, and a call that each restriction stops; but those named in
    `without`.
    """
    sourced = any(entry.part.get("type") == "provenance" for entry in suggestion.entries)
    lines = [f"policies: [{flow(policy)}]", "tests:"]
    for session in _chosen(suggestion, sessions):
        lines += _session_test(session, sourced) if session.id not in without else ()
    names = {entry.tool for entry in suggestion.tools}
    stopped = [e for e in suggestion.entries if "value" in e.stops and e.tool in names]
    for entry in stopped:
        example = _example(entry, sessions)
        if example is not None:
            name = f"stops another {entry.stops['path']} of {entry.tool}"
            if name in without:
                continue
            lines += [f"  - name: {flow(name)}", "    calls:"]
            lines += [f"      - {flow({**example, 'expect': suggestion.action})}"]
    lines += ["  - name: stops a tool that was never used", "    calls:"]
    lines += [f"      - {{tool: never-used, expect: {suggestion.action}}}"]
    return "\n".join(lines) + "\n"


def _chosen(suggestion: Suggestion, sessions: Sequence[ObservedSession]) -> Iterator[ObservedSession]:
    """Short sessions that the policy allows, until every tool is used."""
    missing = {entry.tool for entry in suggestion.tools}
    allowed = missing.copy()
    disturbed = suggestion.disturbed
    chosen = 0
    for session in sorted(sessions, key=lambda each: (each.id in disturbed, len(each.calls))):
        tools = {call.tool for call in session.calls}
        short = len(session.calls) <= _MOST_CALLS and chosen < _TESTED
        if short and tools & missing and tools <= allowed and all(map(_is_writable, session.calls)):
            missing -= tools
            chosen += 1
            yield session


def _is_writable(call: ObservedCall) -> bool:
    """Whether a file can have every number of a call."""
    return all(map(is_writable, scalars_in([call.input, call.output])))


def _session_test(session: ObservedSession, sourced: bool) -> Iterator[str]:
    yield f"  - name: {flow(session.id)}"
    if session.workspace:
        yield f"    context: {flow({'workspace': session.workspace})}"
    yield "    calls:"
    turn = 0
    for n, call in enumerate(session.calls):
        yield f"      - {flow(_call(session, n, call, sourced, turn))}"
        turn = call.turn


def _call(session: ObservedSession, n: int, call: ObservedCall, sourced: bool, turn: int) -> dict[str, Any]:
    found: dict[str, Any] = {"tool": call.tool, "input": _portable_input(call)}
    if sourced and n in session.messages:
        found["user"] = session.messages[n]
    if n and call.turn == turn > 0:
        found["same_turn"] = True
    if call.failed:
        found["error"] = "failed"
    elif sourced and call.output is not None:
        found["result"] = call.output
    return found


def _portable_input(call: ObservedCall) -> dict[str, Any]:
    """The input by the names that the policy uses."""
    if call.tool == call.name:
        return call.input
    parts = {path.removeprefix("$.").removesuffix("[*]"): values for path, values in call.inputs.items()}
    return {key: values[0] if len(values) == 1 else [*values] for key, values in parts.items()}


def _example(entry: Entry, sessions: Sequence[ObservedSession]) -> dict[str, Any] | None:
    """A call of the tool that is like a recorded one, but for the value."""
    path, value = entry.stops["path"], entry.stops["value"]
    key = path.removeprefix("$.")
    if key.endswith("[*]"):
        key, value = key.removesuffix("[*]"), [value]
    for call in (call for session in sessions for call in session.calls if call.tool == entry.tool):
        if path in call.acts:
            return {"tool": call.tool, "input": placed(call.input, path, value)}
        if path in call.inputs and _is_writable(call):
            return {"tool": call.tool, "input": {**_portable_input(call), key: value}}
    return None


def without_denied(suggestion: Suggestion, base: Policy, observed: Sequence[ObservedSession]) -> Suggestion:
    """The suggestion without the entries that are not proved to be no looser than a base: with any tools, and with
    those of each agent whose sessions were observed. Where a rule, a net or a limit of the base is what denies calls,
    it becomes one of the suggestion, if the suggestion's tools can be called with it.
    """
    agents = dict.fromkeys([(), *(session.tools for session in observed)])
    of_base = _parts_of(base)

    def unproved(suggestion: Suggestion, steps: int | None = None) -> tuple[Proved | Refuted | Unknown, Agent] | None:
        """The first answer that is no proof, and with whose tools."""
        policy = merge_policies(parse_policies(suggestion.policy()))
        answers = ((verify(policy, no_looser_than=base, tools=agent or None, steps=steps), agent) for agent in agents)
        return next((each for each in answers if each[0].verdict != "proved"), None)

    left, parts = suggestion, list[Entry]()
    while left.tools:
        missing = len(of_base) - len(parts)
        if (found := unproved(left.within(parts), _QUICK if missing else None)) is None:
            break
        answer, agent = found
        if not isinstance(answer, Refuted):
            if not missing or not _may_run(left.within([*of_base.values()])):
                return _one_by_one(left, parts, unproved)
            parts = [*of_base.values()]
            continue
        denial = answer.violation
        part = of_base.get((denial.policy, denial.rule))
        if part is not None and part not in parts and _may_run(left.within([*parts, part])):
            parts.append(part)
            continue
        why = f"the base can deny it: rule `{denial.rule}`: {denial.message}"
        left, parts = left.without(_culprits(left, answer.session, agent) or left.tools, why), []
    return left.within(parts)


def _parts_of(base: Policy) -> dict[tuple[str, str], Entry]:
    """The rules, nets and limits of a base that another policy can have as they are, by their policy and id; of nets
    and limits of one name, the first.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    names: set[str] = set()
    for clause in clauses_of(base):
        record, scope = clause.record, clause.scope
        is_list = isinstance(record, Allow | Deny | Allowlist | Blocklist | Check)
        name = record.name if isinstance(record, Net) else ""
        if is_list or name in names or not scope.same_names(NameScope()):
            continue
        part = {**msgspec.to_builtins(record), "action": clause.action}
        part.pop("id", None)
        if clause.line:
            part = {"line": name, **{key: part[key] for key in NetLine.__struct_fields__ if key in part}}
        found[clause.policy, clause.id] = part
        names |= {name} - {""}
    for entry in effective_limits(base):
        if entry.name not in names:
            found[entry.policy, entry.name] = {
                entry.name: {**msgspec.to_builtins(entry.limit), "action": entry.action}
            }
            names.add(entry.name)
    return {
        (policy, id): Entry(kind="base", about=f"`{id}` of `{policy}`", tool="", sessions=0, part=part)
        for (policy, id), part in found.items()
    }


def _may_run(suggestion: Suggestion) -> bool:
    """Whether all that the suggestion allows can be called."""
    return not preflight(merge_policies(parse_policies(suggestion.policy()))).refusals


def _one_by_one(
    suggestion: Suggestion, parts: Sequence[Entry], unproved: Callable[[Suggestion], object]
) -> Suggestion:
    """Only the tools of which a proof is found with these parts of the base, each alone and all together."""
    left = suggestion
    for entry in suggestion.tools:
        others = [each for each in suggestion.tools if each is not entry]
        if unproved(suggestion.without(others, "").within(parts)) is not None:
            left = left.without([entry], "not proved to be no looser than the base")
    if left.tools and unproved(left.within(parts)) is not None:
        left = left.without(left.tools, "together not proved to be no looser than the base")
    return left.within(parts)


def _culprits(suggestion: Suggestion, session: Sequence[Mapping[str, Any]], agent: Agent) -> list[Entry]:
    """The entries that allow the last call of a session: the commands of its line, else the tool."""
    portable = {tool.name.casefold(): tool.every_act for tool in agent}
    for call in reversed(session):
        name = str(call["tool"]).casefold()
        tools = [entry for entry in suggestion.tools if entry.tool.casefold() in (name, *portable.get(name, ()))]
        for entry in tools:
            commands = suggestion.of(entry.tool, "command")
            texts = [value for value in call["input"].values() if isinstance(value, str)]
            run = {name for text in texts for name in names_in(text) or ()}
            named = [each for each in commands if any(_admits(each.part["runs"], name) for name in run)]
            return named if named and len(named) < len(commands) else tools
    return []


def _admits(named: str, run: str) -> bool:
    return run == named or run.startswith(f"{named} ") or named.startswith(f"{run} ")
