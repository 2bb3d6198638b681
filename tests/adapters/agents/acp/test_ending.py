"""However an agent ends, or does not end, its run ends once, soon, with a reason."""

from typing import Any

import anyio
import pytest
from supervised import RecordingGate

from proctor.adapters.agents.acp.adapter import AcpAdapter
from proctor.policies.events import ErrorOccurred, MessageStreamed, RunCompleted, RunFailed, ToolCallStarted
from proctor.policies.events.calls import ToolCall
from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UnknownSessionError, UsageError
from proctor.supervisor.ports.adapter import GateAnswer, Launch
from proctor.supervisor.testing.adapter_fixture import Drive

pytestmark = pytest.mark.anyio
LOGIN = {"error": {"code": -32000, "message": "Authentication required"}}
GONE = {"error": {"code": -32603, "message": "Internal error", "data": {"details": "No such session"}}}
DIES, SILENT = [{"exit": 3}], [{"silence": True}]
HOW = {"authMethods": [{"id": "login", "description": "Run `agent login`"}]}
BAD_STARTS: list[tuple[dict[str, Any], str | None, type[ProviderError], str]] = [
    ({"at": {"initialize": DIES}}, None, ProviderError, "ended before it answered `initialize`, exit code 3"),
    ({"at": {"session/new": DIES}}, None, ProviderError, "ended before it answered `session/new`, exit code 3"),
    ({"at": {"initialize": SILENT}}, None, ProviderError, "did not answer `initialize` within 1.5 s"),
    ({"at": {"session/new": SILENT}}, None, ProviderError, "did not answer `session/new` within 1.5 s"),
    ({"greeting": {"protocolVersion": 2}}, None, ProviderError, "speaks version `2` of the protocol, not 1"),
    (
        {"greeting": HOW, "at": {"session/new": [LOGIN]}},
        None,
        ProviderUnavailableError,
        "is not logged in: Authentication required; the agent says how: Run `agent login`",
    ),
    (
        {"loads": True, "at": {"session/load": [GONE]}},
        "gone",
        UnknownSessionError,
        "does not resume session `gone`: Internal error: No such session",
    ),
    # it may have the session, so the session is not restarted
    ({"loads": True, "at": {"session/load": [LOGIN]}}, "ses-1", ProviderUnavailableError, "is not logged in"),
    ({}, "ses-1", UnknownSessionError, "cannot resume a session"),
]


def launch(**more: Any) -> Launch:
    return Launch(**{"run_id": "acp-ending", "session_id": "s", "prompt": "go", "gate": RecordingGate(), **more})


