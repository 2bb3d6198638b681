"""The real client at work: every call is asked about, or at least observed, and tokens are counted once."""

from pathlib import Path
from typing import Any

import pytest
from codex_bench import MCP_SERVER
from supervised import RecordingGate

from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall
from proctor.supervisor import GateAnswer, ProviderError

pytestmark = [pytest.mark.anyio, pytest.mark.codex]

ALLOW = GateAnswer(allowed=True)
REFUSE = GateAnswer(allowed=False)


def outcomes(events: list[ev.Event]) -> list[tuple[str, str]]:
    """The ids and outcomes of calls that ended."""
    ended = [event for event in events if isinstance(event, (ev.ToolCallCompleted, ev.ToolCallFailed))]
    return sorted((event.tool_call_id, event.type) for event in ended)


async def test_each_command_and_file_change_is_decided_separately(bench: Any) -> None:
    """The gate gets the command without the shell around it, and the path, kind and content of a change. Allowed
    calls run and have an outcome. Denied ones don't, and the agent gets the reason and continues.
    """
    api = bench.api
    api.reply(api.shell("allowed", "echo 'a b'; touch made"))
    api.reply(api.shell("refused", "touch never"))
    api.reply(api.shell("p0", "touch made0"), api.shell("refused-p1", "touch made1"), api.shell("p2", "touch made2"))
    api.reply(api.shell("failing", "echo no; exit 3"))
    api.reply(api.patch("added", "*** Add File: new.txt", "+hello"))
    api.reply(api.patch("refused-change", "*** Add File: not.txt", "+hello"))
    api.reply(api.patch("absent", "*** Update File: absent.txt", "@@", "-old", "+new"))
    gate = RecordingGate(lambda call: REFUSE if call.id.startswith("refused") else ALLOW)
    events = await bench.run(gate)
    proposed = {call.id: call for call in gate.calls}
    change = {"path": str(bench.cwd / "new.txt"), "kind": "add", "diff": "hello\n"}

    assert bench.made() == ["made", "made0", "made2", "new.txt"]
    command = {"command": "echo 'a b'; touch made", "cwd": str(bench.cwd)}
    assert proposed["allowed"] == ToolCall(id="allowed", name="shell", input=command, turn=1)
    assert proposed["added"] == ToolCall(id="added", name="apply_patch", input={"changes": [change]}, turn=5)
    assert [proposed[name].turn for name in ("p0", "refused-p1", "p2")] == [3, 3, 3]
    assert "rejected" in api.result_of("refused")
    assert "absent.txt" in api.result_of("absent")
    assert ev.ToolCallCompleted(tool_call_id="allowed", tool_name="shell", tool_output="a b\n") in events
    error = {"exit_code": 3, "output": "no\n"}
    assert ev.ToolCallFailed(tool_call_id="failing", tool_name="shell", error=error) in events
    assert outcomes(events) == [
        *((name, "tool_call_completed") for name in ("added", "allowed")),
        ("failing", "tool_call_failed"),
        *((name, "tool_call_completed") for name in ("p0", "p2")),
    ]
    assert not any(isinstance(event, ev.ToolCallStarted) for event in events)
    assert events[-1] == ev.RunCompleted(output="end")


async def test_every_mcp_call_is_asked_about_in_any_settings(bench: Any, tmp_path: Path) -> None:
    """Even calls of tools that claim to only read, and of servers that the client's settings trust."""
    adapter = bench.adapter(config={"mcp_servers.small": MCP_SERVER | {"default_tools_approval_mode": "approve"}})
    calls = [(id, tool, {"path": str(tmp_path / tool)}) for id, tool in (("c1", "write"), ("c2", "read"))]
    bench.api.reply(*(bench.api.call(id, tool, namespace="mcp__small", **given) for id, tool, given in calls))
    gate = RecordingGate(lambda call: REFUSE if call.name.endswith("write") else ALLOW)
    events = await bench.run(gate, adapter=adapter)

    proposed = sorted((call.id, call.name.removeprefix("mcp__small__"), call.input) for call in gate.calls)
    assert proposed == calls
    assert [(tmp_path / tool).exists() for tool in ("write", "read")] == [False, True]
    assert ev.ToolCallCompleted(tool_call_id="c2", tool_name="mcp__small__read", tool_output="wrote it") in events


@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-6-sol"])
@pytest.mark.parametrize("allow_escalation", [False, True])
async def test_a_command_leaves_the_sandbox_only_if_the_caller_allowed_it(
    bench: Any, tmp_path: Path, allow_escalation: bool, model: str
) -> None:
    """The client's question does not say that a command would; the model's call does. The same holds for a file
    change outside the workspace, as the client makes any approved one. Text for a terminal would not be asked about,
    so terminals are disabled. A newer model would call tools in scripts, of which the client's question and its log
    do not say it.
    """
    api, escalate = bench.api, {"sandbox_permissions": "require_escalated"}
    api.reply(
        api.shell("c1", "touch made1", **escalate),
        api.shell("c2", "touch made2", **escalate, justification="must"),
        api.shell("c3", "true"),
    )
    api.reply(api.patch("c4", f"*** Add File: {tmp_path}/outside.txt", "+x"))
    api.reply(api.shell("c5", "cat > typed", tty=True))
    adapter = bench.adapter(model=model, sandbox="workspace-write", allow_escalation=allow_escalation)
    gate = RecordingGate()
    events = await bench.run(gate, adapter=adapter)

    escalated = {call.id: call.input.get("escalated") for call in gate.calls}
    assert [escalated[name] for name in ("c1", "c2", "c3")] == [True, True, None]
    assert bench.made() == (["made1", "made2"] if allow_escalation else [])
    ended = "tool_call_completed" if allow_escalation else "tool_call_failed"
    assert outcomes(events)[:3] == [("c1", ended), ("c2", ended), ("c3", "tool_call_completed")]
    assert (tmp_path / "outside.txt").exists() is allow_escalation
    assert ("c4", ended) in outcomes(events)
    assert "TTY execution is disabled" in api.result_of("c5")


