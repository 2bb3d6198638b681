"""The gate of any client's calls: in order, after all earlier events, and failing closed."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
import trio
from msgspec.structs import replace
from supervised import RecordingGate

from proctor.adapters.kit import CallGate, EventStream, helpers
from proctor.policies.events import Event, MessageReceived, RunCompleted, ToolCallFailed
from proctor.policies.events.calls import ToolCall
from proctor.supervisor import GateAnswer, Launch, ProviderError

Gate = Callable[[ToolCall], Awaitable[GateAnswer]]
SECRET = "hunter2"


def launch(gate: Gate) -> Launch:
    return Launch(run_id="r", session_id="s", prompt="p", gate=gate)


async def read(stream: EventStream, seen: list[Event | str], *, takes_s: float = 0) -> None:
    """A reader that takes this long for each event."""
    async for event in stream.events():
        await anyio.sleep(takes_s)
        seen.append(event)


@pytest.mark.trio
async def test_a_call_is_evaluated_after_all_earlier_events(autojump_clock: object) -> None:
    """However long that takes, slow processing never leaves evidence out."""
    seen: list[Event | str] = []

    async def gate(call: ToolCall) -> GateAnswer:
        seen.append(call.id)
        return GateAnswer(allowed=True)

    stream = EventStream()
    link = CallGate(launch(gate), stream)
    messages = [MessageReceived(role="assistant", content=str(n)) for n in range(3)]
    async with helpers() as tasks:
        tasks.start_soon(lambda: read(stream, seen, takes_s=3600))
        await link.report(messages)
        answer = await link.propose(ToolCall(id="c", name="x"))

    assert answer.allowed
    assert seen == [*messages, "c"]


@pytest.mark.trio
async def test_calls_are_evaluated_in_the_order_of_their_questions(autojump_clock: object) -> None:
    """The first is not overtaken while it waits for earlier events."""
    gate = RecordingGate()
    stream, seen = EventStream(), []  # type: ignore[var-annotated]
    link = CallGate(launch(gate), stream)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: read(stream, seen, takes_s=5))
        await link.report([MessageReceived(role="assistant", content="x")])
        async with anyio.create_task_group() as asking:
            for n in range(5):
                asking.start_soon(link.propose, ToolCall(id=f"c{n}", name="x"))
                await trio.lowlevel.checkpoint()
        stream.close()

    assert [call.id for call in gate.calls] == [f"c{n}" for n in range(5)]


@pytest.mark.anyio
async def test_a_gate_that_fails_allows_nothing_and_ends_the_run_with_the_reason(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The model does not get the error, and nothing is printed, least of all the call's input."""

    async def gate(call: ToolCall) -> GateAnswer:
        password = call.input["password"]
        raise RuntimeError(f"no answer for {len(password)} letters")

    stream, seen = EventStream(), []  # type: ignore[var-annotated]
    link = CallGate(launch(gate), stream)
    answers = [await link.propose(ToolCall(id=id, name="x", input={"password": SECRET})) for id in ("a", "b")]
    with pytest.raises(ProviderError, match="the gate failed: no answer for 7 letters") as raised:
        await read(stream, seen)

    assert seen == []
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert [(answer.allowed, answer.stop) for answer in answers] == [(False, True), (False, True)]
    assert "no answer" not in repr(answers)
    assert capfd.readouterr() == ("", "")


@pytest.mark.anyio
@pytest.mark.parametrize("stopped", ["never", "by an answer", "before it", "meanwhile"])
async def test_after_a_stop_nothing_is_allowed_and_no_run_completes(stopped: str) -> None:
    """Neither calls asked about meanwhile, nor a completion that a stopped client reports. A client that was not
    stopped has completed its run. Every denial has a text.
    """

    def judge(call: ToolCall) -> GateAnswer:
        if (stopped, call.id) == ("meanwhile", "b"):
            link.stop()
        by_answer = stopped == "by an answer"
        return GateAnswer(allowed=not by_answer, stop=by_answer)

    stream, seen = EventStream(), []  # type: ignore[var-annotated]
    gate = RecordingGate(judge)
    link = CallGate(launch(gate), stream)
    first = await link.propose(ToolCall(id="a", name="x"))
    if stopped == "before it":
        link.stop()
    second = await link.propose(ToolCall(id="b", name="x"))
    reports = [MessageReceived(role="assistant", content="done"), RunCompleted(output="done")]
    await link.report(reports)
    stream.close()
    await read(stream, seen)
    goes_on = stopped == "never"
    refused = [event for event in seen if isinstance(event, ToolCallFailed)]

    assert (first.allowed, second.allowed, second.stop) == (stopped != "by an answer", goes_on, not goes_on)
    assert all(answer.allowed or answer.tell_model for answer in (first, second))
    assert len(gate.calls) == (2 if stopped in ("never", "meanwhile") else 1)
    assert [event for event in seen if event not in refused] == (reports if goes_on else reports[:1])
    assert [event.tool_call_id for event in refused] == (["b"] if stopped == "meanwhile" else [])


@pytest.mark.anyio
@pytest.mark.parametrize(("says", "allowed"), [({"rewrites": True}, True), ({"rewrites": False}, False), ({}, False)])
async def test_a_changed_input_needs_a_client_that_supports_it(says: dict[str, Any], allowed: bool) -> None:
    """Otherwise the call is denied, and reported as not run."""
    gate = RecordingGate(lambda call: GateAnswer(allowed=True, input={"line": 2}))
    stream, seen = EventStream(), []  # type: ignore[var-annotated]
    answer = await CallGate(launch(gate), stream, **says).propose(ToolCall(id="a", name="x", input={"line": 1}))
    stream.close()
    await read(stream, seen)

    assert answer.allowed is allowed
    assert [event.type for event in seen] == ([] if allowed else ["tool_call_failed"])


@pytest.mark.anyio
@pytest.mark.parametrize(("offers", "permitted"), [(False, False), (False, True), (True, True)])
async def test_a_call_that_a_client_denied_as_an_unknown_tool_is_evaluated(offers: bool, permitted: bool) -> None:
    """The policy denies it too, unless its state has changed; the call does not run in either case. A tool that the
    policy offers is not evaluated: the client has its own reason, and the attempt does not count.
    """
    gate = RecordingGate(lambda call: permitted)
    call = ToolCall(id="a", name="x")
    stream, seen = EventStream(), []  # type: ignore[var-annotated]
    offered = replace(launch(gate), narrow=lambda tools: list(tools) if offers else [])
    recorded = await CallGate(offered, stream).attempted(call)
    stream.close()
    await read(stream, seen)

    assert (recorded, gate.calls) == ((False, []) if offers else (True, [call]))
    assert [(event.type, event.error) for event in seen] == (
        [("tool_call_failed", {"message": "not run: the client has no such tool"})]
        if permitted and not offers
        else []
    )


def some_messages(count: int) -> list[Event]:
    return [MessageReceived(role="assistant", content=str(n)) for n in range(count)]


@pytest.mark.trio
async def test_a_sender_waits_while_too_many_events_are_unread_or_for_all_of_them(autojump_clock: object) -> None:
    """The backlog is two, and reading an event takes a second. Sending five events takes four seconds, and waiting
    until the sixth is read takes two more. A later event is dropped.
    """
    stream, seen, events = EventStream(backlog=2), [], some_messages(6)  # type: ignore[var-annotated]
    began = trio.current_time()
    async with helpers() as tasks:
        tasks.start_soon(lambda: read(stream, seen, takes_s=1))
        await stream.send(events[:5])
        after_sending = trio.current_time() - began
        await stream.send_and_wait(events[5])
        after_waiting = trio.current_time() - began
        stream.close()
        await stream.send_and_wait(MessageReceived(content="late"))

    assert (after_sending, after_waiting) == (4, 6)
    assert seen == events


@pytest.mark.trio
async def test_a_reader_that_leaves_blocks_no_sender() -> None:
    """Neither a waiting one nor a later one."""
    stream = EventStream()
    events = stream.events()
    with trio.fail_after(5):
        async with trio.open_nursery() as tasks:
            tasks.start_soon(stream.send_and_wait, MessageReceived(content="x"))
            await anext(events)
            await events.aclose()  # type: ignore[attr-defined]
        await stream.send_and_wait(MessageReceived(content="late"))

    assert stream.closed


@pytest.mark.anyio
@pytest.mark.parametrize("errors", [(None, "second"), ("first", None), ("first", "second")])
async def test_only_the_first_close_of_a_stream_counts(errors: tuple[str | None, str | None]) -> None:
    """With or without an error."""
    stream, raised = EventStream(), []
    for error in errors:
        stream.close(ProviderError(error) if error else None)
    try:
        await read(stream, [])
    except ProviderError as found:
        raised.append(str(found))

    assert raised == [error for error in errors[:1] if error]
