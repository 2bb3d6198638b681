"""The real client: failures of the API and of the client are failures of the run."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from proctor.policies.events import (
    ErrorOccurred,
    ErrorRecovered,
    MessageReceived,
    RunCompleted,
    RunFailed,
    Unrecognized,
)
from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UsageError
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = [pytest.mark.claude, pytest.mark.anyio]


@pytest.mark.parametrize(("status", "code"), [(401, "authentication_failed"), (429, "rate_limit")])
async def test_an_api_that_keeps_refusing_fails_the_run(bench: Any, status: int, code: str) -> None:
    """Each attempt is reported, and the failure names the status."""
    api = bench.api
    api.say(*(api.reply(status=status) for _ in range(6)))

    events = await bench.run(bench.adapter(env={"CLAUDE_CODE_MAX_RETRIES": "1"}))

    errors = [event for event in events if isinstance(event, ErrorOccurred)]
    assert {error.code for error in errors} == {code}
    assert isinstance(events[-1], RunFailed)
    assert events[-1].error["code"] == "api_error"
    assert events[-1].error["details"]["api_error_status"] == status


async def test_an_api_that_comes_back_recovers(bench: Any) -> None:
    """The retry is reported, and so is its success."""
    api = bench.api
    api.say(api.reply(status=529), api.reply(api.text("back")))

    events = await bench.run(bench.adapter())

    kinds = [type(event) for event in events if isinstance(event, (ErrorOccurred, ErrorRecovered))]
    assert kinds == [ErrorOccurred, ErrorRecovered]
    assert events[-1].output == "back"


async def test_a_stream_that_was_cut_off_is_resumed(bench: Any) -> None:
    """The client's own words about it are not the user's, and the run completes."""
    api = bench.api
    api.say(api.reply(api.text("first half"), cut=True), api.reply(api.text("second half")))

    events = await bench.run(bench.adapter())

    assert isinstance(events[-1], RunCompleted)
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
    """A client that answers the start like the real one and then does this."""
    path = bench.cwd.parent / "client"
    path.write_text(SAYS.format(after_prompt="; ".join(after_prompt)))
    path.chmod(0o755)
    return str(path)


async def test_a_client_that_dies_is_an_error_with_its_last_words(bench: Any) -> None:
    """The exit code and what it wrote to stderr are in the details."""
    cli = client_that(bench, 'sys.stderr.write("out of cheese\\n")', "sys.stderr.flush()", "sys.exit(3)")

    with pytest.raises(ProviderError) as caught:
        await bench.run(bench.adapter(cli_path=cli))

    assert caught.value.details["exit_code"] == 3


async def test_a_client_that_ends_without_a_result_is_an_error(bench: Any) -> None:
    """An exit code of zero is no success."""
    cli = client_that(bench, 'say(type="assistant", message={"id": "m", "content": []})')

    with pytest.raises(ProviderError, match="without a result"):
        await bench.run(bench.adapter(cli_path=cli))


async def test_what_is_no_message_of_ours_hides_nothing_of_what_follows(bench: Any) -> None:
    """A line that is none is passed over, a record of another shape kept; one may be as long as an image."""
    records = [
        'type="assistant", message=7',
        'type="assistant", message={"id": "m", "content": [7]}',
        'type="user"',
        "type=[]",
        'type="system", subtype="init", tools=7',
        'type="stream_event", event={"type": "message_start"}',
    ]
    long = 'type="assistant", message={"id": "n", "content": [{"type": "text", "text": "x" * 3_000_000}]}'
    lines = ['[{"type": "result"}]', "7", "\\ud800", ""]
    result = 'say(type="result", subtype="success", result="done", session_id="s")'
    steps = [*(f"print({line!r}, flush=True)" for line in lines), *(f"say({one})" for one in (*records, long))]
    cli = client_that(bench, *steps, result, "sys.stdin.read()")

    events = await bench.run(bench.adapter(cli_path=cli))

    assert len([event for event in events if isinstance(event, Unrecognized)]) == len(records)
    assert 3_000_000 in [len(event.content) for event in events if isinstance(event, MessageReceived)]
    assert isinstance(events[-1], RunCompleted)
    assert events[-1].output == "done"


async def test_a_client_that_does_not_say_what_it_used_is_ended(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits on usage could not hold: a question that is never answered fails the run."""
    monkeypatch.setattr("proctor.adapters.agents.claude.translation.ANSWER_S", 0.3)
    line = 'say(type="assistant", message={"id": "m", "content": []})'
    cli = client_that(bench, line, "[None for line in sys.stdin]")
    adapter = bench.adapter(cli_path=cli)

    with anyio.fail_after(PATIENCE_S), pytest.raises(ProviderError, match="did not say within"):
        await bench.run(adapter, run_id="close-lipped")

    assert bench.marked("close-lipped") == []


async def test_what_is_missing_is_reported_before_anything_starts(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No credentials, no directory, no such option: one clear error each."""
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(ProviderUnavailableError, match="ANTHROPIC_API_KEY"):
        await bench.adapter(env={"ANTHROPIC_API_KEY": ""}).prepare()
    with pytest.raises(ProviderUnavailableError, match="no working directory at `/no/such`"):
        await bench.adapter(cwd="/no/such").prepare()
    with pytest.raises(UsageError, match=r"`max_turn` is not an option .* did you mean `max_turns`"):
        await bench.adapter(max_turn=3).prepare()
    assert not bench.api.requests
