"""Amp's calls are rejected by its rules or decided at the gate; its reports, its start and its end."""

import os
from collections.abc import Iterator
from typing import Any

import loopback
import pytest
from supervised import RecordingGate

from proctor.adapters.agents.amp.adapter import AmpAdapter
from proctor.policies import Deny, Limits, Policy, ToolCall, ToolWhere
from proctor.policies import events as ev
from proctor.supervisor import GateAnswer, Launch, MemoryStore, PolicyViolationError, run_once
from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UnknownSessionError, UsageError
from proctor.supervisor.testing.fakes import FakeAdapter

pytestmark = pytest.mark.anyio


def calls(done: Any) -> list[tuple[str, str]]:
    return [(event.type, event.tool_call_id) for event in done.events if "tool_call" in event.type]


async def test_a_call_is_asked_about_before_it_runs(bench: Any, touch: Any) -> None:
    """The shell has one name and one input. It makes no difference if the client reports the call before or after it.
    The same call twice is two calls in sequence, each with its own outcome.
    """
    seen: list[list[str]] = []

    async def gate(call: ToolCall) -> GateAnswer:
        seen.append(bench.made())
        return GateAnswer(allowed=True)

    again = {**touch("a"), "use": ["u-again", "Bash", {"cmd": "touch a"}]}
    files = {"a": "Bash", "b": "shell_command", "c": "Bash", "d": "shell_command"}
    uses = [touch(file, tool, late=file in "cd") for file, tool in files.items()]
    done = await bench.run(bench.adapter(*uses, again), answer=gate)

    commands = [*files, "a"]
    assert [(call.name, call.input) for call in done.proposed] == [
        ("Bash", {"command": f"touch {file}"}) for file in commands
    ]
    assert seen == [sorted(list(files)[:number]) for number in range(5)]
    assert calls(done) == [("tool_call_completed", call.id) for call in done.proposed]
    assert [call.id for call in done.proposed][::4] == ["u-a", "u-again"]


async def test_the_client_gets_the_rules_and_the_prompt(bench: Any) -> None:
    """The caller's rejections come first, and the gate last."""
    own = {"amp.permissions": [{"tool": "Read", "action": "reject"}], "amp.notifications.enabled": False}
    policy = Policy(name="p", tool_rules=(Deny(("mcp__docs__*",)),))
    await bench.run(bench.adapter(settings=own, mode="low"), policy=policy)

    started = bench.started_with()
    assert started["prompt"] == "do it"
    assert started["arguments"][:7] == [
        "--executor", "local", "--mode", "low", "--execute", "--stream-json", "--settings-file",
    ]  # fmt: skip
    rules = [(rule["tool"], rule["action"]) for rule in started["settings"].pop("amp.permissions")]
    assert rules == [("Read", "reject"), ("mcp__docs__*", "reject"), ("*", "delegate")]
    assert started["settings"] == {"amp.notifications.enabled": False, "amp.dangerouslyAllowAll": False}


@pytest.mark.parametrize("settings", [
    {"amp.dangerouslyAllowAll": True},
    {"amp.permissions": [{"tool": "Bash", "action": "allow"}]},
    {"amp.permissions": "all"},
])  # fmt: skip
async def test_settings_that_bypass_the_gate_are_rejected(bench: Any, settings: dict[str, Any]) -> None:
    """When the adapter is created."""
    with pytest.raises(UsageError, match="setting `amp"):
        bench.adapter(settings=settings)


@pytest.mark.parametrize("argument", ["--settings-file", "--settings-file=x.json", "--executor", "-ox"])
async def test_arguments_that_bypass_the_gate_are_rejected(bench: Any, argument: str) -> None:
    """The client uses the last settings file in its arguments, and runs tools where they say."""
    with pytest.raises(UsageError, match=f"argument `{argument}`"):
        bench.adapter(arguments=[argument, "orb"])


async def test_only_rules_that_the_client_enforces_exactly_are_compiled(bench: Any) -> None:
    """Rules on more than the name, or that only warn, stay with the gate. An alias becomes its names."""
    policy = Policy(
        name="p",
        tool_rules=(
            Deny(("Bash", "mcp__docs__*", "[ab]*", "sh")),
            Deny(("Read",), action="warn"),
            Deny((ToolWhere(tool="Grep"),)),
        ),
        aliases={"sh": ["Bash"]},
        limits=Limits(max_tool_calls=3),
    )
    options = bench.adapter().compile(policy)

    assert options.options == {"rejected": ("Bash", "shell_command", "mcp__docs__*")}
    assert options.expressed == ("deny Bash", "deny mcp__docs__*", "deny sh")
    assert set(options.unexpressed) == {"max_tool_calls", "deny [ab]*", "deny Read", "deny Grep where"}


