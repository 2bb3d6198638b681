"""How the calls of any client reach the gate: in their order, after all that came before, and failing closed."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
import trio
from msgspec.structs import replace
from supervised import RecordingGate

from proctor.adapters.kit import CallGate, EventStream, helpers
from proctor.policies.events import Event, MessageReceived, RunCompleted
from proctor.policies.events.calls import ToolCall
from proctor.supervisor import GateAnswer, Launch, ProviderError

Gate = Callable[[ToolCall], Awaitable[GateAnswer]]
SECRET = "hunter2"


def launch(gate: Gate) -> Launch:
    return Launch(run_id="r", session_id="s", prompt="p", gate=gate)


async def read(stream: EventStream, seen: list[Event | str], *, takes_s: float = 0) -> None:
    """A reader that deals with each event for so long."""
    async for event in stream.events():
        await anyio.sleep(takes_s)
        seen.append(event)


@pytest.mark.trio
async def test_a_call_is_judged_once_everything_reported_before_is_processed(autojump_clock: object) -> None:
    """However long that takes: nothing is judged on less because somebody was slow."""
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
async def test_calls_are_judged_in_the_order_in_which_they_are_asked(autojump_clock: object) -> None:
    """The first is not overtaken while it waits for what was said before it."""
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
async def test_a_gate_that_fails_permits_nothing_and_ends_the_run_with_why(capfd: pytest.CaptureFixture[str]) -> None:
    """The model is told nothing of the error, and nothing is printed: least of all what the call held."""

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
@pytest.mark.parametrize("stopped", [False, True])
async def test_after_a_stop_nothing_is_permitted_and_no_run_is_completed(stopped: bool) -> None:
    """Neither what was asked about meanwhile, nor what a client says that was told to stop. One that nobody told to
    has completed its run.
    """
    stream, seen = EventStream(), []  # type: ignore[var-annotated]
    link = CallGate(launch(RecordingGate()), stream)
    first = await link.propose(ToolCall(id="a", name="x"))
    if stopped:
        link.stop()
    second = await link.propose(ToolCall(id="b", name="x"))
    reports = [MessageReceived(role="assistant", content="done"), RunCompleted(output="done")]
    await link.report(reports)
    stream.close()
    await read(stream, seen)

    assert (first.allowed, second.allowed, second.stop) == (True, not stopped, stopped)
    assert seen == (reports[:1] if stopped else reports)


@pytest.mark.anyio
@pytest.mark.parametrize(("says", "allowed"), [({"rewrites": True}, True), ({"rewrites": False}, False), ({}, False)])
async def test_another_input_than_was_asked_for_needs_a_client_that_takes_it(
    says: dict[str, Any], allowed: bool
) -> None:
    """Else the call is refused, and reported as one that did not run."""
    gate = RecordingGate(lambda call: GateAnswer(allowed=True, input={"line": 2}))
    stream, seen = EventStream(), []  # type: ignore[var-annotated]
    answer = await CallGate(launch(gate), stream, **says).propose(ToolCall(id="a", name="x", input={"line": 1}))
    stream.close()
    await read(stream, seen)

    assert answer.allowed is allowed
    assert [event.type for event in seen] == ([] if allowed else ["tool_call_failed"])


@pytest.mark.anyio
@pytest.mark.parametrize(("offers", "permitted"), [(False, False), (False, True), (True, True)])
async def test_what_a_client_denied_for_having_no_such_tool_is_put_to_the_policy(
    offers: bool, permitted: bool
) -> None:
    """Which denies it, too, unless it has changed its mind meanwhile; the call does not run either way. What the
    policy offers is not put to it: then the client has reasons of its own, and nothing counts the attempt.
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
