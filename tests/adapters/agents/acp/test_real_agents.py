"""opencode and Gemini CLI, as npm installs them, against scripted model APIs."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from proctor.policies.events import (
    ErrorOccurred,
    Event,
    MessageReceived,
    RunCompleted,
    SessionStarted,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallStarted,
)
from proctor.policies.events.calls import ToolCall
from proctor.policies.limits import Limits
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, RunResult, run_once
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports.adapter import GateAnswer
from proctor.supervisor.testing.adapter_fixture import Drive, Driven
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CALLS: dict[str, list[Any]] = {
    "opencode": [
        ["bash", {"command": "touch a", "description": "x"}],
        ["read", {"filePath": "note.txt"}],
        ["write", {"filePath": "b.txt", "content": "x"}],
    ],
    "gemini": [
        ["run_shell_command", {"command": "touch a", "description": "x"}],
        ["list_directory", {"dir_path": "."}],
        ["write_file", {"file_path": "b.txt", "content": "x"}],
    ],
}
"""A command, something harmless that is not asked about, and a file."""
SUB_AGENTS: dict[str, tuple[str, dict[str, str]]] = {
    "opencode": ("task", {"description": "x", "subagent_type": "general"}),
    "gemini": ("invoke_agent", {"agent_name": "generalist"}),
}


async def drive(adapter: Any, prompt: str, **gate: Any) -> Driven:
    """One run to its end."""
    with anyio.fail_after(PATIENCE_S):
        return await Drive(adapter, **gate).run(prompt, run_id=f"run-{uuid.uuid4().hex}")


@pytest.mark.parametrize(
    ("name", "anyio_backend"), [("opencode", "asyncio"), ("gemini", "trio")], indirect=["anyio_backend"]
)
async def test_it_asks_before_it_runs_commands_and_writes_files(bench: Any, name: str) -> None:
    """Nothing of a call is there before its answer; what it does not ask about is reported."""
    (bench.cwd / "note.txt").write_text("n")
    seen: list[tuple[str, list[str]]] = []

    async def gate(call: ToolCall) -> GateAnswer:
        seen.append((call.name, [file for file in ("a", "b.txt") if (bench.cwd / file).exists()]))
        return GateAnswer(allowed=True)

    replies = [{"calls": [call], "used": [1000, 10]} for call in CALLS[name]]
    done = await drive(bench.agent(name), bench.prompt(*replies), answer=gate)

    assert seen == [("execute", []), ("edit", ["a"])]
    assert bench.made() == ["a", "b.txt", "note.txt"]
    unasked = [event for event in done.events if isinstance(event, ToolCallStarted)]
    assert [event.tool_name for event in unasked] == ["read" if name == "opencode" else "search"]
    assert len([event for event in done.events if isinstance(event, ToolCallCompleted)]) == 3
    assert isinstance(done.events[-1], RunCompleted)
    assert done.events[-1].output == "end"
    used = [event for event in done.events if isinstance(event, TokenUsageUpdated)]
    if name == "opencode":
        assert sum(event.cost_usd or 0 for event in used) == pytest.approx((3 * (1000 * 3 + 150) + 600) / 1e6)
    else:
        assert [(event.input_tokens, event.output_tokens) for event in used] == [(3100, 50)]


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_opencode_takes_a_session_up(bench: Any) -> None:
    """The model is told what was said before, and cost is that of the run alone."""
    adapter = bench.agent("opencode")
    first = await drive(adapter, bench.prompt({"text": "one"}))
    (started,) = [event for event in first.events if isinstance(event, SessionStarted)]
    second = await drive(adapter, bench.prompt({"text": "two"}), resume=started.provider_session_id)

    events = second.events
    assert [event for event in events if isinstance(event, SessionStarted)] == [started]
    assert isinstance(events[-1], RunCompleted)
    assert [event.content for event in events if isinstance(event, MessageReceived)] == ["two"]
    assert [event.cost_usd for event in events if isinstance(event, TokenUsageUpdated) if event.cost_usd] == [
        pytest.approx(0.0006)
    ]
    assert "one" in str(bench.asked_model()[-1]["messages"])


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("name", ["opencode", "gemini"])
async def test_a_session_that_is_on_another_machine_is_replayed_to_the_agent(bench: Any, name: str) -> None:
    """Another home has nothing of it; what the run costs is counted from 0."""
    store, policy = MemoryStore(), Policy(name="p", limits=Limits(max_tool_calls=5))

    async def run(prompt: str) -> RunResult:
        return await run_once(bench.agent(name), prompt, policies=[policy], store=store, session_id="s")

    await run(bench.prompt({"text": "marzipan"}))
    bench.moves()
    second = await run(bench.prompt({"text": "two"}))

    assert second.output == "two"
    assert [event.code for event in second.events if isinstance(event, ErrorOccurred)] == ["unknown_session"]
    assert "marzipan" in str(bench.asked_model()[-1])
    first_id, second_id = [
        event.provider_session_id async for event in store.read("s") if isinstance(event, SessionStarted)
    ]
    assert first_id != second_id
    if name == "opencode":
        assert second.cost_usd == pytest.approx(0.0006)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("name", SUB_AGENTS)
async def test_sub_agents_do_not_act(bench: Any, name: str) -> None:
    """Those of opencode are switched off, as nobody would be asked or told of what they do; Gemini CLI has none."""
    tool, more = SUB_AGENTS[name]
    inner = bench.prompt({"calls": [CALLS[name][0]]})
    done = await drive(bench.agent(name), bench.prompt({"calls": [[tool, {**more, "prompt": inner}]]}))

    assert bench.made() == []
    assert len(bench.asked_model()) == 2
    assert isinstance(done.events[-1], RunCompleted)


@pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)
async def test_gemini_whose_launcher_is_killed_has_failed(bench: Any) -> None:
    """It runs in a child of what was started, which would go on."""
    env = {name: value for name, value in bench.environment("gemini").items() if name != "GEMINI_CLI_NO_RELAUNCH"}
    has_reported = anyio.Event()

    def watch(event: Event) -> bool:
        has_reported.set()
        return False

    runner = Drive(bench.agent("gemini", env=env), cancel_when=watch)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runner.run, bench.prompt({"text": "hm", "endless": True}))
            await has_reported.wait()
            launchers = [one for one in psutil.Process().children() if Path(one.cwd()) == bench.cwd]
            assert [len(one.children()) for one in launchers] == [1]
            left = launchers[0].children(recursive=True)
            launchers[0].kill()

    assert isinstance(runner.done.error, ProviderError)
    assert [one for one in left if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []
