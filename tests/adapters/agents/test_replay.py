"""Replaying a recorded session: its calls are proposed to the gate again, and calls that did not run are left out."""

import gzip
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters import ReplayAdapter, ScriptedAdapter
from proctor.adapters.evaluate import judge_session
from proctor.adapters.kit.trace_lines import TraceError
from proctor.adapters.traces import TraceSession
from proctor.policies import Check, Deny, Policy, ToolCall, compile_policy
from proctor.policies import events as ev
from proctor.supervisor import Adapter, UsageError, run_once
from proctor.supervisor.testing.adapter_fixture import Drive

START = datetime(2026, 11, 1, tzinfo=UTC)
RECORDING: Sequence[ev.Event] = (
    ev.SessionCreated(session_id="s", run_id="r", seq=1, at=START),
    ev.RunStarted(model="m-1", tools=("bash", "read"), at=START),
    ev.MessageSent(content="fix it", at=START),
    ev.TurnStarted(turn=1, at=START),
    ev.ToolCallRequested(tool_call_id="a", tool_name="bash", tool_input={"command": "ls"}, turn=1, at=START),
    ev.ToolCallStarted(tool_call_id="a", tool_name="bash", tool_input={"command": "ls"}, turn=1, at=START),
    ev.PolicyViolated(policy="p", at=START),
    ev.BudgetWarned(limit="max_turns", at=START),
    ev.ToolApprovalGranted(approval_id="x", at=START),
    ev.ToolCallCompleted(tool_call_id="a", tool_name="bash", tool_output="out", at=START + timedelta(hours=2)),
    ev.TokenUsageUpdated(input_tokens=5, cost_usd=0.5, at=START + timedelta(hours=3)),
    ev.MessageReceived(content="done", at=START + timedelta(hours=3)),
    ev.RunCompleted(output="done", at=START + timedelta(hours=3)),
)


@pytest.mark.anyio
async def test_a_replay_omits_everything_the_supervisor_recorded() -> None:
    """For every type that no adapter may report, so that none is rejected as a false report."""
    full = ev.ErrorOccurred(code=ev.USER_MESSAGES_FULL, message="no more are recorded")
    ours = (ev.BudgetReserved(), ev.NetJoined(name="n"), ev.NetLeft(name="n"), ev.RecordPruned(), full)
    result = await run_once(ReplayAdapter([*RECORDING[:-1], *ours, RECORDING[-1]]), "go", policies=())

    assert [event for event in result.events if isinstance(event, ev.ErrorOccurred)] == []
    assert result.output == "done"


@pytest.mark.anyio
async def test_a_gated_replay_proposes_each_call_and_reports_the_rest() -> None:
    """Calls go to the gate once. The supervisor's own events are omitted, and so is the prompt, which it records
    itself; the output stays.
    """
    done = await Drive(ReplayAdapter(RECORDING)).run("another prompt")
    same = await Drive(ReplayAdapter(RECORDING)).run("fix it")

    call = ToolCall(id="a", name="bash", input={"command": "ls"}, turn=1)
    assert done.log == [
        ev.MessageSent(content="fix it"),
        ev.TurnStarted(turn=1),
        call,
        ev.ToolCallCompleted(tool_call_id="a", tool_name="bash", tool_output="out"),
        ev.TokenUsageUpdated(input_tokens=5, cost_usd=0.5),
        ev.MessageReceived(content="done"),
        ev.RunCompleted(output="done"),
    ]
    assert same.log == done.log[1:]


@pytest.mark.anyio
async def test_an_observing_replay_reports_calls_as_recorded() -> None:
    """Without a gate, only the supervisor's events are omitted."""
    done = await Drive(ReplayAdapter(RECORDING, gated=False), refuse={"bash"}).run()

    assert done.proposed == []
    assert done.types == [
        *("message_sent", "turn_started", "tool_call_requested", "tool_call_started", "tool_call_completed"),
        *("token_usage_updated", "message_received", "run_completed"),
    ]


