"""A counterexample as it is kept: as events, as a recorded session, or as a policy test."""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from proctor.policies import CompiledPolicy, PolicyError, RunContext
from proctor.policies import events as ev
from proctor.policies.diagram import Edge, GraphNode, Section

from ..kit.display_text import encoded
from ..kit.trace_lines import TraceLog, TraceSession
from .judge import judge_session
from .policy_tests import judge_test, read_policy_tests
from .proofs import ProofRecord, call_words, event_words, fate_words, overlaps


def session_of(record: ProofRecord, agent: str = "") -> TraceSession:
    """The session of an answer as events, in its context; `agent` is whose names of tools it has. Where a call goes
    on, the run does too.
    """
    log = TraceLog(record.question, agent)
    metadata = {"metadata": {"context": record.context}} if record.context else {}
    run_id = ""
    for event in record.events:
        begins = isinstance(event, ev.RunStarted)
        run_id = event.run_id if begins else run_id
        log.add(partial(msgspec.structs.replace, event), at=event.at, **(metadata if begins else {}))
    if not any(call["outcome"] == "running" for call in record.session):
        log.add(ev.RunCompleted, run_id=run_id)
    return log.session(record.question, "events", {})


def session_lines(record: ProofRecord, agent: str = "") -> bytes:
    """The session in the format `events`, one event a line."""
    return b"".join(ev.encode_event(event) + b"\n" for event in session_of(record, agent).events)


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
        "# It passes while the policies allow the session; change `expect` to what you want, and mend them.",
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
    turns = call.get("turn", 1) - (earlier.get("turn", 1) if earlier is not None else 0)
    if turns == 0:
        found["same_turn"] = True
    elif turns > 1:
        found["turns_without_calls"] = turns - 1
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
        return "one of its calls ends after the next has begun"
    if any(call.get("run", 1) > 1 for call in record.session):
        return "it has several runs"
    try:
        tests = read_policy_tests(text, "", folder)
    except PolicyError as error:
        return str(error.problems[0].message)
    [(test, context)] = tests.tests
    _, judged = judge_test(tests.compiled, test, context, file="")
    return "" if judged.passed else f"as a test, it is decided otherwise: {judged.mismatches[0].actual}"
