"""Cases of the policy language as data for any engine (tests/policies/cases/*.json).

Each case has a sentence (`it`); a `policy` or a stack (or `policies` by name, each of which must give the same
results); the run's `context`; `agent` if the run has the tools of agent_tools.json, with their portable names and
inputs; and steps:

- `ask`: propose a call of a tool (with `input`, `turn`, `id`). Expected: `answer`, the text `tells` for the model,
and the violations `objects` by id. Then the call `completes` with `returns`, `fails`, or stays in flight (`then`);
with `start: false` it is only allowed.
- `saw`: a call that was not proposed. Expected: `finds`, by id.
- `ends`: the end of the call with an id.
- `user`: a message of the user.
- `event`: any event. Expected: `finds`.
- `approve`: approve the call with an id, with other fields of the grant.
- `narrow`: a list of tools. Expected: `leaves`.
- `end`: the end of a run (`over`: how). Expected: the statuses by id, also from a rebuilt state.

`says` has the expected messages of a step's findings. A tool that a later step calls in the next turn must not have
been hidden by narrowing. A policy without an action denies; with `on_violation: null` it states none.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from proctor.policies import Monitor, RunContext, ToolCall, Violation, compile_policy, merge_policies, parse_policies
from proctor.policies.events import Event, decode_event
from proctor.policies.events.run_context import Tool
from proctor.supervisor.machine.event_factory import violated

FILES = sorted((Path(__file__).parent / "cases").glob("*.json"))
CASES = [
    (f"{file.stem}: {case['it']}{name and f' ({name})'}", {**case, "policy": policy})
    for file in FILES
    for case in json.loads(file.read_text())
    for name, policy in (case.get("policies") or {"": case["policy"]}).items()
]
VIOLATIONS = Path(__file__).with_name("violations_in_full.yaml")
"""The whole findings of some cases; PROCTOR_TRANSCRIPTS=write pytest tests/policies/test_cases.py rewrites them."""
TOOLS = msgspec.json.decode(Path(__file__).with_name("agent_tools.json").read_bytes(), type=tuple[Tool, ...])
ENDINGS = {"completes": "tool_call_completed", "fails": "tool_call_failed", "is refused": "tool_call_denied"}


class Played:
    """One case on one monitor, which is rebuilt after every step as the variant says."""

    def __init__(self, case: dict[str, Any], variant: str) -> None:
        stack = case["policy"] if isinstance(case["policy"], list) else [case["policy"]]
        documents = [{"version": 1, "name": f"p{n}", "on_violation": "deny", **each} for n, each in enumerate(stack)]
        documents = [{key: value for key, value in each.items() if value is not None} for each in documents]
        merged = merge_policies([p for each in documents for p in parse_policies(each)])
        self.compiled = compile_policy(merged, tools=TOOLS if case.get("agent") else ())
        self.context = RunContext(**case.get("context", {}))
        self.monitor: Monitor = self.compiled.monitor(self.context)
        self.variant = variant
        self.record: list[Event] = []
        self.calls: dict[str, dict[str, Any]] = {}
        self.digests: dict[str, str] = {}
        self.turn = 0
        self.violations: list[dict[str, Any]] = []

    def play(self, step: dict[str, Any]) -> list[dict[str, Any]]:
        """Play and compare one step, then rebuild the monitor; the findings."""
        kind, before = next(iter(step)), len(self.violations)
        getattr(self, f"_{kind}")(step)
        found = self.violations[before:]
        messages = [violation.get("message") for violation in found]
        assert messages == step.get("says", messages), step
        if self.variant == "snapshot":
            self.monitor = self.compiled.restore(self.monitor.snapshot())
        elif self.variant == "fold":
            self.monitor = self.compiled.monitor(self.context)
            for event in self.record:
                self.monitor.observe(event)
        if kind == "end":
            assert self._statuses(step) == step["end"], (step, self.variant)
        return found

    def _send(self, type: str, **fields: Any) -> list[str]:
        event = decode_event(json.dumps({"type": type, "run_id": "r", "session_id": "s", **fields}).encode())
        self.record.append(event)
        return [self._found(violation) for violation in self.monitor.observe(event)]

    def _found(self, violation: Violation) -> str:
        self.violations.append(whole(violation))
        self.record.append(violated(violation))
        self.monitor.observe(self.record[-1])
        return str(violation.rule)

    def _called(self, step: dict[str, Any], tool: str) -> dict[str, Any]:
        self.turn = step.get("turn", self.turn + 1)
        id = step.get("id", f"c{len(self.calls)}")
        given = step.get("input", {})
        self.calls[id] = {"tool_call_id": id, "tool_name": tool, "tool_input": given, "turn": self.turn}
        return self.calls[id]

    def _ask(self, step: dict[str, Any]) -> None:
        asked_before, last = step.get("id") in self.calls, self.turn
        call = self._called(step, step["ask"])
        id, tool, input, turn = call.values()
        self.record.append(decode_event(json.dumps({"type": "tool_call_requested", "run_id": "r", **call}).encode()))
        next_response = not asked_before and last <= turn <= last + 1
        shown = self.variant != "narrow" or not next_response or tool in self.monitor.narrow([tool])
        decision = self.monitor.propose(ToolCall(id=id, name=tool, input=input, turn=turn))
        violated = [self._found(violation) for violation in decision.violations]

        assert shown or decision.action in ("deny", "cancel"), step
        assert decision.action == step.get("answer", "allow"), (step, self.variant)
        assert violated == step.get("objects", violated), step
        assert (decision.tool_name, decision.tool_input) == (tool, input), step
        assert decision.tell_model == step.get("tells", decision.tell_model), step
        for violation in decision.violations:
            refuses = violation.action == decision.action and decision.action in ("deny", "cancel")
            assert violation.details.get("tell_model") == (decision.tell_model if refuses else None), step

        self.digests[id] = decision.input_digest
        if decision.action in ("deny", "cancel"):
            self._send("tool_call_denied", tool_call_id=id, tool_name=tool, decision=decision.action)
        elif decision.action in ("allow", "warn") and step.get("start", True):
            self._send("tool_call_started", **call)
            self._ended(id, step)

    def _saw(self, step: dict[str, Any]) -> None:
        call = self._called(step, step["saw"])

        assert self._send("tool_call_started", **call) == step.get("finds", []), step

        self._ended(call["tool_call_id"], step)

    def _ends(self, step: dict[str, Any]) -> None:
        self._ended(step["ends"], {"then": "completes", **step})

    def _ended(self, id: str, step: dict[str, Any]) -> None:
        if "then" in step or "returns" in step:
            outcome: dict[str, Any] = {"tool_call_id": id, "tool_name": self.calls[id]["tool_name"]}
            type = ENDINGS[step.get("then", "completes")]
            more = {"tool_output": step.get("returns")} if type == "tool_call_completed" else {}
            self._send(type, **outcome, **more)

    def _user(self, step: dict[str, Any]) -> None:
        self._send("message_sent", role="user", content=step["user"])

    def _event(self, step: dict[str, Any]) -> None:
        fields = dict(step["event"])

        assert self._send(fields.pop("type"), **fields) == step.get("finds", []), step

    def _approve(self, step: dict[str, Any]) -> None:
        id = step["approve"]
        fields = {"tool_call_id": id, "tool_name": self.calls[id]["tool_name"], "input_digest": self.digests[id]}
        more = {name: value for name, value in step.items() if name != "approve"}
        self._send("tool_approval_granted", **{"approval_id": f"a-{id}", **fields, **more})

    def _narrow(self, step: dict[str, Any]) -> None:
        assert self.monitor.narrow(step["narrow"]) == step["leaves"], step

    def _end(self, step: dict[str, Any]) -> None:
        over = decode_event(json.dumps({"type": step.get("over", "run_completed"), "run_id": "r", "session_id": "s"}))
        self.monitor.observe(over)

        assert self._statuses(step) == step["end"], (step, self.variant)

        for violation in self.monitor.finish().violations:
            self._found(violation)
        self.record.append(over)

    def _statuses(self, step: dict[str, Any]) -> dict[str, str]:
        rules = self.monitor.finish().rules
        return {id: rules[id].status for id in step["end"]}


def whole(violation: Violation) -> dict[str, Any]:
    """All fields of a violation that are not empty."""
    return {name: value for name, value in msgspec.to_builtins(violation).items() if value}


def variants(case: dict[str, Any]) -> list[str]:
    """How a case can be played. An allowed call that has not started is not in the log, so it folds to nothing."""
    unstarted = any(step.get("start") is False for step in case["steps"])
    return ["live", "snapshot", "narrow"] if unstarted else ["live", "snapshot", "fold", "narrow"]


@pytest.mark.parametrize("case", [pytest.param(case, id=id) for id, case in CASES])
def test_a_case_has_the_expected_results(case: dict[str, Any]) -> None:
    """Every step, live and with the state restored, or rebuilt from the log, after each."""
    for variant in variants(case):
        played = Played(case, variant)
        for step in case["steps"]:
            played.play(step)


def test_the_texts_of_violations_match_the_transcript() -> None:
    """For each kind, the texts and details for operators and for the model, once in each form, except for steps with
    `says`.
    """
    forms: set[tuple[str, ...]] = set()
    texts: dict[str, list[dict[str, Any]]] = {}
    for id, case in CASES:
        played = Played(case, "live")
        found = [(step, violation) for step in case["steps"] for violation in played.play(step)]
        for violation in (violation for step, violation in found if "says" not in step):
            words = re.sub(r"`[^`]*`|[0-9]+", "#", violation.get("message", ""))
            form = (violation["kind"], words, *violation.get("details", {}))
            if form not in forms:
                forms.add(form)
                texts.setdefault(id, []).append(violation)
    if os.environ.get("PROCTOR_TRANSCRIPTS") == "write":
        VIOLATIONS.write_text(yaml.safe_dump(texts, sort_keys=False, allow_unicode=True, width=118))

    assert texts == yaml.safe_load(VIOLATIONS.read_text())