@pytest.mark.anyio
async def test_a_recording_without_requests_is_gated_by_its_started_calls() -> None:
    """Most clients record only that a call started."""
    events = [ev.ToolCallStarted(tool_call_id="a", tool_name="x"), ev.ToolCallCompleted(tool_call_id="a")]

    done = await Drive(ReplayAdapter(events), refuse={"x"}).run()

    assert [call.id for call in done.proposed] == ["a"]
    assert done.types == ["run_completed"]


@pytest.mark.anyio
async def test_a_call_denied_in_the_recording_and_allowed_now_has_failed() -> None:
    """It never ran, so it has no outcome."""
    events = [
        ev.ToolCallRequested(tool_call_id="a", tool_name="x"),
        ev.ToolCallDenied(tool_call_id="a", tool_name="x"),
    ]

    now_allowed = await Drive(ReplayAdapter(events)).run()
    still_refused = await Drive(ReplayAdapter(events), refuse={"x"}).run()

    assert now_allowed.outcomes("a") == [
        ev.ToolCallFailed(tool_call_id="a", tool_name="x", error="denied in the recording")
    ]
    assert still_refused.outcomes("a") == []


@pytest.mark.anyio
async def test_a_call_that_started_with_another_input_is_reported() -> None:
    """The supervisor evaluates the input that ran again."""
    events = [
        ev.ToolCallRequested(tool_call_id="a", tool_name="x", tool_input={"n": 1}),
        ev.ToolCallStarted(tool_call_id="a", tool_name="x", tool_input={"n": 2}),
    ]
    done = await Drive(ReplayAdapter(events)).run()

    assert [call.input for call in done.proposed] == [{"n": 1}]
    assert done.events[0] == events[1]


@pytest.mark.trio
@pytest.mark.parametrize(("pace", "seconds"), [("original", 10_800), ("flat", 0), (60, 180)])
async def test_the_pace_follows_the_event_loops_clock(autojump_clock: object, pace: float, seconds: float) -> None:
    """Recorded times are kept, divided, or ignored; in virtual time."""
    before = anyio.current_time()
    await Drive(ReplayAdapter(RECORDING, pace=pace)).run()

    assert anyio.current_time() - before == pytest.approx(seconds)


@pytest.mark.anyio
async def test_a_replay_can_be_cancelled_while_it_waits() -> None:
    """The only cancel step ends the stream within a recorded silence of hours."""
    adapter = ReplayAdapter(RECORDING, pace="original")
    done = await Drive(adapter, cancel_when=lambda event: event.type == "turn_started").run()

    assert done.steps_taken == ["stop"]
    assert done.types == ["message_sent", "turn_started"]


@pytest.mark.anyio
@pytest.mark.parametrize("packed", [False, True])
async def test_a_recording_is_read_from_a_file(tmp_path: Path, packed: bool) -> None:
    """One event a line, gzipped or plain, gives the same stream as the events."""
    data = b"\n".join(ev.encode_event(event) for event in RECORDING) + b"\n"
    path = tmp_path / "recording"
    path.write_bytes(gzip.compress(data) if packed else data)

    from_file = await Drive(ReplayAdapter(path)).run()
    from_events = await Drive(ReplayAdapter(RECORDING)).run()

    assert from_file.log == from_events.log


@pytest.mark.parametrize(("content", "message"), [
    (b'{"type":"turn_started"}\n\nnot json\n', ":3: not an event"),
    (b'{"format":"proctor record 1"}\n',
        ":1: not an event: `type` is missing; `proctor show RUN --json` writes the events of a run"),
    (b'{"type":"turn_started"}\n{"type":"turn_started","turn":"x"}\n', ":2: `turn_started` event"),
    (b"", ": no events"),
    (b"\x1f\x8b\x07damaged file", ":1: damaged gzip file"),
])  # fmt: skip
def test_a_bad_line_is_one_error(tmp_path: Path, content: bytes, message: str) -> None:
    """With the file and the line."""
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)

    with pytest.raises(TraceError) as caught:
        ReplayAdapter(path)

    assert str(caught.value).startswith(f"{path}{message}")


