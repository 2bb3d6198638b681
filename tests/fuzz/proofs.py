"""`verify` against brute force on the public monitor: generated stacks and questions, both directions.

Brute force runs every session of up to six calls with two values of each input that a rule reads: each call allowed,
declined or approved; completed with each output, failed, or still running; with turns, messages, token usage and runs
in between. After a number of steps it continues with a few sessions of each length. Random walks are longer, with
more values.
"""

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from proctor.adapters.evaluate.proofs import Prover
from proctor.adapters.evaluate.rule_proofs import kept, sanity
from proctor.policies import CompiledPolicy, Monitor, Proved, Refuted, RunContext, Unknown, compile_policy, verify
from proctor.policies import events as ev
from proctor.policies.errors import Violation
from proctor.policies.events.calls import Decision, ToolCall
from proctor.policies.limits import LIMITS
from proctor.policies.policy import Approval, Policy, members_of
from proctor.policies.stack.clauses import clauses_of
from tests.reference.certificates import check

from .ledger import Share
from .proof_pairs import CONTEXTS, MESSAGES, OUTPUTS, VALUES, Pair, pair, played

DEPTH: Final = 6
MOST_MOVES: Final = 150
"""The number of steps for a question; then only FEW sessions of each length are continued."""
FEW: Final = 3
MOST_CALLS: Final = 5
"""The number of different calls."""
PAIRS: Final = 50
"""Pairs in a share."""
STEPS: Final = 14
MOST_WORK: Final = 1_000_000
"""The time for a question: some seconds."""
ALLOW, WARN, ASK, DENY = range(4)
LEVELS: Final = {"allow": ALLOW, "warn": WARN, "request_approval": ASK, "deny": DENY, "cancel": DENY}


class Node(NamedTuple):
    """A session so far: snapshots of both monitors, and what is active."""

    mine: bytes
    other: bytes
    turn: int = 1
    run: int = 1
    flying: tuple[str, str] | None = None


def covers_more(mine: Approval, other: Approval) -> bool:
    """Whether one approval may cover more calls, or be given by more people, than under another policy."""
    people = {*(mine.approvers or ()), *(other.approvers or ()), "anybody", "who started the run"}

    def answering(approval: Approval, starter: str) -> set[str]:
        named = people if approval.approvers is None else set(approval.approvers)
        return named - {starter} if approval.four_eyes else named

    further = ("once", "run", "session").index(mine.scope) > ("once", "run", "session").index(other.scope)
    return further or any(answering(mine, each) - answering(other, each) for each in people)


class DiffersError(Exception):
    """The last step shows a difference."""


