"""Events from a provider: it can't report for the supervisor, and a field of the wrong type fails its run."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from supervised import OPEN, denying, record_of

from proctor.policies import compile_policy, parse_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import MOST_PARTS, ToolCall
from proctor.supervisor import EventError, MemoryStore, PolicyViolationError, StoreError, run_once
from proctor.supervisor.testing.fakes import Ask, FakeAdapter, FakeApprover, Pause

pytestmark = pytest.mark.anyio


class Thought(ev.Event, tag="thought", frozen=True):
    """A type of event that providers may not report."""


CLAIMS = [
    Thought(),
    ev.ToolApprovalGranted(approval_id="r.1", tool_call_id="c1", tool_name="bash"),
    ev.PolicyViolated(policy="p", kind="max_total_tokens"),
    ev.BudgetWarned(limit="max_total_tokens"),
    ev.RecordPruned(by="ana", events=9),
    ev.Unrecognized(raw={"type": "tool_approval_granted", "approval_id": "r.1", "tool_call_id": "c1"}),
]


@pytest.mark.parametrize("claim", CLAIMS)
async def test_an_event_that_only_the_supervisor_may_record_is_rejected(claim: ev.Event) -> None:
    """It is recorded as an error with its content, which survives the store."""
    store = MemoryStore()
    adapter = FakeAdapter([claim, Ask(id="c1", name="bash")])
    result = await run_once(
        adapter, "go", policies=[denying("request_approval")], store=store, approver=FakeApprover(False)
    )
    stored = [event async for event in store.read(result.session_id)]
    (error,) = [event for event in stored if isinstance(event, ev.ErrorOccurred)]

    assert error.code == "not_believed"
    assert claim.type in error.message
    assert not [event for event in stored if isinstance(event, ev.ToolApprovalGranted)]
    assert adapter.ran == []


async def test_a_providers_start_becomes_its_session_and_its_ids_are_ignored() -> None:
    """The supervisor writes one run_started, with its own ids, times and order."""
    adapter = FakeAdapter([ev.RunStarted(model="m", tools=("a",), run_id="evil", session_id="evil", seq=99)])
    result = await run_once(adapter, "go", policies=[OPEN])
    (started,) = [event for event in result.events if isinstance(event, ev.SessionStarted)]

    assert [event.type for event in result.events].count("run_started") == 1
    assert started.metadata == {"model": "m", "tools": ["a"]}
    assert {event.run_id for event in result.events} == {result.run_id}
    assert [event.seq for event in result.events] == list(range(1, len(result.events) + 1))


async def test_a_call_that_starts_with_another_input_is_evaluated_again() -> None:
    from proctor.policies.errors import PolicyViolationError
    from proctor.policies.reading import parse_policies

    (policy,) = parse_policies(
        """
        name: p
        on_violation: deny
        tool_rules: [{deny: [{tool: run, where: [{path: $.cmd, equals: bad}]}]}]
        """
    )
    adapter = FakeAdapter()

    async def swap() -> None:
        assert (await adapter.launches[0].gate(ToolCall(id="c1", name="run", input={"cmd": "good"}))).allowed

    adapter.steps = (
        Ask(id="x", name="other", meanwhile=swap),
        ev.ToolCallStarted(tool_call_id="c1", tool_name="run", tool_input={"cmd": "bad"}),
    )
    with pytest.raises(PolicyViolationError) as raised:
        await run_once(adapter, "go", policies=[policy])

    assert [v.enforcement for v in raised.value.violations] == ["interrupted"]


async def test_nested_free_data_is_validated_by_the_store() -> None:
    """Only the store knows what it can store, so a rejected event is an error of the store."""
    adapter = FakeAdapter([ev.SessionStarted(metadata={"model": "m", "handle": object()})])

    with pytest.raises(StoreError, match="session_started"):
        await run_once(adapter, "go", policies=[OPEN])


async def test_output_of_an_agent_after_its_end_is_not_waited_for() -> None:
    """It might never stop."""
    adapter = FakeAdapter([ev.RunCompleted(output="done"), Pause()])
    result = await run_once(adapter, "go", policies=[OPEN])

    assert (result.status, result.output, adapter.closed) == ("completed", "done", 1)


WRONG: Any = 5
WORD: Any = "x"
THING: Any = object()
NO_NUMBERS: list[Any] = [float("nan"), float("inf"), float("-inf")]
"""JSON does not have them: a record would say `null`."""


BY_TEXT: Any = {"ratio": "NaN", "left": [None, {"most": "Infinity"}, "-Infinity"], "plain": 1.5}
BY_NUMBER: Any = {"ratio": NO_NUMBERS[0], "left": (None, {"most": NO_NUMBERS[1]}, NO_NUMBERS[2]), "plain": 1.5}


@pytest.mark.parametrize(("event", "recorded"), [
    (ev.ToolCallCompleted(tool_call_id="c", tool_name="t", tool_output=BY_NUMBER), {"tool_output": BY_TEXT}),
    (ev.ToolCallFailed(tool_call_id="c", tool_name="t", error=NO_NUMBERS[0]), {"error": "NaN"}),
    (ev.MessageReceived(content=[BY_NUMBER]), {"content": [BY_TEXT]}),
    (ev.ErrorOccurred(code="x", message="null", provider_error=BY_NUMBER), {"provider_error": BY_TEXT}),
    (ev.Unrecognized(raw={"type": "mood", "of": BY_NUMBER}), {"of": BY_TEXT}),
    (ev.RunStarted(metadata=BY_NUMBER), {"metadata": BY_TEXT}),
    (ev.RunCompleted(output=BY_NUMBER), {"output": BY_TEXT}),
])  # fmt: skip
async def test_a_number_that_json_does_not_have_is_recorded_as_text(
    event: ev.Event, recorded: dict[str, Any]
) -> None:
    """A record would say `null`. Observers and results have the same event as the store."""
    store, seen = MemoryStore(), list[ev.Event]()
    adapter = FakeAdapter([ev.ToolCallStarted(tool_call_id="c", tool_name="t"), event])
    result = await run_once(
        adapter, "go", policies=[OPEN], store=store, publishers=[lambda event: seen.append(event)]
    )
    stored = [
        {name: getattr(kept, "raw", {}).get(name, getattr(kept, name, None)) for name in recorded}
        for events in (await record_of(store), seen, result.events)
        for kept in events
    ]

    assert stored.count(recorded) == 3


async def test_a_number_in_an_output_is_what_its_record_says_to_rules() -> None:
    """A session that continues from its record would decide otherwise."""
    text = "{name: p, rules: [{type: precondition, tool: pay, requires: [{prior: look, output: [{path: $.x, %s}]}]}]}"
    answers = []
    for condition in ("equals: NaN", "exists: true", "lte: 5"):
        adapter = FakeAdapter([Ask(id="a", name="look", output={"x": NO_NUMBERS[0]}), Ask(id="b", name="pay")])
        with suppress(PolicyViolationError):
            await run_once(adapter, "go", policies=parse_policies(text % condition))
        answers.append("pay" in [call.name for call in adapter.ran])

    assert answers == [True, True, False]


def endless() -> Any:
    """A list that holds another one twice, which holds another one twice, and so on."""
    value: list[Any] = []
    for _ in range(60):
        value = [value, value]
    return value


@pytest.mark.parametrize(("event", "message"), [
    (ev.ToolCallCompleted(tool_call_id=WRONG), "`tool_call_completed` event whose `tool_call_id` .* got a whole"),
    (ev.ToolCallStarted(tool_call_id="c", tool_name="t", tool_input=WORD), "whose `tool_input` .* object, got text"),
    (ev.ToolCallRequested(tool_call_id="c", tool_name="t", tool_input={"x": endless()}),
        "`tool_call_requested` event whose `tool_input` .* a value in a circle"),
    (ev.ToolCallStarted(tool_call_id="c", tool_name="t", tool_input={"a": [["x"]] * MOST_PARTS}), "parts"),
    *((kind(tool_call_id="c", tool_name="t", tool_input={"x": [1.5, number]}), "whose `tool_input` .* the number")
        for kind in (ev.ToolCallRequested, ev.ToolCallStarted) for number in NO_NUMBERS),
    *((event, "the number `nan`") for event in (
        ev.ToolCallStarted(tool_call_id="c", tool_name="t", parent_tool_call_id=NO_NUMBERS[0]),
        ev.ToolCallDenied(tool_call_id="c", tell_model=NO_NUMBERS[0]),
        ev.TokenUsageUpdated(model=NO_NUMBERS[0]),
        ev.RunStarted(model=NO_NUMBERS[0]),
    )),
    (ev.TokenUsageUpdated(input_tokens=WORD), "`token_usage_updated` event whose `input_tokens` .* got text"),
    (ev.TokenUsageUpdated(input_tokens=True), "whose `input_tokens` .* got true or false"),
    (ev.TokenUsageUpdated(scope=WORD), "whose `scope` .* `x`"),
    (ev.TokenUsageUpdated(output_tokens=-1), "whose `output_tokens` is -1, which is not an amount"),
    (ev.TokenUsageUpdated(scope="cumulative", cache_read_tokens=-5), "whose `cache_read_tokens` is -5"),
    (ev.TokenUsageUpdated(cost_usd=-0.01), "whose `cost_usd` is -0.01"),
    (ev.TokenUsageUpdated(cost_usd=float("nan")), "whose `cost_usd` is nan"),
    (ev.TokenUsageUpdated(cost_usd=float("inf")), "whose `cost_usd` is inf"),
    (ev.MessageStreamed(delta=WRONG), "`message_streamed` event whose `delta` .* expected text"),
    (ev.MessageReceived(content=THING), "`message_received` event whose `content` .* object is unsupported"),
    (ev.MessageReceived(event_id=WRONG), "whose `event_id` .* expected text"),
    (ev.RunStarted(tools=("read", WRONG)), "`run_started` event whose `tools` .* expected text"),
    (ev.RunCompleted(output=THING), "`run_completed` event whose `output`"),
])  # fmt: skip
async def test_a_field_of_the_wrong_type_fails_the_run_and_keeps_the_earlier_events(
    event: ev.Event, message: str
) -> None:
    """The error names the adapter, the event and the field."""
    store, adapter = MemoryStore(), FakeAdapter([ev.MessageReceived(content="before"), event, Pause()])
    with pytest.raises(EventError, match=f"^adapter `fake` reported a .*{message}"):
        await run_once(adapter, "go", policies=[OPEN], store=store)
    stored = await record_of(store)

    assert "before" in [kept.content for kept in stored if isinstance(kept, ev.MessageReceived)]
    assert type(event) not in [type(kept) for kept in stored[4:]]
    assert isinstance(stored[-1], ev.RunFailed)
    assert stored[-1].error["type"] == "EventError"
    assert adapter.closed == 1


@pytest.mark.parametrize(("call", "message"), [
    (ToolCall(id=WRONG, name="read"), "call whose `id` .* expected text"),
    (ToolCall(id="c", name="read", input=WORD), "call whose `input` .* expected an object"),
    (ToolCall(id="c", name="read", input={"x": endless()}), "call whose `input` .* a value in a circle, or of"),
    *((ToolCall(id="c", name="read", input={"most": number}), "call whose `input` .* the number `-?(nan|inf)`")
        for number in NO_NUMBERS),
    (ToolCall(id="c", name="read", turn=WORD), "call whose `turn` .* expected a whole number"),
    (None, "`NoneType`, which is not a call"),
    ({"name": "read"}, "`dict`, which is not a call"),
])  # fmt: skip
async def test_a_call_with_fields_of_wrong_types_is_denied_and_fails_the_run(call: Any, message: str) -> None:
    """At the gate too. It is not recorded."""
    store, adapter, answers = MemoryStore(), FakeAdapter(), []

    async def ask() -> None:
        answers.append(await adapter.launches[0].gate(call))

    adapter.steps = (Ask(name="read", meanwhile=ask), Pause())
    with pytest.raises(EventError, match=f"^adapter `fake` proposed a {message}"):
        await run_once(adapter, "go", policies=[OPEN], store=store)

    stored = await record_of(store)

    assert not any(answer.allowed for answer in answers)
    assert [event.tool_call_id for event in stored if isinstance(event, ev.ToolCallRequested)] == ["call-1"]
    assert isinstance(stored[-1], ev.RunFailed)


@pytest.mark.parametrize(("first", "then", "message"), [
    ({"input_tokens": 10}, {"input_tokens": 9}, "`input_tokens` fell from 10 to 9"),
    ({"input_tokens": 1, "cost_usd": 2.0}, {"input_tokens": 5, "cost_usd": 1.5}, "`cost_usd` fell from 2.0 to 1.5"),
    ({"input_tokens": 5, "event_id": "a"}, {"input_tokens": 4, "event_id": "b"}, "`input_tokens` fell from 5 to 4"),
])  # fmt: skip
async def test_usage_that_falls_ends_the_run(first: dict[str, Any], then: dict[str, Any], message: str) -> None:
    """Otherwise, an agent that resets its counter would not be charged."""
    reports = [ev.TokenUsageUpdated(scope="cumulative", **figures) for figures in (first, then)]
    adapter = FakeAdapter([*reports, Pause()])
    with pytest.raises(EventError, match=message) as raised:
        await run_once(adapter, "go", policies=[OPEN])

    assert raised.value.partial.status == "failed"  # type: ignore[attr-defined]
    assert adapter.closed == 1


async def test_a_repeated_usage_report_is_not_a_fall() -> None:
    """Nor is a late duplicate, a delta, or a report without a cost."""
    steps = [
        ev.TokenUsageUpdated(scope="cumulative", input_tokens=10, cost_usd=1.0, event_id="a"),
        ev.TokenUsageUpdated(scope="cumulative", input_tokens=9, cost_usd=1.0, event_id="a"),
        ev.TokenUsageUpdated(input_tokens=1),
        ev.TokenUsageUpdated(scope="cumulative", input_tokens=12, event_id="b"),
        ev.TokenUsageUpdated(scope="cumulative", input_tokens=10, cost_usd=1.0, event_id="a"),
    ]
    result = await run_once(FakeAdapter(steps), "go", policies=[OPEN])

    assert result.usage.input_tokens == 12


@pytest.mark.parametrize(
    "event",
    [
        ev.MessageReceived(content=("a", datetime(2026, 1, 1, tzinfo=UTC))),
        ev.TokenUsageUpdated(cost_usd=1),
        ev.RunStarted(tools=["read"]),  # type: ignore[arg-type]
        ev.SessionStarted(provider_session_id=None),
    ],
)
async def test_a_value_that_survives_json_is_recorded(event: ev.Event) -> None:
    """Even if its Python type changes."""
    store = MemoryStore()
    result = await run_once(FakeAdapter([event]), "go", policies=[OPEN], store=store)

    assert result.status == "completed"
    assert len(await record_of(store)) == len(result.events)


async def test_a_whole_number_of_usd_behind_a_repeated_event_is_recorded() -> None:
    """The store numbers what follows a repeated event, and reads 1 back as 1.0: that is no other event."""
    message = ev.MessageReceived(content="x", event_id="a")
    adapter = FakeAdapter([message, message, ev.TokenUsageUpdated(cost_usd=1)])
    result = await run_once(adapter, "go", policies=[OPEN])

    assert (result.status, result.usage.cost_usd) == ("completed", 1.0)


async def test_an_event_is_recorded_though_it_has_the_id_of_another() -> None:
    """The monitor has observed it: what the store left out was gone for a run that continues the session."""
    store = MemoryStore()
    steps = [
        ev.MessageReceived(content="x", event_id="a"),
        ev.MessageReceived(role="user", content="order 4711", event_id="a"),
        ev.TokenUsageUpdated(input_tokens=7, event_id="a"),
        ev.Unrecognized(raw={"type": "odd", "event_id": "a"}, event_id="a"),
    ]
    rule = "{name: p, on_violation: deny, rules: [{type: precondition, tool: pay, requires: [{user_said: '4711'}]}]}"
    policies = parse_policies(rule)
    first = await run_once(FakeAdapter(steps), "go", policies=policies, store=store)
    second = FakeAdapter([Ask(name="pay")])
    await run_once(second, "on", policies=policies, store=store, session_id=first.session_id)
    stored = [event async for event in store.read(first.session_id, run_id=first.run_id)]
    folded = compile_policy(policies[0]).monitor()
    for event in stored:
        folded.observe(event)

    assert [event.type for event in stored[3:-1]] == [
        *("message_received", "message_received", "token_usage_updated", "odd")
    ]
    assert folded.usage == first.usage
    assert [call.name for call in second.ran] == ["pay"]


async def test_a_call_is_recorded_though_its_event_has_the_id_of_another() -> None:
    """A store leaves out an event whose id is known; a run that continues the session would not count the call."""
    store = MemoryStore()
    started: dict[str, Any] = {"tool_name": "pay", "event_id": "a"}
    steps = [
        ev.MessageReceived(content="x", event_id="a"),
        ev.ToolCallStarted(tool_call_id="1", **started),
        ev.ToolCallCompleted(tool_call_id="1", **started),
        ev.ToolCallStarted(tool_call_id="2", **started),
    ]
    once = parse_policies("{name: p, on_violation: deny, rules: [{type: count, tool: pay, max: 2}]}")
    first = await run_once(FakeAdapter(steps), "go", policies=once, store=store)
    second = FakeAdapter([Ask(name="pay")])
    await run_once(second, "on", policies=once, store=store, session_id=first.session_id)

    assert [event.tool_call_id for event in first.events if isinstance(event, ev.ToolCallStarted)] == ["1", "2"]
    assert sum(isinstance(event, ev.ToolCallCompleted) for event in first.events) == 1
    assert second.ran == []
