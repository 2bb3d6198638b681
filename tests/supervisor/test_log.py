"""What a run logs: denials with their rules, failures as errors, and the run's id on every line."""

import io
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs
from supervised import Before

from proctor.adapters.kit import CallGate, EventStream
from proctor.policies import Deny, Event, Limits, Policy, ToolCall, parse_policies
from proctor.policies.events import ToolApprovalRequested
from proctor.supervisor import MemoryStore, PolicyViolationError, create_run, execute_run, run_once
from proctor.supervisor.ports.adapter import GateAnswer, Launch
from proctor.supervisor.testing import Ask, Crash, FakeAdapter, FakeApprover

pytestmark = pytest.mark.anyio
ORG = Policy(name="org", tool_rules=(Deny(("rm",), action="deny"), Deny(("pay",), action="cancel")))


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    """The lines of a program that has configured logging."""
    structlog.configure(processors=[])
    with capture_logs() as captured:
        yield captured


def lines_of(lines: list[Any], event: str) -> list[Any]:
    return [line for line in lines if line["event"] == event]


async def test_a_denied_call_is_logged_with_its_rules(lines: list[Any]) -> None:
    """With its tool and its id."""
    result = await run_once(FakeAdapter([Ask(name="rm", id="c1")]), "go", policies=[ORG])
    (line,) = lines_of(lines, "call.refused")

    assert line["rules"] == ["org/deny-1"]
    assert (line["tool_name"], line["tool_call_id"]) == ("rm", "c1")
    assert {(line["run_id"], line["session_id"]) for line in lines} == {(result.run_id, result.session_id)}


async def test_a_request_for_approval_is_logged_with_its_call(lines: list[Any]) -> None:
    """Whoever answers it finds it by its id."""
    asking = Policy(name="org", tool_rules=(Deny(("pay",), action="request_approval"),))
    adapter = FakeAdapter([Ask(name="pay", id="c1")])
    result = await run_once(adapter, "go", policies=[asking], approver=FakeApprover(True))
    (request,) = [event for event in result.events if isinstance(event, ToolApprovalRequested)]
    (line,) = lines_of(lines, "approval.requested")

    assert (line["log_level"], line["id"], line["tool_call_id"]) == ("info", request.approval_id, "c1")


async def test_a_run_that_a_policy_ends_is_logged_with_the_rule(lines: list[Any]) -> None:
    """It is not logged as an error."""
    with pytest.raises(PolicyViolationError):
        await run_once(FakeAdapter([Ask(name="pay")]), "go", policies=[ORG])
    (line,) = lines_of(lines, "run.finished")

    assert (line["log_level"], line["status"], line["rules"]) == ("info", "cancelled", ["org/deny-2"])


async def test_a_failed_run_is_logged_as_an_error(lines: list[Any]) -> None:
    """Of the agent, or of the store."""
    with pytest.raises(RuntimeError, match="boom"):
        await run_once(FakeAdapter([Crash(RuntimeError("boom"))]), "go", policies=[ORG])
    with pytest.raises(OSError, match="no space"):
        await run_once(FakeAdapter(), "go", policies=[ORG], store=Before(Event, OSError("no space left")))
    ends = lines_of(lines, "run.finished")

    assert [(line["log_level"], line["status"]) for line in ends] == [("error", "failed")] * 2
    assert ends[0]["error"] == "RuntimeError: boom"
    assert all(line["run_id"] and line["session_id"] for line in lines)


async def test_a_run_that_preflight_rejects_is_logged_as_an_error_with_the_rule(lines: list[Any]) -> None:
    """Nothing has started. The line has the policy, or the context, that prevented the run."""
    none = Policy(name="none", limits=Limits(max_turns=0))
    store = MemoryStore()
    created = await create_run(store, "go")
    with pytest.raises(PolicyViolationError):
        await run_once(FakeAdapter(), "go", policies=[none], session_id="s", run_id="r")
    with pytest.raises(PolicyViolationError):
        await execute_run(store, FakeAdapter(), created, policies=[none])
    rule = {"deny": ["rm"], "action": "deny", "when": [{"path": "$.labels.env", "equals": "prod"}]}
    with pytest.raises(PolicyViolationError):
        await run_once(FakeAdapter(), "go", policies=parse_policies({"name": "roles", "tool_rules": [rule]}))
    first, second, third = lines_of(lines, "run.refused")

    assert (first["log_level"], first["run_id"], first["session_id"]) == ("error", "r", "s")
    assert (second["log_level"], second["run_id"]) == ("error", created)
    assert first["rules"] == second["rules"] == ["none/max_turns"]
    assert "max_turns" in first["error"]
    assert (third["log_level"], [rule.partition("/")[0] for rule in third["rules"]]) == ("error", ["roles"])


async def test_a_failing_gate_is_logged_as_an_error_of_its_call(lines: list[Any]) -> None:
    """With the tool, the id and the exception."""

    async def gate(call: ToolCall) -> GateAnswer:
        raise RuntimeError("no answer")

    link = CallGate(Launch(run_id="r", session_id="s", prompt="go", gate=gate), EventStream())
    await link.propose(ToolCall(id="c1", name="rm"))
    (line,) = lines_of(lines, "gate.failed")

    assert (line["log_level"], line["tool_name"], line["tool_call_id"]) == ("error", "rm", "c1")
    assert "no answer" in str(line["error"])


@pytest.mark.parametrize("closed", [True, False])
async def test_a_warning_that_nobody_can_be_told_ends_no_run(
    closed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program has set up no log, and its standard error is closed, or there is none, as of a daemon."""
    structlog.reset_defaults()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with io.StringIO() as left:
        monkeypatch.setattr(sys, "stderr", left if closed else None)
    result = await run_once(FakeAdapter(), "go", policies=())

    assert (result.status, capsys.readouterr().out) == ("completed", "")