class Brute:
    """Sessions on real monitors. `strict`: warnings of the other policy count too."""

    def __init__(
        self, question: Pair, mine: CompiledPolicy, other: CompiledPolicy, rng: random.Random, *, strict: bool
    ) -> None:
        self.mine, self.theirs, self.strict = mine, other, strict
        self.says, self.moves, self.refuses = question.says, 0, question.refuses
        self.wider = not strict and covers_more(mine.approval, other.approval)
        calls = [(name, input) for name in question.names() for input in self._inputs(question, rng)]
        self.calls = rng.sample(calls, min(MOST_CALLS, len(calls)))
        tokens = [n for n in ("input_tokens", "output_tokens") if n in self.says or "max_total_tokens" in self.says]
        self.used = [{"cost_usd": 1.0}] if "cost" in self.says else [{n: 1} for n in tokens]
        self.runs = any(word in self.says for word in ('"limits"', "within_turns", "turns_gte", "parallel"))
        self.turns = self.runs
        self.messages = MESSAGES[:3] if "user_" in self.says else []
        self.outputs = OUTPUTS[:3] if any(w in self.says for w in ("output", '"from"')) else OUTPUTS[:1]
        if len(self.outputs) > 1 and rng.random() < 0.4:
            self.outputs = [*self.outputs[:2], OUTPUTS[-2]]
        if "regex" in self.says and len(self.outputs) > 1:
            self.outputs = [*self.outputs, OUTPUTS[3], OUTPUTS[-1]]

    @staticmethod
    def _inputs(question: Pair, rng: random.Random) -> list[dict[str, Any]]:
        fields = question.fields
        two = {name: VALUES[name][:2] if rng.random() < 0.6 else rng.sample(VALUES[name], 2) for name in fields}
        choices = [[*two[name], None] if len(fields) < 2 else two[name] for name in fields]
        made = [dict(zip(fields, values, strict=True)) for values in itertools.product(*choices)]
        return [{name: value for name, value in each.items() if value is not None} for each in made][:6]

    def breaks(self, found: Iterable[Violation], level: int, *, of_call: bool = False) -> bool:
        """Whether the other policy's findings differ (`of_call`: on a call), if the stack's decision is `level`."""
        levels = [LEVELS[violation.action] for violation in found]
        if self.strict:
            return any(each in (WARN, DENY) or (each == ASK and level < ASK) for each in levels)
        return any(each > max(level, WARN) or (of_call and self.wider and each == ASK == level) for each in levels)

    def start(self, context: RunContext) -> Node:
        """A session begins."""
        a, b = self.mine.monitor(context), self.theirs.monitor(context)
        for monitor in (a, b):
            monitor.observe(ev.RunStarted(run_id="run-1"))
            monitor.observe(ev.TurnStarted(turn=1))
        return Node(a.snapshot(), b.snapshot())

    def shortest(self, context: RunContext, depth: int, rng: random.Random) -> tuple[int | None, int]:
        """The number of calls of the shortest difference, None if none was found; and up to which length all were
        tried.
        """
        layer = [self.start(context)]
        whole = depth
        for calls in range(depth + 1):
            try:
                found = self._closed(layer)
                if any(map(self._ends, found)):
                    return calls, whole
            except DiffersError:
                return calls, whole
            if calls == depth:
                break
            try:
                after: dict[Any, Node] = {}
                for node in self._some(found, rng):
                    for name, input in self._some(self.calls, rng):
                        after |= {_key(each): each for each in self._call(node, name, input, f"c{calls}")}
            except DiffersError:
                return calls + 1, whole
            if self.moves > MOST_MOVES:
                whole = min(whole, calls)
            layer = self._some(list(after.values()), rng)
        return None, whole

    def _some(self, found: list[Any], rng: random.Random) -> list[Any]:
        """All of them, or a few after enough steps."""
        return rng.sample(found, FEW) if self.moves > MOST_MOVES and len(found) > FEW else found

    def _closed(self, nodes: list[Node]) -> list[Node]:
        """With the possible events between two calls, at most two."""
        seen = {_key(node): node for node in nodes}
        latest = nodes
        for _ in range(2):
            reached: list[Node] = []
            for node in latest if self.moves < MOST_MOVES else latest[:FEW]:
                for after in self._events(node):
                    if (key := _key(after)) not in seen:
                        seen[key] = after
                        reached.append(after)
            latest = reached
        return list(seen.values())

    def _both(self, node: Node) -> tuple[Monitor, Monitor]:
        self.moves += 1
        return self.mine.restore(node.mine), self.theirs.restore(node.other)

    def _ends(self, node: Node) -> bool:
        return self.ends(*self._both(node))

    def ends(self, a: Monitor, b: Monitor) -> bool:
        """Whether it is a difference if the session ends here."""
        if any(LEVELS[v.action] >= ASK for v in a.finish().violations):
            return False
        return any(LEVELS[v.action] > (ALLOW if self.strict else WARN) for v in b.finish().violations)

    def _events(self, node: Node) -> Iterator[Node]:
        if node.flying is not None:
            for event in self._endings(*node.flying):
                yield from self._moved(node._replace(flying=None), event)
        if self.turns:
            yield from self._moved(node._replace(turn=node.turn + 1), ev.TurnStarted(turn=node.turn + 1))
        for use in self.used:
            yield from self._moved(node, ev.TokenUsageUpdated(run_id=f"run-{node.run}", **use))
        for text in self.messages:
            yield from self._moved(node, ev.MessageSent(content=text))
        if self.runs and node.run < 3:
            yield from self._again(node, ev.RunCompleted)

    def _endings(self, id: str, name: str) -> Iterator[ev.Event]:
        for output in self.outputs:
            yield ev.ToolCallCompleted(tool_call_id=id, tool_name=name, tool_output=output)
        yield ev.ToolCallFailed(tool_call_id=id, tool_name=name)

    def _again(self, node: Node, ended: type[ev.Event]) -> list[Node]:
        """The run ends this way, and another starts, if the stack allows it."""
        a, b = self._both(node)
        if next_run(self, a, b, node.run, ended):
            return [Node(a.snapshot(), b.snapshot(), 1, node.run + 1, None)]
        return []

    def _moved(self, node: Node, event: ev.Event) -> list[Node]:
        """After an event. If the stack denies it, the run ends, unless only later calls are denied."""
        a, b = self._both(node)
        ends = self.weighed(a, b, event)
        after = node._replace(mine=a.snapshot(), other=b.snapshot())
        return self._again(after, ev.RunCancelled) if ends else [after]

    def weighed(self, a: Monitor, b: Monitor, *events: ev.Event) -> bool:
        """Whether the immediate findings end the run; raises DiffersError if the other policy is stricter."""
        both = [(a.observe(event), b.observe(event)) for event in events]
        level = max((LEVELS[v.action] for mine, _ in both for v in mine), default=ALLOW)
        if level < DENY and self.breaks([v for _, theirs in both for v in theirs], level):
            raise DiffersError
        return any(ends_run(mine) for mine, _ in both)

    def _call(self, node: Node, name: str, input: dict[str, Any], id: str) -> Iterator[Node]:
        a, b = self._both(node)
        call = ToolCall(id=id, name=name, input=input)
        decision = a.propose(call)
        level = LEVELS[decision.action]
        if level >= ASK or self.refuses:
            yield from self._refused(node, call, decision.action if level >= ASK else "")
        if level >= DENY or not self.ran(a, b, call, decision):
            return
        ran = node._replace(mine=a.snapshot(), other=b.snapshot())
        for event in self._endings(id, name):
            yield from self._moved(ran, event)
        if node.flying is None:
            yield ran._replace(flying=(id, name))

    def ran(self, a: Monitor, b: Monitor, call: ToolCall, decision: Decision) -> bool:
        """Whether a call runs that the stack allowed, or that a person approves."""
        level = LEVELS[decision.action]
        if level == ASK:
            granted = ev.ToolApprovalGranted(
                approval_id=f"x{call.id}",
                tool_call_id=call.id,
                tool_name=call.name,
                input_digest=decision.input_digest,
            )
            a.observe(granted)
            if not self.wider:
                b.observe(granted)
            if LEVELS[a.propose(call).action] >= ASK:
                return False
        judged = b.propose(call)
        if self.breaks(judged.violations, level, of_call=True):
            raise DiffersError
        if LEVELS[judged.action] >= ASK:
            b.observe(ev.ToolCallStarted(tool_call_id=call.id, tool_name=call.name, tool_input=call.input))
        return True

    def _refused(self, node: Node, call: ToolCall, action: str) -> list[Node]:
        a, b = self._both(node)
        if action:
            a.propose(call)
        ends = refused(a, b, call, action)
        after = node._replace(mine=a.snapshot(), other=b.snapshot())
        return self._again(after, ev.RunCancelled) if ends else [after]


