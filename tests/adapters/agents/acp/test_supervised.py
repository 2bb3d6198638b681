"""Runs of a scripted agent from end to end: policies, people, sessions."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from proctor.policies import parse_policies
from proctor.policies.events import TERMINAL, ToolCallRequested, ToolCallStarted
from proctor.policies.limits import Limits
from proctor.policies.policy import Deny, Policy
from proctor.supervisor import MemoryStore, PolicyViolationError, ProviderError, run_once
from proctor.supervisor.ports.stored_types import ApprovalAnswer, ApprovalRequest
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio
NO_COMMANDS = Policy(name="p", tool_rules=(Deny(("execute",)),))
FEW = Policy(name="p", limits=Limits(max_tool_calls=1))


async def cancelled(adapter: Any, policy: Policy) -> PolicyViolationError:
    """What a run that its policy cancels raises; it has one end."""
    with pytest.raises(PolicyViolationError) as caught, anyio.fail_after(PATIENCE_S):
        await run_once(adapter, "go", policies=[policy])

    events = caught.value.partial.events
    assert [event.type for event in events if isinstance(event, TERMINAL)] == ["run_cancelled"]
    assert isinstance(events[-1], TERMINAL)
    return caught.value


@pytest.mark.parametrize("policy", [NO_COMMANDS, FEW])
async def test_a_call_that_cancels_does_not_run(scripts: Any, touch: Any, policy: Policy) -> None:
    """The agent's question is answered as cancelled; nothing else is asked of it."""
    error = await cancelled(scripts.adapter(touch("a"), touch("b"), {"silence": True}), policy)

    assert scripts.outcomes()[-1] == "cancelled"
    assert scripts.made() == ([] if policy is NO_COMMANDS else ["a"])
    assert [violation.enforcement for violation in error.violations] == ["prevented"]


async def test_what_runs_unasked_against_the_policy_is_cancelled_while_it_runs(scripts: Any, touch: Any) -> None:
    """It cannot be prevented, and the report says so."""
    running = touch("a", run="tail -f /dev/null", asks=False)
    error = await cancelled(scripts.adapter(running, adapter={"unasked_s": 0.05}), NO_COMMANDS)

    (violation,) = error.violations
    assert violation.enforcement in ("interrupted", "observed")
    assert [event.type for event in error.partial.events if "tool_call" in event.type] == [
        "tool_call_started",
        "tool_call_failed",
    ]


@pytest.mark.parametrize("granted", [True, False])
async def test_a_held_call_runs_only_when_somebody_approves(scripts: Any, touch: Any, granted: bool) -> None:
    """The approver sees what the agent asked; it has not run by then."""
    seen: list[tuple[dict[str, Any], list[str]]] = []

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        seen.append((request.call.input, scripts.made()))
        return ApprovalAnswer(granted=granted, by="ana")

    policy = Policy(name="p", tool_rules=(Deny(("execute",), action="request_approval"),))
    with anyio.fail_after(PATIENCE_S):
        result = await run_once(scripts.adapter(touch("a")), "go", policies=[policy], approver=approver)

    assert seen == [({"command": "touch a"}, [])]
    assert (result.status, scripts.made()) == ("completed", ["a"] if granted else [])


async def test_a_second_run_of_a_session_takes_it_up_where_the_agent_can(scripts: Any) -> None:
    """Calls are counted over both runs by the record, not by the agent."""
    store = MemoryStore()
    adapter = scripts.adapter({"say": "one"}, loads=True)
    policy = Policy(name="p", limits=Limits(max_tool_calls=5))
    with anyio.fail_after(PATIENCE_S):
        for prompt in ("first", "second"):
            await run_once(adapter, prompt, policies=[policy], store=store, session_id="s")

    assert [line["params"]["sessionId"] for line in scripts.received_messages("session/load")] == ["ses-1"]
    prompts = [line["params"]["prompt"][0]["text"] for line in scripts.received_messages("session/prompt")]
    assert prompts == ["first", "second"]


async def test_an_agent_that_dies_is_raised_with_the_policys_report(scripts: Any) -> None:
    """Not a violation, and not hidden."""
    with pytest.raises(ProviderError) as caught, anyio.fail_after(PATIENCE_S):
        await run_once(scripts.adapter({"say": "x"}, {"exit": 3}), "go", policies=[FEW])

    assert caught.value.policy.action == "allow"


@pytest.mark.parametrize(("path", "made"), [("inside", ["a"]), ("secrets/key", [])])
async def test_a_patch_to_a_denied_path_does_not_run(scripts: Any, touch: Any, path: str, made: list[str]) -> None:
    """The agent gives it as text and asks with all paths in one; it is proposed by what it does."""
    text = f"*** Begin Patch\n*** Add File: b\n+x\n*** Add File: {path}\n+y\n*** End Patch"
    question = {"rawInput": {"filepath": f"b, {path}", "diff": "+x", "files": [{"filePath": "b"}]}}
    call = touch("a", kind="edit", fields={"rawInput": {"patchText": text}}, question=question)
    secret = {"tool": "write", "where": [{"path": "$.path", "within": "secrets"}]}
    rules = {"rules": [{"type": "blocklist", "tools": [secret]}], "tool_rules": [{"allow": ["write"]}]}
    policies = parse_policies({"version": 1, "name": "p", "on_violation": "deny", **rules})

    result = await run_once(scripts.adapter(call), "go", policies=policies)

    assert scripts.made() == made
    inputs = [e.tool_input for e in result.events if isinstance(e, ToolCallStarted | ToolCallRequested)]
    assert [change["path"] for change in inputs[0]["changes"]] == ["b", path]
