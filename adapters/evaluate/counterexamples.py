"""A counterexample as it is kept: as events, as a recorded session, or as a policy test."""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from proctor.policies import CompiledPolicy, PolicyError, RunContext
from proctor.policies import events as ev
from proctor.policies.analysis.replaying import BEGUN, usage_event
from proctor.policies.diagram import Edge, GraphNode, Section

from ..kit.display_text import encoded
from ..kit.trace_lines import TraceLog, TraceSession
from .judge import judge_session
from .policy_tests import begin_call, judge_test, read_policy_tests
from .proofs import ProofRecord, call_words, event_words, fate_words, overlaps


def session_of(record: ProofRecord, agent: str = "") -> TraceSession:
    """The session of an answer as events, in its context; `agent` is whose names of tools it has."""
    written = _Events(record, agent)
    for number, call in enumerate(record.session, 1):
        written.add(number, call)
    return written.session()


def session_lines(record: ProofRecord, agent: str = "") -> bytes:
    """The session in the format `events`, one event a line."""
    return b"".join(ev.encode_event(event) + b"\n" for event in session_of(record, agent).events)


class _Events:
    """The events of a session. A call that ends after later ones have begun is ended there."""

    def __init__(self, record: ProofRecord, agent: str) -> None:
        self._record = record
        self._log = TraceLog(record.question, agent)
        self._run = 0
        self._ending: defaultdict[int, list[tuple[str, Mapping[str, Any]]]] = defaultdict(list)
        self._start()

    def session(self) -> TraceSession:
        """All of it; where a call goes on, the run does too."""
        for number in sorted(self._ending):
            for id, call in self._ending[number]:
                self._end(id, call)
        if not any(call["outcome"] == "running" for call in self._record.session):
            self._log.add(ev.RunCompleted, run_id=self._run_id)
        return self._log.session(self._record.question, "events", {})

    def add(self, number: int, call: Mapping[str, Any]) -> None:
        """Add the events before a call, and the call as far as it went."""
        for id, earlier in self._ending.pop(number, ()):
            self._end(id, earlier)
        cancelled = number > 1 and self._record.session[number - 2]["decision"] == "cancel"
        before = sorted(call.get("before", ()), key=lambda event: "run" not in event)
        for event in before:
            self._advance_to(event.get("run") or call.get("run", 1), cancelled=cancelled)
            self._before(event)
        self._advance_to(call.get("run", 1), cancelled=cancelled)
        if call["tool"]:
            self._log.enter_turn(call.get("turn", 0))
            self._call(f"c{number}", number, call)

    def _advance_to(self, run: int, *, cancelled: bool) -> None:
        while run > self._run:
            self._start(ev.RunCancelled if cancelled else ev.RunCompleted)

    @property
    def _run_id(self) -> str:
        return f"run-{self._run}"

    def _start(self, ended: type[ev.Event] = ev.RunCompleted) -> None:
        """Begin a run; the one before it has ended so."""
        if self._run:
            self._log.add(ended, run_id=self._run_id)
        self._run += 1
        self._log.turn = 0
        metadata = {"context": self._record.context} if self._record.context else {}
        self._log.add(ev.RunStarted, at=BEGUN, run_id=self._run_id, metadata=metadata)

    def _before(self, event: Mapping[str, Any]) -> None:
        if "user_message" in event:
            self._log.add(ev.MessageSent, content=event["user_message"])
        if "turn" in event:
            self._log.enter_turn(event["turn"])
        if "budget" in event:
            id, _, key = event["budget"].partition(" of ")
            self._log.add(ev.BudgetReserved, budget=id, key=key, granted=False, asked_for="call")
        for n in range(event.get("runs", 0)):
            if n:
                self._start()
            used = usage_event(event["limit"], event["used"], self._run_id)
            self._log.events.append(
                msgspec.structs.replace(used, seq=len(self._log.events) + 1, session_id=self._log.session_id)
            )

    def _call(self, id: str, number: int, call: Mapping[str, Any]) -> None:
        denied, granted = call["outcome"] == "denied", call.get("approval") == "granted"
        begin_call(
            self._log, id, call["tool"], call["input"], denied=denied, approval=f"a{number}" if granted else ""
        )
        if overlaps(number, call):
            self._ending[call["ended_before_call"]].append((id, call))
        elif not denied and call["outcome"] != "running":
            self._end(id, call)

    def _end(self, id: str, call: Mapping[str, Any]) -> None:
        failed = call["outcome"] == "failed"
        output = "failed" if failed else call.get("output", "done")
        self._log.end_call(id, call["tool"], output, failed=failed)