def test_invalid_arguments_are_an_error(tmp_path: Path) -> None:
    """A missing file, a recording instead of its events, an invalid pace."""
    with pytest.raises(TraceError, match="no such file"):
        ReplayAdapter(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="`recording` is events"):
        ReplayAdapter([{"type": "run_started"}])  # type: ignore[list-item]
    paces: list[Any] = [0, -1, True, float("nan"), float("inf"), "fast"]
    for pace in paces:
        with pytest.raises(UsageError, match="`pace` is"):
            ReplayAdapter(RECORDING, pace=pace)


def test_its_capabilities_come_from_the_recording() -> None:
    """Model, tools and cost are those of the recorded run."""
    can = ReplayAdapter(RECORDING).capabilities

    assert isinstance(ReplayAdapter(RECORDING), Adapter)
    assert (can.gate, can.model, can.offered, can.reports_cost) == ("all", "m-1", ("bash", "read"), True)
    assert ReplayAdapter([ev.RunCancelled()], gated=False).capabilities.gate == "none"
    assert ReplayAdapter(RECORDING).compile(Policy(name="p")).unexpressed == ()


SCRIPT = """
steps:
  - {call: bash, input: {command: touch made}}
  - {call: write, input: {path: written, content: x}, if_denied: [{say: not written}]}
"""


@pytest.mark.anyio
async def test_a_supervised_log_can_be_replayed_under_another_policy(tmp_path: Path) -> None:
    """Calls allowed then are denied now, and no event of the first supervisor comes twice."""
    first = await run_once(ScriptedAdapter(SCRIPT, workspace=tmp_path), "go", policy=Policy(name="open"))
    strict = Policy(name="strict", tool_rules=(Deny(("bash",), action="deny"),))

    again = await run_once(ReplayAdapter(first.events), "go", policy=strict)

    assert [violation.tool_name for violation in again.policy.violations] == ["bash"]
    types = [event.type for event in again.events]
    assert (types.count("message_sent"), types.count("run_completed")) == (1, 1)
    assert types.count("tool_call_completed") == 1


@pytest.mark.anyio
@pytest.mark.parametrize("requested", [True, False])
async def test_a_subagents_calls_keep_the_call_that_started_it(requested: bool) -> None:
    """At the gate, in the log and in the result of a replay, and of a replay of that."""
    kind = ev.ToolCallRequested if requested else ev.ToolCallStarted
    recording: list[ev.Event] = [
        kind(tool_call_id="a", tool_name="task", turn=1),
        kind(tool_call_id="b", tool_name="read", turn=1, parent_tool_call_id="a"),
        ev.ToolCallCompleted(tool_call_id="b", tool_name="read"),
        ev.ToolCallCompleted(tool_call_id="a", tool_name="task"),
    ]
    checked: list[ToolCall] = []
    policy = Policy(name="p", rules=[Check(id="c", check=checked.append, tool="*")])
    first = await run_once(ReplayAdapter(recording), "go", policy=policy)
    again = await run_once(ReplayAdapter(first.events), "go", policy=policy)
    compiled = compile_policy(policy)
    judge_session(compiled, TraceSession(id="s", source="s.jsonl", format="events", events=list(first.events)))

    parents = [("a", None), ("b", "a")]
    assert [(call.id, call.parent_tool_call_id) for call in checked] == parents * 3
    for result in (first, again):
        assert [(call.id, call.parent_tool_call_id) for call in result.calls] == parents
        for type in (ev.ToolCallRequested, ev.ToolCallStarted):
            events = [event for event in result.events if isinstance(event, type)]
            assert [(event.tool_call_id, event.parent_tool_call_id) for event in events] == parents
