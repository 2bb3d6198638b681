"""opencode and Gemini CLI, as installed by npm, with scripted model APIs."""

import sys
import uuid
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from proctor.policies import Deny, Limits, Policy, ToolCall
from proctor.policies import events as ev
from proctor.supervisor import GateAnswer, MemoryStore, ProviderError, RunResult, run_once
from proctor.supervisor.testing.adapter_fixture import Drive, Driven

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CALLS: dict[str, list[Any]] = {
    "opencode": [["bash", {"command": "touch a", "description": "x"}], ["read", {"filePath": "note.txt"}],
        ["write", {"filePath": "b.txt", "content": "x"}]],
    "gemini": [["run_shell_command", {"command": "touch a", "description": "x"}],
        ["list_directory", {"dir_path": "."}], ["write_file", {"file_path": "b.txt", "content": "x"}]],
}  # fmt: skip
"""A command, a harmless call that is not asked about, and a file."""
SUB_AGENTS: dict[str, tuple[str, dict[str, str]]] = {
    "opencode": ("task", {"description": "x", "subagent_type": "general"}),
    "gemini": ("invoke_agent", {"agent_name": "generalist"}),
}


async def drive(adapter: Any, prompt: str, **gate: Any) -> Driven:
    """One run to its end."""
    return await Drive(adapter, **gate).run(prompt, run_id=f"run-{uuid.uuid4().hex}")


