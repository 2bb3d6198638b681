"""What the client reports, as events; how it starts and ends; a thread that it does not have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import anyio
import loopback
import pytest

from proctor.adapters.agents.amp.adapter import AmpAdapter
from proctor.policies.events import (
    ErrorOccurred,
    MessageReceived,
    RunCompleted,
    RunFailed,
    SessionStarted,
    ToolCallStarted,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
)
from proctor.policies.limits import Limits
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, run_once
from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UnknownSessionError, UsageError
from proctor.supervisor.ports.adapter import GateAnswer, Launch
from proctor.supervisor.testing import FakeAdapter
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio


async def allow(call: object) -> GateAnswer:
    return GateAnswer(allowed=True)


async def test_a_message_is_a_turn(bench: Any, touch: Any) -> None:
    """Its parts come one by one; the thread's id is the session's. A sub-agent's calls belong to the call that
    started it, and begin no turn.
    """
    task = {"use": ["u-task", "Task", {"prompt": "x"}], "asks": False, "message": "n"}
    steps = [{"say": "so", "message": "m"}, touch("a", message="m"), {"say": "done", "message": "n"}]
    done = await bench.run(bench.adapter(*steps, task, touch("b", asks=False, parent="u-task")))

    assert [event.content for event in done.events if isinstance(event, MessageReceived)] == ["so", "done"]
    assert [event.turn for event in done.events if isinstance(event, (TurnStarted, TurnCompleted))] == [1, 1, 2, 2]
    session = next(event for event in done.events if isinstance(event, SessionStarted))
    assert session.provider_session_id == "T-1"
    started = [event for event in done.events if isinstance(event, ToolCallStarted)]
    assert [(event.tool_call_id, event.parent_tool_call_id, event.turn) for event in started] == [
        ("u-task", None, 2),
        ("u-b", "u-task", 2),
    ]
    assert getattr(done.events[-1], "output", None) == "end"


async def test_what_makes_no_sense_is_kept_or_reported(bench: Any) -> None:
    """A record, or a line that is none: neither ends the run."""
    records: list[dict[str, Any]] = [
        {"type": "news", "x": 1},
        {"type": "system", "subtype": "other"},
        {"type": "assistant"},
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "unknown"}]}},
    ]
    lines = ["warning: something", "[1]", "[" * 5000]
    done = await bench.run(bench.adapter(*({"record": one} for one in records), *({"raw": one} for one in lines)))

    assert [event.raw["record"] for event in done.events if isinstance(event, Unrecognized)] == records
    assert [event.code for event in done.events if isinstance(event, ErrorOccurred)] == ["bad_line"] * 3
    assert isinstance(done.events[-1], RunCompleted)


async def test_a_client_that_dies_is_an_error_with_its_last_words(bench: Any) -> None:
    """Without a result there is no completion."""
    done = await bench.run(bench.adapter({"say": "x"}, {"exit": 3}))

    assert isinstance(done.error, ProviderError)
    assert str(done.error) == "amp ended without a result, exit code 3"
    assert done.error.details == {"exit_code": 3, "stderr": "last words"}


async def test_a_line_without_end_is_an_error(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded."""
    monkeypatch.setattr("proctor.adapters.agents.amp.adapter.MAX_LINE_BYTES", 1000)
    done = await bench.run(bench.adapter({"raw": "x" * 100_000}, {"silence": True}))

    assert isinstance(done.error, ProviderError)


async def test_a_result_that_is_an_error_is_a_failed_run(bench: Any) -> None:
    """The client's own word for it is the code."""
    failed = {"is_error": True, "subtype": "error_max_turns", "error": "too many"}
    done = await bench.run(bench.adapter({"result": failed}))

    assert isinstance(done.events[-1], RunFailed)
    assert done.events[-1].error == {"code": "error_max_turns", "message": "too many"}


async def test_a_thread_is_continued_by_its_id(bench: Any) -> None:
    """Where it runs was settled when it began."""
    launch = Launch(run_id="amp-resume", session_id="s", prompt="more", gate=allow, resume="T-1")
    with anyio.fail_after(PATIENCE_S):
        async with bench.adapter(mode="low").open(launch) as provider:
            _ = [event async for event in provider.events()]

    assert bench.started_with()["arguments"][:4] == ["threads", "continue", "T-1", "--execute"]