def refused(a: Monitor, b: Monitor, call: ToolCall, action: str) -> bool:
    """A call is denied, by an action of the stack or by a part that is not simulated; whether that ends the run."""
    for monitor in (b,) if action else (a, b):
        monitor.observe(ev.ToolCallRequested(tool_call_id=call.id, tool_name=call.name, tool_input=call.input))
    found = a.observe(denied := ev.ToolCallDenied(tool_call_id=call.id, tool_name=call.name))
    b.observe(denied)
    return action == "cancel" or ends_run(found)


def ends_run(found: Iterable[Violation]) -> bool:
    """Whether violations by past events end a run whose calls are all gated."""
    later = {*LIMITS, "budget", "circuit_breaker"}
    return any(v.action == "cancel" or (v.action == "deny" and v.kind not in later) for v in found)


def next_run(brute: Brute, a: Monitor, b: Monitor, run: int, ended: type[ev.Event]) -> bool:
    """A run ends, and the next starts; whether the stack allows it."""
    for monitor in (a, b):
        monitor.observe(ended(run_id=f"run-{run}"))
    return not brute.weighed(a, b, ev.RunStarted(run_id=f"run-{run + 1}"), ev.TurnStarted(turn=1))


_REPORTED: Final = ("finished", "denied", "granted", "exercised", "violated", "question", "earlier")


