"""The first cause ends a run: its terminal event, its log line and what its caller gets all name that one."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from proctor.policies.events import TERMINAL, MessageReceived, RunCancelled
from proctor.policies.events.calls import ToolCall
from proctor.policies.limits import Limits
from proctor.policies.policy import Deny, Policy
from proctor.supervisor import MemoryStore, PolicyViolationError, Supervisor, run_once
from proctor.supervisor.ports.stored_types import ApprovalRequest
from proctor.supervisor.testing import Ask, FakeAdapter, Pause

NOW = 200
ASKED = ApprovalRequest(
    approval_id="a",
    run_id="r",
    session_id="s",
    call=ToolCall(id="c", name="pay"),
    input_digest="d",
    policy_name="p",
    violation_kind="deny",
)
LIMIT = Policy(name="limit", limits=Limits(max_duration_ms=NOW))


@pytest.mark.trio
@pytest.mark.parametrize("order", ["user", "approval", "supervisor"])
async def test_a_limit_that_trips_while_somebody_ends_the_run_changes_nothing(
    order: str, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Its violation is recorded as observed; the run is cancelled by whom it was, and nothing is raised."""
    adapter = FakeAdapter([MessageReceived(content="at work"), Pause()], deaf=1, rung_s=0.3)
    caplog.set_level("INFO", "proctor")
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[LIMIT])
        await anyio.sleep(0.05)
        if order == "user":
            await handle.cancel(by="ana")
        elif order == "approval":
            await handle.cancel_for_approval(ASKED, by="ana")
        else:
            await supervisor.cancel_all(by="ana")
        result = await handle.wait()
        counts = supervisor.statistics()
    ends = [event for event in result.events if isinstance(event, TERMINAL)]

    assert result.status == "cancelled"
    assert [(type(end), end.by) for end in ends if isinstance(end, RunCancelled)] == [(RunCancelled, "ana")]
    assert [(v.kind, v.enforcement) for v in result.policy.violations] == [("max_duration_ms", "observed")]
    assert result.policy.action == "cancel"
    assert (counts.cancelled, counts.refused) == (1, 0)
    finished = [line for line in caplog.messages if "run.finished" in line]
    assert len(finished) == 1
    assert "rules=[]" in finished[0]
    assert ends[0].reason in finished[0]  # type: ignore[union-attr]
    assert result.reason
    assert result.reason == ends[0].reason  # type: ignore[union-attr]


@pytest.mark.trio
async def test_a_person_who_comes_after_a_limit_changes_nothing(autojump_clock: object) -> None:
    """The limit was first: the caller hears of it."""
    adapter = FakeAdapter([Pause()], deaf=1, rung_s=0.3)
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=[LIMIT])
        await anyio.sleep(0.25)
        await handle.cancel(by="ana")
        with pytest.raises(PolicyViolationError, match="200 ms") as raised:
            await handle.wait()
    ends = [event for event in raised.value.partial.events if isinstance(event, TERMINAL)]

    assert raised.value.rule == "max_duration_ms"
    assert [getattr(end, "by", None) for end in ends] == [""]


@pytest.mark.anyio
async def test_an_error_tells_what_ended_the_run_and_the_calls_before_it() -> None:
    """Not the first violation of the run, which only warned."""
    rules = (
        Deny(("noisy",), action="warn", reason="not this"),
        Deny(("bash",), action="cancel", id="no-bash", reason="security:shell"),
    )
    policy = Policy(name="p", tool_rules=rules)
    store = MemoryStore()
    await run_once(FakeAdapter([Ask(name="read", id="c0")]), "go", policies=[policy], store=store, session_id="s")
    agent = FakeAdapter([Ask(name="noisy", id="c1"), Ask(name="bash", id="c2", input={"command": "ls"})])
    with pytest.raises(PolicyViolationError) as raised:
        await run_once(agent, "go", policies=[policy], store=store, session_id="s")
    error: Any = raised.value

    assert error.violations[0].tool_name == "noisy"
    assert (error.rule, error.reason, error.violation.tool_name) == ("no-bash", "security:shell", "bash")
    assert [(call.id, call.name) for call in error.calls_before] == [("c0", "read")]
    assert [call.name for call in error.partial.calls] == ["noisy", "bash"]


def test_an_error_of_preflight_names_the_rule() -> None:
    """Nothing ran, and nothing was violated."""
    from proctor.policies import merge_policies, preflight

    with pytest.raises(PolicyViolationError) as raised:
        preflight(merge_policies([Policy(name="p", limits=Limits(max_total_tokens=0))])).check()

    assert (raised.value.rule, raised.value.violation, raised.value.reason) == ("max_total_tokens", None, None)
    assert raised.value.calls_before == ()