async def test_a_cancel_terminates(bench: Any, touch: Any) -> None:
    """The client has no interrupt; a command of its goes with it."""
    steps = [touch("a", run="touch up; tail -f /dev/null")]
    done = await bench.run(
        bench.adapter({"say": "x"}, *steps), cancel_when=lambda event: isinstance(event, MessageReceived)
    )

    assert done.steps_taken == ["terminate"]
    assert done.error is None
    assert not any(isinstance(event, RunCompleted) for event in done.events)


async def test_what_is_missing_is_named_before_anything_starts(bench: Any) -> None:
    """The client, a folder, something to sign in with; and threads do not fork."""
    with pytest.raises(ProviderUnavailableError, match="no program `nothing-here`; install amp"):
        await AmpAdapter(amp_path="nothing-here").prepare()
    with pytest.raises(ProviderUnavailableError, match="there is no working directory"):
        await bench.adapter(cwd=bench.cwd / "gone").prepare()
    with pytest.raises(ProviderUnavailableError, match="not logged in"):
        await bench.adapter(env={"PATH": "/usr/bin:/bin", "HOME": str(bench.home)}).prepare()
    launch = Launch(run_id="r", session_id="s", prompt="x", gate=allow, resume="T-1", fork=True)
    with pytest.raises(UsageError, match="cannot fork"):
        async with bench.adapter().open(launch):
            raise AssertionError


async def test_the_environment_may_name_the_client(bench: Any) -> None:
    """As the client's own SDK reads it."""
    env = {"PATH": os.environ["PATH"], "AMP_API_KEY": "none", "AMP_CLI_PATH": str(bench.home / "amp")}
    (bench.home / "amp").write_text("#!/bin/sh\n")
    (bench.home / "amp").chmod(0o755)

    await bench.adapter(amp_path=None, env=env).prepare()


async def test_its_capabilities_are_those_that_hold() -> None:
    """Rules hold for the client's own calls only; nothing says what they cost."""
    can = AmpAdapter().capabilities

    assert (can.gate, can.rewrite, can.usage, can.reports_cost, can.resume) == (
        "some",
        False,
        "per_turn",
        False,
        True,
    )
    assert can.compiles == ("deny",)


THREAD = "T-11111111-2222-4333-8444-555555555555"


@pytest.fixture
def amps_servers() -> Iterator[str]:
    """Servers without any thread."""
    server = loopback.Server(
        lambda request: request.give({"ok": False, "error": {"code": "thread-not-found"}}, status=404)
    )
    yield server.url
    server.close()


async def test_a_thread_that_is_gone_is_replayed_to_a_new_one(bench: Any) -> None:
    """The prompt comes after the conversation so far."""
    store, policy = MemoryStore(), Policy(name="p", limits=Limits(max_tool_calls=5))
    earlier = [SessionStarted(provider_session_id=THREAD), MessageReceived(content="I keep it in mind")]
    await run_once(FakeAdapter(earlier, name="amp"), "remember 7", policies=[policy], store=store, session_id="s")
    with anyio.fail_after(PATIENCE_S):
        result = await run_once(bench.adapter(), "which?", policies=[policy], store=store, session_id="s")

    started = bench.started_with()
    assert (result.status, result.output) == ("completed", "end")
    assert "threads" not in started["arguments"]
    assert (
        started["prompt"].index("remember 7")
        < started["prompt"].index("I keep it in mind")
        < started["prompt"].index("which?")
    )
    assert [event.code for event in result.events if isinstance(event, ErrorOccurred)] == ["unknown_session"]


async def test_the_real_client_says_that_it_has_no_such_thread(amp: str, bench: Any, amps_servers: str) -> None:
    """Before it begins, on its standard error."""
    with pytest.raises(UnknownSessionError, match=THREAD):
        await opened(amp, bench, amps_servers)


async def test_the_real_client_that_reaches_nobody_may_have_the_thread(amp: str, bench: Any) -> None:
    """That is another failure, and nothing is begun anew."""
    with pytest.raises(ProviderError) as caught:
        await opened(amp, bench, "http://127.0.0.1:9")

    assert not isinstance(caught.value, UnknownSessionError)


async def opened(amp: str, bench: Any, url: str) -> None:
    """The real client, taking up a thread of the servers at that address."""
    env = {"PATH": os.environ["PATH"], "HOME": str(bench.home), "AMP_API_KEY": "none", "AMP_URL": url}
    done = await bench.run(AmpAdapter(amp_path=amp, cwd=bench.cwd, env=env), resume=THREAD)
    raise done.error
