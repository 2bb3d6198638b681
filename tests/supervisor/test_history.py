"""A session of several runs: its past is folded, handed over, and counted on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proctor.policies.events import RunStarted, SessionStarted, ToolCallStarted, TurnStarted
from proctor.policies.events.run_context import Capabilities
from proctor.policies.limits import Limits
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, UsageError, execute_run, run_once
from proctor.supervisor.api.run_once import create_run
from proctor.supervisor.testing import Ask, FakeAdapter

pytestmark = pytest.mark.anyio

FIRST = (
    SessionStarted(provider_session_id="own-1"),
    TurnStarted(turn=1),
    Ask(id="c1", name="read", turn=1),
    TurnStarted(turn=2),
)


def resuming(steps: Any = (), name: str = "fake") -> FakeAdapter:
    return FakeAdapter(steps, capabilities=Capabilities(gate="all", resume=True), name=name)


async def two_runs(first: FakeAdapter, second: FakeAdapter, policy: Policy, **more: Any) -> Any:
    store = MemoryStore()
    one = await run_once(first, "go", policies=[policy], store=store)
    run_id = await create_run(store, "go on", session_id=one.session_id)
    return one, await execute_run(store, second, run_id, policies=[policy], **more)


async def test_a_provider_that_can_resume_gets_its_own_session_id(permissive: Policy) -> None:
    """continuation=auto resumes natively where the adapter can and knows the session."""
    second = resuming()
    await two_runs(resuming(FIRST), second, permissive)

    assert (second.launches[0].resume, second.launches[0].transcript) == ("own-1", ())


@pytest.mark.parametrize("second", [FakeAdapter(), resuming(name="another")])
async def test_a_provider_that_cannot_gets_the_transcript(second: FakeAdapter, permissive: Policy) -> None:
    """One that cannot resume, or whose session it was not."""
    one, _ = await two_runs(resuming(FIRST), second, permissive)

    assert second.launches[-1].resume is None
    assert second.launches[-1].transcript == one.events


async def test_replay_and_none_are_what_they_say(permissive: Policy) -> None:
    """The caller's choice holds over what the adapter can."""
    replayed, fresh = resuming(), resuming()
    await two_runs(resuming(FIRST), replayed, permissive, continuation="replay")
    await two_runs(resuming(FIRST), fresh, permissive, continuation="none")

    assert replayed.launches[0].resume is None
    assert replayed.launches[0].transcript
    assert (fresh.launches[0].resume, fresh.launches[0].transcript) == (None, ())


async def test_a_continuation_that_cannot_be_is_an_error_before_the_start(permissive: Policy) -> None:
    """Native without resume, native without a session, and words that mean nothing."""
    adapter = FakeAdapter()
    for continuation, given in (("native", adapter), ("often", adapter), ("native", resuming())):
        with pytest.raises(UsageError):
            await run_once(given, "go", policies=[permissive], continuation=continuation)  # type: ignore[arg-type]
        assert given.launches == []


async def test_turns_count_on_through_the_session(permissive: Policy) -> None:
    """An adapter numbers from 1 in each run; the record counts on."""
    second = FakeAdapter([TurnStarted(turn=1), Ask(id="d1", name="read", turn=1), TurnStarted(turn=2)])
    _, result = await two_runs(FakeAdapter(FIRST), second, permissive)
    turns = [event.turn for event in result.events if isinstance(event, (TurnStarted, ToolCallStarted))]

    assert turns == [3, 3, 4]


async def test_rules_see_the_whole_session_and_limits_each_run(denying: Callable[..., Policy]) -> None:
    """What started in the first run counts as evidence in the second; run limits begin again."""
    from proctor.policies.reading import parse_policies

    (policy,) = parse_policies(
        """
        name: p
        on_violation: deny
        limits: {max_tool_calls: 1}
        rules: [{type: before, first: read, then: write}]
        """
    )
    second = FakeAdapter([Ask(id="d1", name="write"), Ask(id="d2", name="read")])
    await two_runs(FakeAdapter([Ask(id="c1", name="read")]), second, policy)

    assert [call.id for call in second.ran] == ["d1"]


async def test_a_run_is_executed_once(permissive: Policy) -> None:
    """An unknown run, and one that was started, are errors."""
    store = MemoryStore()
    run_id = await create_run(store, "go", metadata={"ticket": 7})
    adapter = FakeAdapter()
    result = await execute_run(store, adapter, run_id, policies=[permissive])
    started = next(event for event in result.events if isinstance(event, RunStarted))

    assert (result.run_id, adapter.launches[0].prompt) == (run_id, "go")
    assert started.metadata["ticket"] == 7
    for bad, message in ((run_id, "completed"), ("nothing", "no run")):
        with pytest.raises(UsageError, match=message):
            await execute_run(store, adapter, bad, policies=[permissive])


async def test_the_record_folds_to_the_state_that_was_live(denying: Callable[..., Policy]) -> None:
    """Folding the stored events gives a monitor with the same snapshot as one folded run by run."""
    from proctor.policies.events.run_context import RunContext
    from proctor.policies.monitor.compiled_policy import compile_policy
    from proctor.policies.stack.merge import merge_policies

    policy = Policy(name="p", limits=Limits(max_tool_calls=3), on_violation="deny")
    store = MemoryStore()
    steps = [Ask(id=f"c{n}", name="read", input={"n": n}) for n in range(5)]
    result = await run_once(FakeAdapter(steps), "go", policies=[policy], store=store)
    monitor = compile_policy(merge_policies([policy])).monitor(RunContext())
    for event in result.events:
        monitor.observe(event)

    assert monitor.finish().rules == result.policy.rules
    assert monitor.usage == result.usage