def _key(node: Node) -> tuple[Any, ...]:
    """The state that later calls depend on: without the ids of finished calls and of reports."""
    written = []
    for snapshot in node[:2]:
        state = msgspec.json.decode(snapshot)
        for name in _REPORTED:
            state["session"].pop(name, None)
        written.append(msgspec.json.encode(state))
    return (*written, *node[2:])


class Walk:
    """One long random session."""

    def __init__(self, brute: Brute, question: Pair, context: RunContext, rng: random.Random) -> None:
        self.brute, self.rng, self.question = brute, rng, question
        start = brute.start(context)
        self.a, self.b = brute.mine.restore(start.mine), brute.theirs.restore(start.other)
        self.calls, self.turn, self.run = 0, 1, 1
        self.open: list[ToolCall] = []
        self.held: list[tuple[ToolCall, Decision]] = []

    def differs(self) -> bool:
        """Whether some step is a difference."""
        try:
            for _ in range(STEPS):
                if self.brute.ends(self.a, self.b):
                    return True
                if self.step():
                    return False
        except DiffersError:
            return True
        return False

    def step(self) -> bool:
        """One event; whether the session has ended."""
        chance = self.rng.random()
        if self.open and (chance < 0.3 or len(self.open) > 2):
            call = self.open.pop(self.rng.randrange(len(self.open)))
            named: dict[str, Any] = {"tool_call_id": call.id, "tool_name": call.name}
            if self.rng.random() < 0.3:
                return self.happens(ev.ToolCallFailed(**named))
            return self.happens(ev.ToolCallCompleted(**named, tool_output=self.rng.choice(OUTPUTS)))
        if chance < 0.38:
            self.turn += 1
            return self.happens(ev.TurnStarted(turn=self.turn))
        if chance < 0.45:
            return self.happens(ev.MessageSent(content=self.rng.choice(MESSAGES)))
        if chance < 0.48:
            return self.again(ev.RunCompleted)
        if self.held and chance < 0.6:
            call, decision = self.held.pop()
            if self.brute.ran(self.a, self.b, call, decision):
                self.open.append(call)
            return False
        return self.called()

    def happens(self, event: ev.Event) -> bool:
        """An event; if the stack denies it, the run ends."""
        return self.brute.weighed(self.a, self.b, event) and self.again(ev.RunCancelled)

    def again(self, ended: type[ev.Event]) -> bool:
        """Another run starts."""
        lives = next_run(self.brute, self.a, self.b, self.run, ended)
        self.run, self.turn, self.open, self.held = self.run + 1, 1, [], []
        return not lives

    def subagent(self) -> dict[str, Any]:
        """Sometimes a call is a subagent's, of its parent's response, unless rules count responses."""
        if self.brute.runs or not self.open or self.rng.random() < 0.7:
            return {}
        return {"parent_tool_call_id": self.open[0].id, "turn": self.rng.randint(1, self.turn)}

    def called(self) -> bool:
        """A call is proposed."""
        self.calls += 1
        input = {name: self.rng.choice(VALUES[name]) for name in self.question.fields if self.rng.random() < 0.7}
        name = self.rng.choice(self.question.names())
        call = ToolCall(id=f"c{self.calls}", name=name, input=input, **self.subagent())
        if self.question.refuses and self.rng.random() < 0.3:
            return refused(self.a, self.b, call, "") and self.again(ev.RunCancelled)
        decision = self.a.propose(call)
        if LEVELS[decision.action] < ASK:
            self.brute.ran(self.a, self.b, call, decision)
            self.open.append(call)
            return False
        if LEVELS[decision.action] == ASK and self.rng.random() < 0.8:
            self.b.observe(ev.ToolCallRequested(tool_call_id=call.id, tool_name=call.name, tool_input=input))
            self.held.append((call, decision))
            return False
        ends = LEVELS[decision.action] == ASK and "on_timeout" in self.question.says and self.rng.random() < 0.3
        return (refused(self.a, self.b, call, decision.action) or ends) and self.again(ev.RunCancelled)


