"""The real client ends for good, and failures of the API and of the client fail the run."""

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import psutil
import pytest

from proctor.policies import events as ev
from proctor.supervisor import ProviderError, ProviderUnavailableError, UsageError

pytestmark = [pytest.mark.claude, pytest.mark.anyio]

SLEEPER = "tail -f /dev/null --sleep-interval={}"


def run_of(sleeper: int) -> bool:
    """Whether a `sleep` with this number runs."""
    word = f"--sleep-interval={sleeper}"
    lines = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return any(line[:1] == ["tail"] and word in line for line in lines)


def sleeping(bench: Any, pipe: Any, number: int) -> Any:
    """A call of a command that signals its start and then sleeps."""
    return bench.api.bash(f"echo up > {pipe}; {SLEEPER.format(number)}")


async def test_a_cancel_ends_all_running_commands(bench: Any, pipe: Any) -> None:
    """By the first cancel step: the command, its background processes, and those that left its session."""
    api = bench.api
    detached = f"setsid {SLEEPER.format(9101)} >/dev/null 2>&1 &"
    command = f"{detached} {SLEEPER.format(9102)} & echo up > {pipe}; {SLEEPER.format(9103)}; touch no.txt"
    api.say(api.reply(api.bash(command)))

    async with bench.watched() as run:
        await pipe.heard()
        steps = await run.cancel()

    assert [step["rung"] for step in steps] == ["interrupt"]
    assert isinstance(run.seen[-1], ev.RunFailed)
    assert run.seen[-1].error["code"] == "aborted_tools"
    assert not any(isinstance(event, ev.ToolCallCompleted) for event in run.seen)
    assert bench.survivors() == []
    assert not any(run_of(number) for number in (9101, 9102, 9103))
    assert not (bench.cwd / "no.txt").exists()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_cancelled_repeatedly_leaves_no_process(bench: Any, pipe: Any) -> None:
    """A cancel of a bare task ignores shields, but does not reach the clean-up."""
    api = bench.api
    api.say(api.reply(sleeping(bench, pipe, 9115)))

    task = asyncio.create_task(bench.run())
    await pipe.heard()
    for _ in range(5):
        task.cancel()
        await anyio.lowlevel.checkpoint()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert bench.survivors() == []


async def test_a_finished_run_leaves_no_background_command(bench: Any) -> None:
    api = bench.api
    command = api.bash(SLEEPER.format(9113), run_in_background=True)
    api.say(api.reply(command), api.reply(api.text("left it running")))

    seen = await bench.run()

    assert seen[-1].output == "left it running"
    assert bench.survivors() == []


async def test_the_later_cancel_steps_end_a_client_that_does_not_answer(bench: Any, pipe: Any) -> None:
    """A suspended client is terminated or killed, with the processes it started."""
    api = bench.api
    api.say(api.reply(sleeping(bench, pipe, 9114)))

    async with bench.watched() as run:
        await pipe.heard()
        bench.client().suspend()
        steps = await run.cancel()

    assert [step["rung"] for step in steps][:2] == ["interrupt", "close"]
    assert steps[-1]["ended"]
    assert bench.survivors() == []


@pytest.mark.parametrize(("status", "code"), [(401, "authentication_failed"), (429, "rate_limit")])
async def test_an_api_that_keeps_failing_fails_the_run(bench: Any, status: int, code: str) -> None:
    """Each attempt is reported, and the error names the status."""
    api = bench.api
    api.say(*(api.reply(status=status) for _ in range(6)))

    events = await bench.run(adapter=bench.adapter(env={"CLAUDE_CODE_MAX_RETRIES": "1"}))

    errors = [event for event in events if isinstance(event, ev.ErrorOccurred)]
    assert {error.code for error in errors} == {code}
    assert isinstance(events[-1], ev.RunFailed)
    assert events[-1].error["code"] == "api_error"
    assert events[-1].error["details"]["api_error_status"] == status


async def test_an_api_that_recovers_does_not_fail_the_run(bench: Any) -> None:
    """The retry and its success are reported."""
    api = bench.api
    api.say(api.reply(status=529), api.reply(api.text("back")))

    events = await bench.run()

    kinds = [type(event) for event in events if isinstance(event, (ev.ErrorOccurred, ev.ErrorRecovered))]
    assert kinds == [ev.ErrorOccurred, ev.ErrorRecovered]
    assert events[-1].output == "back"