@pytest.mark.parametrize(
    ("name", "anyio_backend"), [("opencode", "asyncio"), ("gemini", "trio")], indirect=["anyio_backend"]
)
async def test_they_ask_before_they_run_commands_and_write_files(bench: Any, name: str) -> None:
    """A call has no effect before its answer, and a denied one has none at all. Calls without a question are
    reported. Subagents can't act: opencode's are switched off, since it neither asks about nor reports their calls,
    and Gemini CLI has none.
    """
    (bench.cwd / "note.txt").write_text("n")
    at_the_gate: list[tuple[str, list[str]]] = []

    async def gate(call: ToolCall) -> GateAnswer:
        at_the_gate.append((call.name, [file for file in bench.made() if file != "note.txt"]))
        return GateAnswer(allowed="refused" not in str(call.input))

    bash, look, write = CALLS[name]
    sub_agent, more = SUB_AGENTS[name]

    def touch(file: str) -> list[Any]:
        return [bash[0], {**bash[1], "command": f"touch {file}"}]

    inner = bench.prompt({"calls": [touch("inner")]})
    replies = [[bash], [look], [write], [touch("c"), touch("d")], [[sub_agent, {**more, "prompt": inner}]]]
    prompt = bench.prompt(*({"calls": calls, "used": [1000, 10]} for calls in [*replies, [touch("refused")]]))
    done = await drive(bench.agent(name), prompt, answer=gate)
    events, made = done.events, [event for event in done.events if isinstance(event, ev.ToolCallCompleted)]
    unasked = [event for event in events if isinstance(event, ev.ToolCallStarted)]
    proposed_ids = [call.id for call in done.proposed]

    assert at_the_gate[:2] == [("execute", []), ("edit", ["a"])]
    assert [name for name, _ in at_the_gate[2:]] == ["execute"] * 3
    assert bench.made() == ["a", "b.txt", "c", "d", "note.txt"]
    assert unasked[0].tool_name == ("read" if name == "opencode" else "search")
    assert events.index(unasked[0]) < next(
        at for at, event in enumerate(events) if event in made and event.tool_call_id == unasked[0].tool_call_id
    )
    assert [event.tool_call_id for event in made].count(unasked[0].tool_call_id) == 1
    assert sorted(event.tool_call_id for event in made if event.tool_call_id in proposed_ids) == sorted(
        proposed_ids[:4]
    )
    assert [done.outcomes(proposed_ids[4]), len(set(proposed_ids))] == [[], 5]
    assert not any(
        "inner" in str(request.get("messages", request.get("contents"))[-1]) for request in bench.asked_model()[1:5]
    )
    assert isinstance(events[-1], ev.RunCompleted)
    used = [event for event in events if isinstance(event, ev.TokenUsageUpdated)]
    if name == "opencode":  # its turn ends after a denial
        assert len(bench.asked_model()) == 6
        assert sum(event.cost_usd or 0 for event in used) == pytest.approx(6 * (1000 * 3 + 150) / 1e6)
    else:
        assert len(bench.asked_model()) == 7
        assert events[-1].output == "end"
        assert [(event.input_tokens, event.output_tokens) for event in used] == [(6100, 80)]


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_command_with_a_nonzero_exit_code_has_failed(bench: Any) -> None:
    """Although opencode reports it as completed; a rule that needs its success is not satisfied."""
    calls = [["bash", {"description": "x", "command": f"echo tested; exit {code}"}] for code in (3, 0)]
    done = await drive(bench.agent("opencode"), bench.prompt(*({"calls": [call]} for call in calls)))

    outcomes = [event for event in done.events if isinstance(event, ev.ToolOutcome)]
    assert [type(event) for event in outcomes] == [ev.ToolCallFailed, ev.ToolCallCompleted]


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize(("server", "tool"), [("pay", "write"), ("context7", "get_library_docs")])
async def test_a_rule_on_an_mcp_tool_matches_opencodes_name_of_it(
    bench: Any, server: str, tool: str, tmp_path: Path
) -> None:
    """Policies say `mcp__server__tool`. opencode reports some tools of servers as searches, but none of its own."""
    program = tmp_path / "server.py"
    source = Path(__file__).parents[2] / "mcp_proxy" / "quick_server.py"
    program.write_text(source.read_text().replace('"write"', f'"{tool}"'))
    servers = [{"name": server, "command": sys.executable, "args": [str(program)]}]
    write = [f"{server}_{tool}", {"path": str(bench.cwd / "x")}]
    calls = [["todowrite", {"todos": []}], [f"{server}_add", {"a": 1, "b": 2}], write]
    denied = [f"mcp__{server}__{tool}", "mcp__plan__*", "mcp__switch__*"]
    policy = Policy(name="p", on_violation="deny", tool_rules=[Deny(denied)])
    store, agent = MemoryStore(), bench.agent("opencode", mcp_servers=servers)
    prompt = bench.prompt(*({"calls": [call]} for call in calls))
    await run_once(agent, prompt, policies=[policy], store=store, session_id="s")

    events = [event async for event in store.read("s")]
    done = [event.tool_name for event in events if isinstance(event, ev.ToolCallCompleted)]
    assert (done, bench.made()) == (["todowrite", f"{server}_add"], [])
    assert [event.tool_name for event in events if isinstance(event, ev.ToolCallDenied)] == [f"{server}_{tool}"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("name", ["opencode", "gemini"])
async def test_a_session_is_resumed_and_on_another_machine_replayed(bench: Any, name: str) -> None:
    """The model gets the earlier messages, and the cost is the run's alone. Another home directory has no session.

    Gemini's past is longer than a pipe's buffer, so it is still being sent when the agent accepts the next prompt.
    """
    store, policy = MemoryStore(), Policy(name="p", limits=Limits(max_tool_calls=5))

    async def run(adapter: Any, words: str) -> RunResult:
        prompt = bench.prompt({"text": words})
        return await run_once(adapter, prompt, policies=[policy], store=store, session_id="s")

    here = bench.agent(name)
    await run(here, f"marzipan {[*range(12000 if name == 'gemini' else 12)]}")
    bench.another_minute()
    taken_up = await run(here, "two")
    heard = str(bench.asked_model()[-1])
    bench.moves()
    replayed = await run(bench.agent(name), "three")

    assert [(result.output, result.status) for result in (taken_up, replayed)] == [
        ("two", "completed"),
        ("three", "completed"),
    ]
    assert "marzipan" in heard
    assert "marzipan" in str(bench.asked_model()[-1])
    codes = [[e.code for e in run.events if isinstance(e, ev.ErrorOccurred)] for run in (taken_up, replayed)]
    assert codes == [[], ["unknown_session"]]
    ids = [event.provider_session_id async for event in store.read("s") if isinstance(event, ev.SessionStarted)]
    assert ids[0] == ids[1] != ids[2]
    if name == "opencode":
        assert [run.cost_usd for run in (taken_up, replayed)] == [pytest.approx(0.0006)] * 2


@pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)
async def test_gemini_whose_launcher_is_killed_has_failed(bench: Any) -> None:
    """It runs in a child process, which would continue."""
    env = {name: value for name, value in bench.environment("gemini").items() if name != "GEMINI_CLI_NO_RELAUNCH"}
    has_reported = anyio.Event()

    def watch(event: ev.Event) -> bool:
        has_reported.set()
        return False

    runner = Drive(bench.agent("gemini", env=env), cancel_when=watch)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runner.run, bench.prompt({"text": "hm", "endless": True}))
        await has_reported.wait()
        launchers = [one for one in psutil.Process().children() if Path(one.cwd()) == bench.cwd]
        assert [len(one.children()) for one in launchers] == [1]
        left = launchers[0].children(recursive=True)
        launchers[0].kill()

    assert isinstance(runner.done.error, ProviderError)
    assert [one for one in left if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []
