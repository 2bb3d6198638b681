"""What an adapter hands over with fields of the wrong types: the run fails of it, its record can be read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from proctor.policies.events import (
    Event,
    MessageReceived,
    MessageStreamed,
    RunCompleted,
    RunFailed,
    RunStarted,
    SessionStarted,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallRequested,
    ToolCallStarted,
)
from proctor.policies.events.calls import ToolCall
from proctor.policies.policy import Policy
from proctor.supervisor import EventError, MemoryStore, run_once
from proctor.supervisor.testing import Ask, FakeAdapter, Pause
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio
WRONG: Any = 5
WORD: Any = "x"
THING: Any = object()


def endless() -> Any:
    """A list that holds another twice, which holds another twice, and so on."""
    value: list[Any] = []
    for _ in range(60):
        value = [value, value]
    return value


async def record_of(store: MemoryStore) -> list[Event]:
    (run,) = await store.runs()
    return [event async for event in store.read(run.session_id)]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (ToolCallCompleted(tool_call_id=WRONG), "`tool_call_completed` event whose `tool_call_id` .* got a whole"),
        (ToolCallStarted(tool_call_id="c", tool_name="t", tool_input=WORD), "whose `tool_input` .* object, got text"),
        (
            ToolCallRequested(tool_call_id="c", tool_name="t", tool_input={"x": endless()}),
            "`tool_call_requested` event whose `tool_input` .* a value in a circle",
        ),
        (TokenUsageUpdated(input_tokens=WORD), "`token_usage_updated` event whose `input_tokens` .* got text"),
        (TokenUsageUpdated(input_tokens=True), "whose `input_tokens` .* got true or false"),
        (TokenUsageUpdated(scope=WORD), "whose `scope` .* 'x'"),
        (TokenUsageUpdated(output_tokens=-1), "whose `output_tokens` is -1, which is not an amount"),
        (TokenUsageUpdated(scope="cumulative", cache_read_tokens=-5), "whose `cache_read_tokens` is -5"),
        (TokenUsageUpdated(cost_usd=-0.01), "whose `cost_usd` is -0.01"),
        (TokenUsageUpdated(cost_usd=float("nan")), "whose `cost_usd` is nan"),
        (TokenUsageUpdated(cost_usd=float("inf")), "whose `cost_usd` is inf"),
        (MessageStreamed(delta=WRONG), "`message_streamed` event whose `delta` .* expected text"),
        (MessageReceived(content=THING), "`message_received` event whose `content` .* object is unsupported"),
        (MessageReceived(event_id=WRONG), "whose `event_id` .* expected text"),
        (RunStarted(tools=("read", WRONG)), "`run_started` event whose `tools` .* expected text"),
        (RunCompleted(output=THING), "`run_completed` event whose `output`"),
    ],
)
async def test_a_field_of_the_wrong_type_fails_the_run_and_the_rest_can_be_read(
    event: Event, message: str, permissive: Policy
) -> None:
    """One error that names the adapter, the event and the field; what was accepted before stays."""
    store, adapter = MemoryStore(), FakeAdapter([MessageReceived(content="before"), event, Pause()])
    with anyio.fail_after(PATIENCE_S), pytest.raises(EventError, match=f"^adapter `fake` reported a .*{message}"):
        await run_once(adapter, "go", policies=[permissive], store=store)
    stored = await record_of(store)

    assert "before" in [kept.content for kept in stored if isinstance(kept, MessageReceived)]
    assert type(event) not in [type(kept) for kept in stored[4:]]
    assert isinstance(stored[-1], RunFailed)
    assert stored[-1].error["type"] == "EventError"
    assert adapter.closed == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (ToolCall(id=WRONG, name="read"), "call whose `id` .* expected text"),
        (ToolCall(id="c", name="read", input=WORD), "call whose `input` .* expected an object"),
        (ToolCall(id="c", name="read", input={"x": endless()}), "call whose `input` .* a value in a circle, or of"),
        (ToolCall(id="c", name="read", turn=WORD), "call whose `turn` .* expected a whole number"),
        (None, "`NoneType`, which is not a call"),
        ({"name": "read"}, "`dict`, which is not a call"),
    ],
)
async def test_a_call_of_the_wrong_types_is_refused_and_fails_the_run(
    call: Any, message: str, permissive: Policy
) -> None:
    """At the gate too: nothing of it is recorded."""
    store, adapter, answers = MemoryStore(), FakeAdapter(), []

    async def ask() -> None:
        answers.append(await adapter.launches[0].gate(call))

    adapter.steps = (Ask(name="read", meanwhile=ask), Pause())
    with anyio.fail_after(PATIENCE_S), pytest.raises(EventError, match=f"^adapter `fake` proposed a {message}"):
        await run_once(adapter, "go", policies=[permissive], store=store)

    stored = await record_of(store)

    assert not any(answer.allowed for answer in answers)
    assert [event.tool_call_id for event in stored if isinstance(event, ToolCallRequested)] == ["call-1"]
    assert isinstance(stored[-1], RunFailed)


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        ({"input_tokens": 10}, {"input_tokens": 9}, "`input_tokens` fell from 10 to 9"),
        (
            {"input_tokens": 1, "cost_usd": 2.0},
            {"input_tokens": 5, "cost_usd": 1.5},
            "`cost_usd` fell from 2.0 to 1.5",
        ),
        (
            {"input_tokens": 5, "event_id": "a"},
            {"input_tokens": 4, "event_id": "b"},
            "`input_tokens` fell from 5 to 4",
        ),
    ],
)
async def test_usage_that_falls_ends_the_run(
    first: dict[str, Any], then: dict[str, Any], message: str, permissive: Policy
) -> None:
    """What a client has used of a run stays used: a figure that begins again would not be counted."""
    reports = [TokenUsageUpdated(scope="cumulative", **figures) for figures in (first, then)]
    adapter = FakeAdapter([*reports, Pause()])
    with anyio.fail_after(PATIENCE_S), pytest.raises(EventError, match=message) as raised:
        await run_once(adapter, "go", policies=[permissive])

    assert raised.value.partial.status == "failed"  # type: ignore[attr-defined]
    assert adapter.closed == 1


async def test_the_same_report_of_usage_again_is_no_fall(permissive: Policy) -> None:
    """Nor are deltas, or a report that says nothing of the cost."""
    steps = [
        TokenUsageUpdated(scope="cumulative", input_tokens=10, cost_usd=1.0, event_id="a"),
        TokenUsageUpdated(scope="cumulative", input_tokens=10, cost_usd=1.0, event_id="a"),
        TokenUsageUpdated(input_tokens=1),
        TokenUsageUpdated(scope="cumulative", input_tokens=12, event_id="b"),
    ]
    result = await run_once(FakeAdapter(steps), "go", policies=[permissive])

    assert result.usage.input_tokens == 12


@pytest.mark.parametrize(
    "event",
    [
        MessageReceived(content=("a", datetime(2026, 1, 1, tzinfo=UTC))),
        TokenUsageUpdated(cost_usd=1),
        RunStarted(tools=["read"]),  # type: ignore[arg-type]
        SessionStarted(provider_session_id=None),
    ],
)
async def test_a_value_that_json_gives_back_is_recorded(event: Event, permissive: Policy) -> None:
    """Its type in Python may be another one."""
    store = MemoryStore()
    result = await run_once(FakeAdapter([event]), "go", policies=[permissive], store=store)

    assert result.status == "completed"
    assert len(await record_of(store)) == len(result.events)
