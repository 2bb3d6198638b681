"""Proofs rule by rule: what each rule of one stack decides, and where two stacks differ.

One stack: rules that do nothing, tools that can never be called, ends never reached. Two: each smallest kind of
difference, with one session that shows it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.text import Text

from proctor.policies import (
    CompiledPolicy,
    Limits,
    Policy,
    Proved,
    Refuted,
    RunContext,
    Unknown,
    compile_policy,
    merge_policies,
    preflight,
)
from proctor.policies.language.selectors import ToolWhere, VirtualTool
from proctor.policies.policy import Allow, Deny, members_of
from proctor.policies.reading.load import part_of
from proctor.policies.rules.count import Count
from proctor.policies.rules.lists import Allowlist, Blocklist
from proctor.policies.rules.net_shorthand import net_of
from proctor.policies.rules.rule import Rule, names, times
from proctor.policies.stack.clauses import LISTS, Clause, clauses_of
from proctor.policies.stack.merge import effective_limits

from ..kit.display_text import escape_control
from .counterexamples import session_of
from .diff import LABELS, DiffAnswer, answer_words, compare_sessions
from .proofs import WIDTH, ProofRecord, Prover, append_words, calls_text, record_of

_LISTS = (Allow, Deny, Allowlist, Blocklist)
_GLOB = frozenset("*?[")


NOT_ASKED = "not asked, as no time was left"
"""The reason of a record whose question came too late."""


def sanity(policies: Sequence[Policy], prove: Prover) -> Iterator[ProofRecord]:
    """A record for each rule, each tool in a rule about order, and a run that several rules keep from finishing.

    `refuted` is a finding. A rule that only warns is left out: it never decides. Once the time is
    over, all that follows is unknown.
    """
    whole = merge_policies(list(policies))
    policies = members_of(whole)
    everywhere = clauses_of(whole)
    ends = True
    for each in everywhere:
        if each.strictest == "warn":
            continue
        record = _not_asked(f"rule {each.id}") if prove.over() else _rule_record(policies, everywhere, each, prove)
        ends = ends and record.finishes
        yield record
    for tool in _ordered_tools(everywhere):
        yield _not_asked(f"callable {tool}") if prove.over() else _tool_record(whole, everywhere, tool, prove)
    if ends:
        yield from _run_records(whole)


def sanity_questions(policies: Sequence[Policy]) -> int:
    """How many records `sanity` gives."""
    everywhere = clauses_of(merge_policies(list(policies)))
    return sum(each.strictest != "warn" for each in everywhere) + sum(1 for _ in _ordered_tools(everywhere))


def kept(policies: Sequence[Policy], clauses: Sequence[Clause]) -> Policy:
    """The stack with no rules but these, whose names mean what they did."""
    places = {(each.member, each.place) for each in clauses}
    members = []
    for member, policy in enumerate(policies):
        left = {
            name: tuple(
                each
                for at, each in enumerate(getattr(policy, name))
                if (member, (name, at)) in places or (name == "nets" and isinstance(net_of(each), VirtualTool))
            )
            for name in LISTS
        }
        members.append(part_of(policy, **left))
    return merge_policies(members)


def _not_asked(question: str) -> ProofRecord:
    return ProofRecord(question=question, verdict="unknown", session=[], explored={}, reason=NOT_ASKED)


def _rule_record(policies: Sequence[Policy], clauses: Sequence[Clause], rule: Clause, prove: Prover) -> ProofRecord:
    """Whether a rule decides anything that the others do not."""
    others = [each for each in clauses if each is not rule]
    answer = prove(kept(policies, others), no_looser_than=kept(policies, [rule]))
    question = f"rule {rule.id}"
    if answer.verdict == "unknown":
        return _record(question, "unknown", answer, answer.reason)
    if answer.verdict == "refuted":
        if why := _why_endless(policies, rule, prove):
            return _record(question, "refuted", answer, why, finishes=False)
        return _record(question, "proved", answer, f"`{rule.id}` decides: without it this would be allowed")
    return _record(question, "refuted", answer, _why_dead(policies, others, rule, prove))


def _why_dead(policies: Sequence[Policy], others: Sequence[Clause], rule: Clause, prove: Prover) -> str:
    """Why a rule decides nothing: it means no call, another rule stops the same, or several do."""
    id = rule.id
    stack, alone = kept(policies, others), kept(policies, [rule])
    if not isinstance(rule.record, _LISTS):
        for selector in (each for each in rule.profile.all() if each):  # an approval has an empty one
            named = Deny([selector] if isinstance(selector, str | ToolWhere) else selector)
            if (reached := prove(stack, reach=named)).verdict == "proved":
                return f"vacuous: {reached.reason}"
    dead = f"dead: without `{id}` the same sessions are allowed"
    if prove(kept(policies, []), no_looser_than=alone).verdict == "proved":
        return dead  # by itself: no other rule is the reason
    for other in others:
        if prove.over():
            break
        if prove(kept(policies, [other]), no_looser_than=alone).verdict == "proved":
            return f"subsumed: `{other.id}` already stops all that `{id}` stops"
    return dead


def _why_endless(policies: Sequence[Policy], rule: Clause, prove: Prover) -> str:
    """Why no run that a rule applies to can finish; empty if one can, as far as its own calls go."""
    owed = rule.profile.obligation if isinstance(rule.record, Rule) and rule.denies else None
    if owed is None or owed.after is not None:
        return ""
    fewer = Count(tool=owed.tool, max=owed.least - 1, of=owed.of, when=rule.record.when, action="deny")
    bare = msgspec.structs.replace(
        policies[rule.member], rules=(fewer,), tool_rules=(), nets=(), limits=Limits(), budgets=()
    )
    if prove(merge_policies(list(policies)), keeps=bare).verdict != "proved":
        return ""
    return f"cannot finish: it requires {names(owed.tool)} {times(owed.least)}, and no session allows that"


def _ordered_tools(clauses: Sequence[Clause]) -> Iterator[str]:
    """The tools that rules other than lists name, each once."""
    names: dict[str, None] = {}
    for each in clauses:
        if not isinstance(each.record, _LISTS):
            names |= dict.fromkeys(each.names)
    yield from (name for name in names if not _GLOB & set(name))


def _tool_record(whole: Policy, clauses: Sequence[Clause], tool: str, prove: Prover) -> ProofRecord:
    """Whether a tool can be called at all; one that a list denies is not meant to be."""
    question, named = f"callable {tool}", Deny([tool])
    answer = prove(whole, reach=named)
    if answer.verdict == "unknown":
        return _record(question, "unknown", answer, answer.reason)
    if answer.verdict == "refuted":
        return _record(question, "proved", answer, f"`{tool}` can be called")
    policies = members_of(whole)
    lists = [each for each in clauses if isinstance(each.record, _LISTS)]
    if prove(kept(policies, lists), reach=named).verdict == "proved":
        return _record(question, "proved", answer, f"`{tool}` is denied by a list")
    always = (
        each.id
        for each in clauses
        if not prove.over() and prove(kept(policies, [each]), reach=named).verdict == "proved"
    )
    blamed = next(always, None)
    why = f"`{blamed}` always denies it" if blamed is not None else "the rules together never allow it"
    return _record(question, "refuted", answer, f"never callable: {why}")


def _run_records(whole: Policy) -> Iterator[ProofRecord]:
    """What rules require together and no run can do; preflight finds it, so that no run starts either."""
    for found in preflight(whole):
        if found.code == "never_satisfied" and found.severity == "refuse":
            reason = f"cannot finish: {found.message}"
            yield ProofRecord(
                question="run", verdict="refuted", session=[], explored={}, reason=reason, finishes=False
            )


def _record(
    question: str, verdict: str, answer: Proved | Refuted | Unknown, reason: str, *, finishes: bool = True
) -> ProofRecord:
    found = record_of(question, answer)
    return msgspec.structs.replace(found, verdict=verdict, reason=reason, context={}, finishes=finishes)


class ProofDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of difference.

    Attributes:
        verdict: `refuted` with a session that shows it, or `unknown`.
        change: `newly_refused`, `newly_allowed` or `other_action`; of an unknown one, what it may be.
        rules: The rules and limits that are stricter in this session: of the old policy where something is newly
            allowed, of the new one where it is newly refused.
        session: The calls, with what the less strict policy decides; the policies decide the last one differently.
        old: The old policy's answer to that call: the `action`, and the `rules` that are broken.
        new: The new policy's decision.
        reason: Why it is unknown.
        context: The run's context there.
    """

    verdict: str
    change: str
    rules: list[str]
    session: list[dict[str, Any]] = []
    old: DiffAnswer | None = None
    new: DiffAnswer | None = None
    reason: str = ""
    context: dict[str, Any] = {}