@pytest.mark.parametrize("action", ["cancel", "deny"])
async def test_a_call_that_the_client_rejects_itself_is_a_violation(bench: Any, touch: Any, action: Any) -> None:
    """Of the rule that caused the rejection, with that rule's action."""
    policy = Policy(name="p", on_violation=action, tool_rules=(Deny(("bash",)),))
    if action == "cancel":
        with pytest.raises(PolicyViolationError) as caught:
            await run_once(bench.adapter(touch("a"), {"silence": True}), "do it", policies=[policy])
        done = caught.value.partial
    else:
        done = await run_once(bench.adapter(touch("a")), "do it", policies=[policy])

    seen = [event.type for event in done.events if "tool_call" in event.type]
    assert (seen, bench.made()) == (["tool_call_requested", "tool_call_denied"], [])
    assert [event.enforcement for event in done.events if isinstance(event, ev.PolicyViolated)] == ["prevented"]


async def test_a_message_is_a_turn(bench: Any, touch: Any) -> None:
    """Its parts arrive one by one. The thread's id is the session's. A subagent's calls belong to the call that
    started it, and start no turn.
    """
    task = {"use": ["u-task", "Task", {"prompt": "x"}], "asks": False, "message": "n"}
    steps = [{"say": "so", "message": "m"}, touch("a", message="m"), {"say": "done", "message": "n"}]
    done = await bench.run(bench.adapter(*steps, task, touch("b", asks=False, parent="u-task")))
    turns = [event.turn for event in done.events if isinstance(event, (ev.TurnStarted, ev.TurnCompleted))]

    assert [event.content for event in done.events if isinstance(event, ev.MessageReceived)] == ["so", "done"]
    assert turns == [1, 1, 2, 2]
    session = next(event for event in done.events if isinstance(event, ev.SessionStarted))
    assert session.provider_session_id == "T-1"
    started = [event for event in done.events if isinstance(event, ev.ToolCallStarted)]
    assert [(event.tool_call_id, event.parent_tool_call_id, event.turn) for event in started] == [
        ("u-task", None, 2),
        ("u-b", "u-task", 2),
    ]
    assert getattr(done.events[-1], "output", None) == "end"


async def test_an_invalid_message_is_kept_or_reported(bench: Any) -> None:
    """Neither an unknown message nor a line without one ends the run."""
    records: list[dict[str, Any]] = [
        {"type": "news", "x": 1},
        {"type": "system", "subtype": "other"},
        {"type": "assistant"},
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "unknown"}]}},
    ]
    lines = ["warning: something", "[1]", "[" * 5000]
    done = await bench.run(bench.adapter(*({"record": one} for one in records), *({"raw": one} for one in lines)))

    assert [event.raw["record"] for event in done.events if isinstance(event, ev.Unrecognized)] == records
    assert [event.code for event in done.events if isinstance(event, ev.ErrorOccurred)] == ["bad_line"] * 3
    assert isinstance(done.events[-1], ev.RunCompleted)