async def test_an_interrupted_stream_is_resumed(bench: Any) -> None:
    """The client's own text about it is no user message, and the run completes."""
    api = bench.api
    api.say(api.reply(api.text("first half"), cut=True), api.reply(api.text("second half")))

    events = await bench.run()

    assert isinstance(events[-1], ev.RunCompleted)
    assert "message_sent" not in {event.type for event in events}


SAYS = """#!/usr/bin/env python3
import json, sys
def say(**record): print(json.dumps(record), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["type"] == "user":
        {after_prompt}
        break
    kind = asked["request"]["subtype"]
    answer = {{"initialize": {{"hook_on_failure_supported": True}},
              "get_usage": {{"session": {{"model_usage": {{}}}}}}}}.get(kind, {{}})
    say(type="control_response",
        response={{"subtype": "success", "request_id": asked["request_id"], "response": answer}})
"""


def client_that(bench: Any, *after_prompt: str) -> str:
    """A client that starts like the real one and then does this."""
    path = bench.cwd.parent / "client"
    path.write_text(SAYS.format(after_prompt="; ".join(after_prompt)))
    path.chmod(0o755)
    return str(path)


async def test_a_client_that_exits_without_a_result_is_an_error(bench: Any) -> None:
    """Its exit code is in the details; zero is no success."""
    with pytest.raises(ProviderError) as caught:
        await bench.run(adapter=bench.adapter(cli_path=client_that(bench, "sys.exit(3)")))
    cli = client_that(bench, 'say(type="assistant", message={"id": "m", "content": []})')
    with pytest.raises(ProviderError, match="without a result"):
        await bench.run(adapter=bench.adapter(cli_path=cli))

    assert caught.value.details["exit_code"] == 3


async def test_an_unreadable_message_hides_no_later_one(bench: Any) -> None:
    """An invalid line is skipped, and a message of another shape is kept. A line may be as long as an image, or
    contain a lone surrogate, which JavaScript writes if it cuts a text.
    """
    records = [
        *('type="assistant", message=7', 'type="assistant", message={"id": "m", "content": [7]}', 'type="user"'),
        *("type=[]", 'type="system", subtype="init", tools=7'),
        'type="stream_event", event={"type": "message_start"}',
    ]
    long = 'type="assistant", message={"id": "n", "content": [{"type": "text", "text": "x" * 3_000_000}]}'
    lines = ['[{"type": "result"}]', "7", "\\ud800", ""]
    result = 'say(type="result", subtype="success", result="done \\ud83d", session_id="s")'
    steps = [*(f"print({line!r}, flush=True)" for line in lines), *(f"say({one})" for one in (*records, long))]
    cli = client_that(bench, *steps, result, "sys.stdin.read()")

    events = await bench.run(adapter=bench.adapter(cli_path=cli))

    assert len([event for event in events if isinstance(event, ev.Unrecognized)]) == len(records)
    assert 3_000_000 in [len(event.content) for event in events if isinstance(event, ev.MessageReceived)]
    assert isinstance(events[-1], ev.RunCompleted)
    assert events[-1].output == "done \ufffd"


async def test_a_client_that_does_not_report_its_usage_is_ended(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits on usage could not be enforced, so an unanswered query for it fails the run."""
    monkeypatch.setattr("proctor.adapters.agents.claude.translation.ANSWER_S", 0.3)
    line = 'say(type="assistant", message={"id": "m", "content": []})'
    cli = client_that(bench, line, "[None for line in sys.stdin]")
    adapter = bench.adapter(cli_path=cli)

    with pytest.raises(ProviderError, match="did not say within"):
        await bench.run(adapter=adapter)

    assert bench.survivors() == []


async def test_a_missing_requirement_is_an_error_before_anything_starts(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No credentials, no directory, an unknown option."""
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(ProviderUnavailableError, match="ANTHROPIC_API_KEY"):
        await bench.adapter(env={"ANTHROPIC_API_KEY": ""}).prepare()
    with pytest.raises(ProviderUnavailableError, match="no working directory at `/no/such`"):
        await bench.adapter(cwd="/no/such").prepare()
    with pytest.raises(UsageError, match=r"`max_turn` is not an option .* did you mean `max_turns`"):
        await bench.adapter(max_turn=3).prepare()
    assert not bench.api.requests