def differences(old: Sequence[Policy], new: Sequence[Policy], prove: Prover) -> Iterator[ProofDifference]:
    """The calls that the new policies allow and the old ones do not, rule by rule, and the other way round.

    Once the time is over, the rules that follow are one unknown difference.
    """
    compiled = compile_policy(merge_policies(list(old))), compile_policy(merge_policies(list(new)))
    for stack, base, change in ((new, old, "newly_allowed"), (old, new, "newly_refused")):
        whole = merge_policies(list(stack))
        if prove(whole, no_looser_than=merge_policies(list(base))).verdict == "proved":
            continue
        yield from _grouped(_ways(whole, base, change, compiled, prove))


def difference_questions(old: Sequence[Policy], new: Sequence[Policy]) -> int:
    """The most questions that `differences` asks."""
    return 2 + sum(1 for base in (old, new) for _ in _parts(base))


def _ways(
    stack: Policy, base: Sequence[Policy], change: str, compiled: tuple[CompiledPolicy, CompiledPolicy], prove: Prover
) -> Iterator[ProofDifference]:
    """For each rule of a base that the stack does not imply, a session, as the old and the new policy decide it."""
    late: list[str] = []
    for name, part in _parts(base):
        if late or prove.over():
            late.append(name)
            continue
        answer = prove(stack, no_looser_than=part)
        if answer.verdict == "unknown":
            yield ProofDifference(verdict="unknown", change=change, rules=[name], reason=answer.reason)
        elif isinstance(answer, Refuted):
            yield _shown_by(answer, name, change, compiled)
    if late:
        yield ProofDifference(verdict="unknown", change=change, rules=late, reason=NOT_ASKED)