async def test_without_a_result_or_with_an_error_the_run_has_not_completed(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the client dies, the error has its last output; an endless line is an error too. The code of a failed run is
    the client's.
    """
    failed = {"is_error": True, "subtype": "error_max_turns", "error": "too many"}
    died = await bench.run(bench.adapter({"say": "x"}, {"exit": 3}))
    ended = await bench.run(bench.adapter({"result": failed}))
    monkeypatch.setattr("proctor.adapters.agents.amp.adapter.MAX_LINE_BYTES", 1000)
    endless = await bench.run(bench.adapter({"raw": "x" * 100_000}, {"silence": True}))

    assert isinstance(died.error, ProviderError)
    assert str(died.error) == "amp ended without a result, exit code 3"
    assert died.error.details == {"exit_code": 3, "stderr": "last words"}
    assert isinstance(endless.error, ProviderError)
    assert isinstance(ended.events[-1], ev.RunFailed)
    assert ended.events[-1].error == {"code": "error_max_turns", "message": "too many"}


async def test_a_thread_is_continued_by_its_id(bench: Any) -> None:
    """The location of its execution is that of its start."""
    await bench.run(bench.adapter(mode="low"), resume="T-1")

    assert bench.started_with()["arguments"][:4] == ["threads", "continue", "T-1", "--execute"]


async def test_a_cancel_terminates(bench: Any, touch: Any) -> None:
    """The client has no interrupt. Its command is ended too."""
    steps = [touch("a", run="touch up; tail -f /dev/null")]
    done = await bench.run(
        bench.adapter({"say": "x"}, *steps), cancel_when=lambda event: isinstance(event, ev.MessageReceived)
    )

    assert done.steps_taken == ["terminate"]
    assert done.error is None
    assert not any(isinstance(event, ev.RunCompleted) for event in done.events)


async def test_a_missing_requirement_is_an_error_before_anything_starts(bench: Any) -> None:
    """The client, a folder, credentials. Threads can't be forked."""
    with pytest.raises(ProviderUnavailableError, match="no program `nothing-here`; install amp"):
        await AmpAdapter(amp_path="nothing-here").prepare()
    with pytest.raises(ProviderUnavailableError, match="there is no working directory"):
        await bench.adapter(cwd=bench.cwd / "gone").prepare()
    with pytest.raises(ProviderUnavailableError, match="not logged in"):
        await bench.adapter(env={"PATH": "/usr/bin:/bin", "HOME": str(bench.home)}).prepare()
    launch = Launch(run_id="r", session_id="s", prompt="x", gate=RecordingGate(), resume="T-1", fork=True)
    with pytest.raises(UsageError, match="cannot fork"):
        async with bench.adapter().open(launch):
            raise AssertionError


async def test_the_environment_may_name_the_client(bench: Any) -> None:
    """As for the client's own SDK."""
    env = {"PATH": os.environ["PATH"], "AMP_API_KEY": "none", "AMP_CLI_PATH": str(bench.home / "amp")}
    (bench.home / "amp").write_text("#!/bin/sh\n")
    (bench.home / "amp").chmod(0o755)

    await bench.adapter(amp_path=None, env=env).prepare()


THREAD = "T-11111111-2222-4333-8444-555555555555"


@pytest.fixture
def amps_servers() -> Iterator[str]:
    """Servers that have no threads."""
    server = loopback.Server(
        lambda request: request.give({"ok": False, "error": {"code": "thread-not-found"}}, status=404)
    )
    yield server.url
    server.close()


async def test_a_lost_thread_is_replayed_to_a_new_one(bench: Any) -> None:
    """The prompt comes after the earlier conversation."""
    store, policy = MemoryStore(), Policy(name="p", limits=Limits(max_tool_calls=5))
    earlier = [ev.SessionStarted(provider_session_id=THREAD), ev.MessageReceived(content="I keep it in mind")]
    await run_once(FakeAdapter(earlier, name="amp"), "remember 7", policies=[policy], store=store, session_id="s")
    result = await run_once(bench.adapter(), "which?", policies=[policy], store=store, session_id="s")

    started = bench.started_with()
    assert (result.status, result.output) == ("completed", "end")
    assert "threads" not in started["arguments"]
    assert (
        started["prompt"].index("remember 7")
        < started["prompt"].index("I keep it in mind")
        < started["prompt"].index("which?")
    )
    assert [event.code for event in result.events if isinstance(event, ev.ErrorOccurred)] == ["unknown_session"]


async def test_the_real_client_reports_a_missing_thread(amp: str, bench: Any, amps_servers: str) -> None:
    """On standard error, before it starts. If it can't reach the server, the thread may exist and is not
    restarted.
    """
    errors = []
    for url in (amps_servers, "http://127.0.0.1:9"):
        env = {"PATH": os.environ["PATH"], "HOME": str(bench.home), "AMP_API_KEY": "none", "AMP_URL": url}
        done = await bench.run(AmpAdapter(amp_path=amp, cwd=bench.cwd, env=env), resume=THREAD)
        errors.append(done.error)

    assert [isinstance(error, UnknownSessionError) for error in errors] == [True, False]
    assert THREAD in str(errors[0])
    assert isinstance(errors[1], ProviderError)