def drawn(record: ProofRecord, whole: CompiledPolicy, agent: str = "") -> Section:
    """The calls of the session in their order, with what was decided and the rules that object, as a picture has it.

    `whole` are the policies, with those that they are compared with.
    """
    session = session_of(record, agent)
    found = judge_session(whole, session, msgspec.convert(record.context, RunContext))
    objecting = {each.tool_call_id: each.violations for each in found.decisions or ()}
    nodes = []
    for number, call in enumerate(record.session, 1):
        rules = objecting.get(f"c{number}", [])
        before = [event_words(event) for event in call.get("before", ())]
        if call["tool"]:
            text, notes = f"{number}. {call_words(call)}", [*before, fate_words(number, call)]
        else:
            text, notes = ", ".join(before), []
        nodes.append(
            GraphNode(
                id=f"c{number}",
                text=text,
                shape="tool" if call["tool"] else "fact",
                notes=(*notes, *(f"against {rule}" for rule in rules)),
                state="violated" if rules else "",
            )
        )
    if at_end := [each.rule for each in found.violations if each.tool_call_id is None]:
        nodes.append(GraphNode(id="end", text="the end", shape="fact", notes=tuple(at_end), state="violated"))
    edges = [Edge(source=one.id, target=other.id) for one, other in itertools.pairwise(nodes)]
    where = f", where the context is {encoded(record.context)}" if record.context else ""
    return Section(title=f"the session{where}", nodes=tuple(nodes), edges=tuple(edges))


def written_test(record: ProofRecord, policies: Sequence[str], agent: str = "") -> str:
    """The session as a file for `proctor test`: it expects what the policies answer today."""
    calls = [call for call in record.session if call["tool"]]
    test: dict[str, Any] = {"name": record.question}
    if agent:
        test["agent"] = agent
    if record.context:
        test["context"] = record.context
    lines = [
        f"# Found by `proctor prove`: {record.question}",
        "# It passes while the policies let the session through; change `expect` to what you want, and mend them.",
        f"policies: [{', '.join(encoded(name) for name in policies)}]",
        "tests:",
        *(f"  {'-' if n == 0 else ' '} {key}: {encoded(value)}" for n, (key, value) in enumerate(test.items())),
        "    calls:",
        *(
            f"      - {encoded(_expected(call, earlier))}"
            for earlier, call in zip([None, *calls], calls, strict=False)
        ),
    ]
    return "\n".join(lines) + "\n"


def _expected(call: Mapping[str, Any], earlier: Mapping[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = {"tool": call["tool"], "input": call["input"], "expect": call["decision"]}
    texts = [event["user_message"] for event in call.get("before", ()) if "user_message" in event]
    if texts:
        found["user"] = "\n".join(texts)
    if earlier is not None and "turn" in call and call["turn"] == earlier.get("turn"):
        found["same_turn"] = True
    if call["outcome"] == "failed":
        found["error"] = "failed"
    elif call["outcome"] != "denied" and (call["outcome"] == "completed" or call.get("approval") == "granted"):
        found["result"] = call.get("output", "done")
    return found


def why_no_test(record: ProofRecord, text: str, folder: Path) -> str:
    """What a test cannot express of a session; empty if the test, read from that folder, passes as written."""
    calls = [call for call in record.session if call["tool"]]
    if not calls:
        return "it has no call"
    if any(overlaps(number, call) for number, call in enumerate(record.session, 1)):
        return "a call of it ends after the next has begun"
    if any(call.get("run", 1) > 1 for call in record.session):
        return "it goes over several runs"
    try:
        tests = read_policy_tests(text, "", folder)
    except PolicyError as error:
        return str(error.problems[0].message)
    [(test, context)] = tests.tests
    _, judged = judge_test(tests.compiled, test, context, file="")
    return "" if judged.passed else f"as a test it goes another way: {judged.mismatches[0].actual}"
