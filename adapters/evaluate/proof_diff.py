"""Two policies over every session: each smallest kind of difference, with one session that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from rich.text import Text

from proctor.policies import Limits, RunContext, compile_policy, merge_policies

from ..kit.printable import printable
from .counterexamples import session_of
from .diff import LABELS, DiffAnswer, answer_words, compare_sessions
from .proofs import WIDTH, append_words, calls_text, record_of
from .sanity import kept, placed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proctor.policies import Policy

    from .sanity import Prover


class ProofDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of difference.

    Attributes:
        verdict: `refuted` with a session that shows it, or `unknown`.
        change: `newly_refused`, `newly_allowed` or `other_action`; of an unknown one, what it may be.
        rules: The rules and limits that are stricter in this session: of the old policy where something is newly
            allowed, of the new one where it is newly refused.
        session: The calls, with what the less strict policy decides; the last is the one that is judged otherwise.
        old: The old policy's answer to that call: the `action`, and the `rules` that are broken.
        new: The new policy's answer.
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
    """The calls that the new policies allow and the old ones do not, rule by rule, and the other way round."""
    for stack, base, change in ((new, old, "newly_allowed"), (old, new, "newly_refused")):
        whole = merge_policies(list(stack))
        if prove(whole, no_looser_than=merge_policies(list(base))).verdict == "proved":
            continue
        yield from _grouped(_ways(whole, base, change, old, new, prove))


def _ways(
    stack: Policy, base: Sequence[Policy], change: str, old: Sequence[Policy], new: Sequence[Policy], prove: Prover
) -> Iterator[ProofDifference]:
    """For each rule of a base that the stack does not imply, a session."""
    compiled = compile_policy(merge_policies(list(old))), compile_policy(merge_policies(list(new)))
    for name, part in _parts(base):
        answer = prove(stack, no_looser_than=part)
        if answer.verdict == "proved":
            continue
        record = record_of(f"{change} {name}", answer)
        if answer.verdict == "unknown":
            yield ProofDifference(verdict="unknown", change=change, rules=[name], reason=answer.reason)
            continue
        context = msgspec.convert(record.context, RunContext)
        [found] = compare_sessions(*compiled, [session_of(record)], context)
        last = found.calls[-1] if found.calls else None
        was, would_be = (last.old, last.new) if last else (None, None)
        asks = record.session[-1]["decision"] == "request_approval" if record.session else False
        if asks and change == "newly_allowed":
            would_be = DiffAnswer(action="request_approval")
        elif asks:
            was = DiffAnswer(action="request_approval")
        yield ProofDifference(
            verdict="refuted",
            change="other_action" if asks or (last is not None and last.change == "other_action") else change,
            rules=[name],
            session=record.session,
            old=was,
            new=would_be,
            context=record.context,
        )


def _parts(base: Sequence[Policy]) -> Iterator[tuple[str, Policy]]:
    """A policy of each rule and of each limit alone."""
    bare = [msgspec.structs.replace(policy, limits=Limits(), budgets=()) for policy in base]
    every = list(placed(base))
    for each in every:
        if each.clause.action != "warn":
            yield each.clause.id, kept(bare, [each])
    for n, policy in enumerate(base):
        for name, limit in policy.limits.given():
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


def difference_text(found: ProofDifference, width: int = WIDTH) -> Text:
    """One difference on a terminal."""
    text = Text()
    label, style = LABELS[found.change]
    certain = found.verdict != "unknown"
    text.append(f"{label if certain else 'unknown':<15}", f"bold {style}" if certain else "bold yellow")
    rules = ", ".join(f"`{printable(rule)}`" for rule in found.rules)
    append_words(text, rules if certain else f"whether it is {label}: {rules}: {printable(found.reason)}", 15, width)
    text.append_text(calls_text(found.session, found.context, width))
    if found.old is not None and found.new is not None:
        text.append(" " * 8)
        append_words(text, f"was {answer_words(found.old)}; would be {answer_words(found.new)}", 8, width, style)
    return text