def contexts(question: Pair) -> list[RunContext]:
    """Every context with the fields that a `when` reads."""
    if question.context is not None:
        return [question.context]
    fields = [name for name in CONTEXTS if f"$.{name}" in question.says]
    choices = itertools.product(*(CONTEXTS[name] for name in fields))
    return [RunContext(**dict(zip(fields, values, strict=True))) for values in choices]


def both_ways(question: Pair, rng: random.Random) -> list[Brute]:
    """The brute-force searches that answer a question."""
    tools = question.tools or ()
    mine, other = (compile_policy(each, tools=tools) for each in (played(question.stack), question.other))
    strict = question.question in ("keeps", "reach")
    there = Brute(question, mine, other, rng, strict=strict)
    return [there, Brute(question, other, mine, rng, strict=False)] if question.question == "same_as" else [there]


def compared(question: Pair, rng: random.Random, *, depth: int = DEPTH, walks: int = 6) -> tuple[Any, int]:
    """The answer to a question, once brute force agrees, and the length up to which all sessions were tried."""
    answer = verify(question.stack, **question.arguments, steps=MOST_WORK)
    if not isinstance(answer, Proved | Refuted):
        return answer, 0
    length = sum(1 for call in answer.session if call["tool"]) if isinstance(answer, Refuted) else STEPS + 1
    depth = min(depth, length)
    for certificate in answer.certificates:
        assert check(certificate) == []
    whole = depth
    shortest: int | None = None
    for brute, context in itertools.product(both_ways(question, rng), contexts(question)):
        found, all_of = brute.shortest(context, depth, rng)
        whole = min(whole, all_of)
        shortest = found if shortest is None else min(shortest, STEPS if found is None else found)
        for _ in range(walks // len(contexts(question))):
            walk = Walk(brute, question, context, rng)
            if walk.differs():
                shortest = walk.calls if shortest is None else min(shortest, walk.calls)
    shortest_known = not any("not searched" in bound for bound in answer.explored["bounded"])
    if isinstance(answer, Proved) or (shortest_known and question.question != "same_as"):
        assert shortest is None or shortest >= length, (
            f"{answer.verdict}" + f" by {length} calls" * isinstance(answer, Refuted) + f", and {shortest} are enough"
        )
    return answer, whole


def sanity_compared(question: Pair, rng: random.Random, *, depth: int) -> list[str]:
    """The findings about a single stack, once brute force agrees with each answer that they depend on."""

    def prove(stack: Policy, **keywords: Any) -> Any:
        ((kind, argument),) = keywords.items()
        return compared(question._replace(stack=stack, question=kind, argument=argument), rng, depth=depth, walks=0)[
            0
        ]

    members = members_of(question.stack)
    rules = clauses_of(question.stack)
    findings = []
    for record in sanity(members, Prover(prove)):
        about, _, id = record.question.partition(" ")
        if record.verdict == "refuted":
            findings.append(record.reason.partition(":")[0])
        if about != "rule" or record.verdict == "unknown" or not record.finishes:
            continue
        without = kept(members, [each for each in rules if each.id != id])
        whole = question._replace(stack=without, question="no_looser_than", argument=question.stack)
        (brute,) = both_ways(whole, rng)
        for context in contexts(whole):
            shortest, _ = brute.shortest(context, depth, rng)
            assert shortest is None or record.verdict == "proved", (
                f"`{id}` {record.reason}, and {shortest} calls differ"
            )
    return findings


def proofs(seed: int, number: int) -> Share:
    """This many pairs, each with the same answer by brute force; unknown ones by their cause."""
    counts: Counter[str] = Counter()
    found = []
    for n in range(PAIRS):
        rng = random.Random(f"{seed} {number} {n}")
        question = pair(rng)
        counts["pairs"] += 1
        try:
            answer, whole = compared(question, rng)
        except AssertionError as error:
            found.append(f"pair {n} of share {number}, seed {seed}: {error}: {question.says}")
            continue
        counts[answer.verdict] += 1
        counts["proved with every session of 6 calls"] += isinstance(answer, Proved) and whole == DEPTH
        if isinstance(answer, Unknown):
            counts[f"unknown for {_cause(answer.reason)}"] += 1
    return Share(dict(counts), found)


def _cause(reason: str) -> str:
    return re.sub(r"^rule `[^`]+`( of the stack)?: |^no session was found, but ", "", reason).replace("|", "/")