def used(events: list[ev.Event]) -> list[tuple[int, int]]:
    reports = [event for event in events if isinstance(event, ev.TokenUsageUpdated)]
    return [(report.input_tokens, report.output_tokens) for report in reports]


def thread(events: list[ev.Event]) -> str:
    started = events[0]
    assert isinstance(started, ev.SessionStarted)
    assert started.provider_session_id is not None
    return started.provider_session_id


async def test_each_model_response_is_a_turn_with_its_tokens(bench: Any) -> None:
    """Turns are numbered from 1, and a message belongs to its turn. Input includes cached tokens, output includes
    reasoning. The client has no prices.
    """
    api = bench.api
    api.reply(api.text("first"), api.shell("c1", "true"), used=(1000, 50), cached=400, reasoning=10)
    api.reply(api.text("second"), used=(1200, 7), cached=1000)
    events = await bench.run()

    assert [event for event in events if isinstance(event, ev.TokenUsageUpdated)] == [
        ev.TokenUsageUpdated(
            input_tokens=1000, output_tokens=50, cache_read_tokens=400, reasoning_tokens=10, model="gpt-5.5"
        ),
        ev.TokenUsageUpdated(input_tokens=1200, output_tokens=7, cache_read_tokens=1000, model="gpt-5.5"),
    ]
    kinds = (ev.TurnStarted, ev.TurnCompleted, ev.MessageStreamed, ev.MessageReceived)
    turns = [("first", 1), ("second", 2)]
    assert [event for event in events if isinstance(event, kinds)] == [
        event
        for text, turn in turns
        for event in (
            ev.TurnStarted(turn=turn),
            ev.MessageStreamed(delta=text),
            ev.MessageReceived(content=text),
            ev.TurnCompleted(turn=turn),
        )
    ]


async def test_a_resumed_session_does_not_count_its_past_again(bench: Any) -> None:
    """The client repeats the old total when it resumes a thread, and continues from it. It asks about every call,
    including whether it would leave the sandbox. A fork is a new session with its own count, although the client
    carries the total over silently.
    """
    api, adapter, gate = bench.api, bench.adapter(sandbox="workspace-write"), RecordingGate()
    api.reply(api.text("one"), used=(1000, 50))
    first = await bench.run(adapter=adapter)
    escalated = api.shell("c2", "touch out", sandbox_permissions="require_escalated")
    api.reply(api.text("two"), api.shell("c1", "touch in"), escalated, used=(2000, 60))
    api.reply(api.text("three"), used=(2100, 5))
    second = await bench.run(gate, adapter=adapter, resume=thread(first), transcript=tuple(first))

    assert [used(first), used(second)] == [[(1000, 50)], [(2000, 60), (2100, 5)]]
    assert thread(second) == thread(first)
    assert [event.turn for event in second if isinstance(event, ev.TurnStarted)] == [
        1,
        2,
    ]  # the session continues its count
    assert "one" in str(api.requests[-1]["input"])
    assert {call.id: call.input.get("escalated") for call in gate.calls} == {"c1": None, "c2": True}
    assert bench.made() == ["in"]

    api.reply(api.shell("c3", "true"), used=(3000, 60))
    api.reply(api.text("four"), used=(3100, 5))
    forked = await bench.run(adapter=adapter, resume=thread(first), fork=True)

    assert used(forked) == [(3000, 60), (3100, 5)]
    assert thread(forked) != thread(first)


async def test_a_command_that_the_clients_own_rules_allow_is_reported_as_started(bench: Any) -> None:
    """It is not asked about, so the adapter declares a partial gate."""
    rules = bench.home / "rules" / "default.rules"
    rules.parent.mkdir()
    rules.write_text('prefix_rule(pattern=["ls"], decision="allow")\n')
    bench.api.reply(bench.api.shell("c1", "ls"))
    gate, adapter = RecordingGate(), bench.adapter()
    events = await bench.run(gate, adapter=adapter)

    assert gate.calls == []
    assert (
        ev.ToolCallStarted(
            tool_call_id="c1", tool_name="shell", tool_input={"command": "ls", "cwd": str(bench.cwd)}, turn=1
        )
        in events
    )
    assert [event.tool_call_id for event in events if isinstance(event, ev.ToolCallCompleted)] == ["c1"]
    assert adapter.capabilities.gate == "some"
    assert adapter.ungated == [f"`{rules}` lets commands run without asking"]


async def test_a_client_that_rejects_the_required_settings_gets_no_prompt(bench: Any) -> None:
    """The settings in force count, whatever the configuration says."""
    with pytest.raises(ProviderError, match=r"feature `goals` stays on \(goals start turns by themselves\)"):
        await bench.run(adapter=bench.adapter(config={"features.goals": True}))

    assert bench.api.requests == []