async def start_error(adapter: Any, **more: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        async with adapter.open(launch(**more)):
            raise AssertionError
    return caught.value


@pytest.mark.parametrize(("script", "resume", "kind", "says"), BAD_STARTS)
async def test_an_agent_that_does_not_start_is_an_error(
    scripts: Any, script: dict[str, Any], resume: str | None, kind: type[ProviderError], says: str
) -> None:
    """The error has the agent's last output, and the kind that decides what is tried next. A silent agent is
    abandoned, even if it does not exit when its input is closed.
    """
    slow = {"stays": True, "adapter": {"start_s": 1.5}} if "within" in says else {}
    adapter = scripts.adapter(**script, **slow)
    error = await start_error(adapter, resume=resume)

    assert type(error) is kind
    assert says in str(getattr(error, "reason", error))
    if "exit code" in says:
        assert error.details == {"exit_code": 3, "stderr": "last words"}
    if script == {}:  # usage during the start counts, and later totals continue from it
        assert not adapter.capabilities.resume


async def test_an_impossible_start_is_an_error_before_anything_is_started(scripts: Any) -> None:
    """The program or the folder does not exist, or the run is a fork, for which the protocol has no stable method."""
    with pytest.raises(ProviderUnavailableError, match="there is no program `no-such-agent`"):
        await AcpAdapter(["no-such-agent"]).prepare()
    with pytest.raises(ProviderUnavailableError, match="there is no working directory"):
        await scripts.adapter(adapter={"cwd": scripts.cwd / "gone"}).prepare()
    with pytest.raises(UsageError, match="cannot fork"):
        async with scripts.adapter().open(launch(resume="ses-1", fork=True)):
            raise AssertionError


@pytest.mark.parametrize(
    ("step", "code"),
    [({"exit": 3}, 3), ({"cut": '{"jsonrpc": "2.0", "meth'}, 0), ({"raw": "x"}, None), ({"raw": "[" * 5000}, None)],
)
async def test_garbage_is_reported_and_an_early_exit_is_an_error(
    scripts: Any, step: dict[str, Any], code: int | None
) -> None:
    """Earlier events count."""
    done = await scripts.run(scripts.adapter({"say": "so far"}, step))

    assert any(isinstance(event, MessageStreamed) for event in done.events)
    if code is None:
        assert isinstance(done.events[-1], RunCompleted)
    else:
        assert isinstance(done.error, ProviderError)
        assert str(done.error) == f"`scripted` ended before it answered `session/prompt`, exit code {code}"
    garbage = [event for event in done.events if isinstance(event, ErrorOccurred)]
    assert [event.code for event in garbage] == (["bad_line"] if "exit" not in step else [])


async def test_an_endless_line_is_an_error(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proctor.adapters.kit.jsonrpc.MAX_LINE_BYTES", 1000)
    done = await scripts.run(scripts.adapter({"long": 400_000}, {"silence": True}))

    assert isinstance(done.error, ProviderError)


@pytest.mark.parametrize("reason", ["max_tokens", "max_turn_requests", "refusal", "cancelled", "whatever"])
async def test_another_stop_reason_of_the_turn_fails_the_run(scripts: Any, reason: str) -> None:
    """The error code is that reason."""
    done = await scripts.run(scripts.adapter({"say": "x"}, {"stop": reason}))

    last = done.events[-1]
    assert isinstance(last, RunFailed)
    assert last.error["code"] == reason
    assert last.error["message"]


async def test_an_error_response_to_the_prompt_is_an_error(scripts: Any) -> None:
    """It has the agent's own message."""
    done = await scripts.run(
        scripts.adapter({"error": {"code": -32603, "message": "Internal error", "data": "no key"}})
    )

    assert isinstance(done.error, ProviderError)
    assert str(done.error) == "`scripted` refused `session/prompt`: Internal error: no key"


async def test_a_cancel_answers_open_questions_as_cancelled(scripts: Any, touch: Any) -> None:
    """Two calls are pending. Neither runs, the agent ends its turn, and the run ends with the first cancel step."""

    async def hold(call: ToolCall) -> GateAnswer:
        if len(drive.done.proposed) == 2:
            drive.cancel()
        await anyio.sleep_forever()
        raise AssertionError

    drive = Drive(scripts.adapter({"together": [touch("a"), touch("b")]}), answer=hold)
    await drive.run()

    assert drive.done.steps_taken == ["interrupt"]
    assert scripts.outcomes() == ["cancelled", "cancelled"]
    assert scripts.made() == []


async def test_a_question_after_the_cancel_is_answered_as_cancelled(scripts: Any, touch: Any) -> None:
    """Late updates are read until the agent's answer."""
    late = {**touch("b"), "late": True}
    adapter = scripts.adapter({"say": "x"}, {"silence": True}, late, {"say": "late words", "late": True})
    done = await scripts.run(adapter, cancel_when=lambda event: isinstance(event, MessageStreamed))

    assert scripts.outcomes() == ["cancelled"]
    assert done.proposed == []
    assert "late words" in [event.delta for event in done.events if isinstance(event, MessageStreamed)]
    assert done.error is None


async def test_an_agent_that_ignores_the_cancel_is_ended_by_the_next_steps(
    scripts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing its input has no effect either."""
    monkeypatch.setattr("proctor.adapters.agents.acp.session.AcpSession.interrupt_s", 0.1)
    adapter = scripts.adapter({"say": "x"}, {"silence": True, "late": True}, stays=True)
    done = await scripts.run(adapter, cancel_when=lambda event: isinstance(event, MessageStreamed))

    assert done.steps_taken[:3] == ["interrupt", "close", "terminate"]
    assert done.error is None
    assert not any(isinstance(event, (RunCompleted, ToolCallStarted)) for event in done.events)