def _shown_by(
    answer: Refuted, rule: str, change: str, compiled: tuple[CompiledPolicy, CompiledPolicy]
) -> ProofDifference:
    """The difference that a session shows: its last call, of which one policy may only ask, or its end."""
    context = msgspec.convert(answer.context, RunContext)
    session = session_of(record_of(f"{change} {rule}", answer))
    session = msgspec.structs.replace(session, complete=answer.violation.at_end)  # else nothing is owed yet
    [found] = compare_sessions(*compiled, [session], context)
    last = next((each for each in found.calls if each.tool_call_id == answer.violation.tool_call_id), None)
    was, would_be = (last.old, last.new) if last else (None, None)
    asks = bool(answer.session) and answer.session[-1]["decision"] == "request_approval"
    if asks and change == "newly_allowed":
        would_be = DiffAnswer(action="request_approval")
    elif asks:
        was = DiffAnswer(action="request_approval")
    return ProofDifference(
        verdict="refuted",
        change="other_action" if asks or (last is not None and last.change == "other_action") else change,
        rules=[rule],
        session=answer.session,
        old=was,
        new=would_be,
        context=answer.context,
    )


def _parts(base: Sequence[Policy]) -> Iterator[tuple[str, Policy]]:
    """A policy of each rule and of each limit that holds alone."""
    bare = [msgspec.structs.replace(policy, limits=Limits(), budgets=()) for policy in base]
    whole = merge_policies(list(base))
    limits = [(entry.policy, entry.name, entry.limit) for entry in effective_limits(whole)]
    for each in clauses_of(whole):
        if each.strictest != "warn":
            yield each.id, kept(bare, [each])
    for n, policy in enumerate(base):
        for name, limit in policy.limits.given():
            if (policy.name, name, limit) not in limits:
                continue
            alone = msgspec.structs.replace(bare[n], limits=msgspec.structs.replace(Limits(), **{name: limit}))
            yield name, kept([*bare[:n], alone, *bare[n + 1 :]], [])
    if any(policy.budgets for policy in base):
        yield "budgets", kept([msgspec.structs.replace(p, limits=Limits()) for p in base], [])


def _grouped(ways: Iterator[ProofDifference]) -> Iterator[ProofDifference]:
    """Rules that the same session shows, together."""
    found: dict[bytes, ProofDifference] = {}
    for each in ways:
        key = msgspec.json.encode((each.change, each.verdict, each.session or each.rules), enc_hook=str)
        same = found.get(key)
        found[key] = each if same is None else msgspec.structs.replace(same, rules=[*same.rules, *each.rules])
    yield from found.values()


_RULES_SHOWN = 12


def difference_text(found: ProofDifference, width: int = WIDTH) -> Text:
    """One difference on a terminal."""
    text = Text()
    label, style = LABELS[found.change]
    certain = found.verdict != "unknown"
    text.append(f"{label if certain else 'unknown':<15}", f"bold {style}" if certain else "bold yellow")
    rules = ", ".join(f"`{escape_control(rule)}`" for rule in found.rules[:_RULES_SHOWN])
    if more := len(found.rules[_RULES_SHOWN:]):
        rules += f" and {more:,} more"
    append_words(
        text, rules if certain else f"whether it is {label}: {rules}: {escape_control(found.reason)}", 15, width
    )
    text.append_text(calls_text(found.session, found.context, width))
    if found.old is not None and found.new is not None:
        text.append(" " * 8)
        append_words(text, f"was {answer_words(found.old)}; would be {answer_words(found.new)}", 8, width, style)
    return text
