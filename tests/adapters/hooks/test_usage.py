"""Usage from the client's log, hook by hook: limits on tokens and cost apply at the next call."""

import io
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from calling import called
from hook_processes import call_of, decider_for

from proctor.adapters.kit import usage_log as usage
from proctor.policies import EventError

pytestmark = pytest.mark.anyio
DENY_PAST_1000 = "{name: p, limits: {max_total_tokens: {max: 1000, action: deny}}}"


async def tokens(session: Any) -> list[tuple[int, int]]:
    """The recorded usage, input and output."""
    return [(event.input_tokens, event.output_tokens) for event in await session.events("token_usage_updated")]


async def test_a_response_counts_once_by_the_maximum_of_its_lines(session: Any) -> None:
    """The client writes a line for each part of a response, each with the usage so far. A text may be cut within a
    character.
    """
    session.prompt("p1", policy=DENY_PAST_1000)
    session.used("m1", text="cut \ud83d", input_tokens=400, output_tokens=1, cache_read_input_tokens=50)
    session.used("m1", input_tokens=400, output_tokens=1, cache_read_input_tokens=50)
    first = session.pre("t1").verdict
    session.used("m1", input_tokens=400, output_tokens=90, cache_read_input_tokens=50)
    session.post("t1")
    session.used("m2", input_tokens=600, output_tokens=5)
    second = session.pre("t2").verdict

    assert (first, second) == ("allow", "deny")
    assert await tokens(session) == [(450, 1), (0, 89), (600, 5)]
    assert [found.enforcement for found in await session.events("policy_violation")] == ["observed", "prevented"]


@pytest.mark.parametrize(("used", "verdict"), [(900, "allow"), (1100, "deny")])
def test_usage_that_a_call_reports_counts_for_it_even_if_its_run_begins_with_it(
    used: int, verdict: str, tmp_path: Path
) -> None:
    """As after a start without the hook of its prompt."""
    deciding = decider_for(tmp_path, DENY_PAST_1000)
    row = {"model": "m", "below": False, "tokens": [used]}
    data = {**call_of("opencode", "c1"), "used": [row]}
    answer, _ = deciding.answer_hook(json.dumps(data).encode(), agent="opencode")
    deciding.close()

    assert answer.verdict == verdict


async def test_a_subagents_log_counts_too(session: Any) -> None:
    """It is in a folder beside the session's."""
    session.prompt("p1", policy=DENY_PAST_1000)
    session.used("m1", input_tokens=100)
    first = session.pre("t1", "Agent").verdict
    session.used("m2", log="agent-1", input_tokens=700)
    session.used("m3", log="agent-2", input_tokens=300)
    second = session.pre("t2").verdict

    assert (first, second) == ("allow", "deny")
    assert [event.subagent_tokens for event in await session.events("token_usage_updated")] == [0, 1000]


def test_sessions_share_a_window_and_the_status_line_shows_its_usage(
    session: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Usage of one session of the user counts in the next. Subagents' usage is listed separately."""
    budget = "{name: five-hours, max_total_tokens: 80%, allowance: 1250, window: 5h, action: deny}"
    session.prompt("p1", policy=f"{{name: p, limits: {{max_tool_calls: 9}}, budgets: [{budget}]}}")
    session.used("m1", input_tokens=100)
    session.used("m2", log="agent-1", input_tokens=400)
    first = session.pre("t1").verdict
    session.used("m3", input_tokens=600)
    second = session.pre("t2").verdict
    other = {"session_id": "other", "transcript_path": ""}
    session.hook("UserPromptSubmit", prompt="go", **other)
    third = session.hook("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_use_id="u", **other)
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"session_id": "s"})))
    words = (("hook", "status-line"), ("runs",), ("show", "s-1"))
    line, *shown = (called(capsys, *each, "--store", session.store).out for each in words)
    shown = [" ".join(text.split()) for text in shown]

    assert (first, second, third.verdict) == ("allow", "deny", "deny")
    assert line == "tool_calls 1/9 · five-hours 110% · subagents 400 tokens\n"
    assert "tokens by subagents" in shown[0]
    assert "1.1k 400" in shown[0]
    assert "+ 500 in, 0 out, 400 of them by subagents" in shown[1]
    assert "1.1k tokens (400 by subagents)" in shown[1]


async def test_a_limit_that_cancels_ends_the_response_at_the_next_hook(session: Any) -> None:
    """It need not be a call; an outcome reports usage as well."""
    session.prompt("p1", policy="{name: p, limits: {max_total_tokens: 1000}}")
    session.used("m1", input_tokens=10)
    session.pre("t1")
    session.used("m2", log="agent-1", input_tokens=5000)
    after = session.post("t1")
    denied = session.pre("t2")

    assert after.stop
    assert (denied.verdict, denied.stop) == ("deny", True)
    assert [event.enforcement for event in await session.events("policy_violation")] == ["interrupted"]
    assert [event.type for event in await session.events("run_cancelled", "run_completed")] == ["run_cancelled"]


async def test_cost_is_tokens_by_the_policys_prices(session: Any) -> None:
    """The user is told of a model without a price when the response ends."""
    session.policy.write_text(
        "{name: p, limits: {max_cost_usd: {max: 0.01, action: deny}},"
        " prices: {house-1: {input_usd_per_mtok: 10, output_usd_per_mtok: 100}}}"
    )
    session.prompt("p1")
    session.used("m1", model="house-1", input_tokens=900, output_tokens=5)
    first = session.pre("t1").verdict
    session.used("m2", model="unheard-of-1", input_tokens=10**9)
    second = session.pre("t2").verdict
    session.used("m3", model="house-1", output_tokens=6)
    third = session.pre("t3").verdict
    ended = session.hook("Stop")

    assert (first, second, third) == ("allow", "allow", "deny")
    assert any("`unheard-of-1`" in note for note in ended.notes)


async def test_a_run_is_one_prompt_and_a_session_all_of_them(session: Any) -> None:
    """Usage of an earlier prompt counts only for a session limit."""
    session.policy.write_text(
        "{name: p, on_violation: deny, limits: {max_input_tokens: 500,"
        " max_total_tokens: {max: 1000, scope: session}}}"
    )
    found = []
    for n in range(3):
        session.prompt(f"p{n}")
        session.used(f"m{n}", input_tokens=400)
        found.append(session.pre(f"t{n}").verdict)
        session.hook("Stop")

    assert found == ["allow", "allow", "deny"]


async def test_the_log_is_read_from_the_sessions_start_line_by_line(session: Any) -> None:
    """A fork's log starts with a copy of the original session, which does not count. A partial line is neither an
    error nor lost. If a log is rewritten, counted usage stays and new usage is added, also that of a subagent
    meanwhile.
    """
    session.policy.write_text(DENY_PAST_1000)
    session.used("old", input_tokens=5000)
    session.prompt("p1")
    session.used("m1", input_tokens=600)
    first = session.pre("t1").verdict
    session.used("m2", input_tokens=300)
    whole = session.log.read_bytes()
    session.log.write_bytes(whole[:-40])
    session.pre("t2")
    half = await tokens(session)
    session.log.write_bytes(whole)
    session.pre("t3")
    session.log.write_text("")
    session.used("m1", input_tokens=600)
    session.used("s1", log="agent-1", input_tokens=50)
    fourth = session.pre("t4").verdict
    session.used("m3", input_tokens=500)
    fifth = session.pre("t5").verdict

    assert (first, fourth, fifth) == ("allow", "allow", "deny")
    assert half == [(600, 0)]
    assert await tokens(session) == [(600, 0), (300, 0), (50, 0), (500, 0)]


@pytest.mark.parametrize("how", ["gone", "gone, under a budget", "folder", "fifo", "garbage", "unnamed"])
async def test_an_unreadable_log_denies_if_a_limit_needs_it(
    session: Any, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first call, before which it need not exist, however long it is waited for. Without such a limit it is
    not needed.
    """
    monkeypatch.setattr(usage, "WAIT_S", 0.001)
    budget = "{name: p, budgets: [{name: b, max_total_tokens: 1000, window: day, action: deny}]}"
    session.prompt("p1", policy=budget if "budget" in how else DENY_PAST_1000)
    first = session.pre("t1").verdict
    session.used("m1", input_tokens=1)
    line = session.log.read_text()
    session.log.unlink()
    if how == "folder":
        session.log.mkdir()
    elif how == "fifo":
        os.mkfifo(session.log)
    elif how == "garbage":
        session.log.write_text(line.replace('"input_tokens": 1', '"input_tokens": "x"'))
    elif how == "unnamed":
        session.log = ""
    with pytest.raises(EventError, match="log"):
        session.pre("t2")
    outcome = session.post("t1")
    session.policy.write_text("{name: p}")
    unlimited = session.pre("t3").verdict

    assert first == "allow"
    assert not outcome.stop
    assert unlimited == "allow"
    assert [event.tool_call_id for event in await session.events("tool_call_completed")] == ["t1"]


async def test_a_limit_that_only_warns_is_reported_to_the_user_once(session: Any) -> None:
    """The calls continue."""
    session.prompt("p1", policy="{name: p, limits: {max_total_tokens: {max: 1000, action: warn}}}")
    session.used("m1", input_tokens=5000)
    first, second = session.pre("t1"), session.pre("t2")

    assert (first.verdict, second.verdict) == ("allow", "allow")
    assert (len(first.notes), len(second.notes)) == (1, 0)


async def test_a_call_waits_for_the_usage_of_its_own_response(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client starts the hook while it writes the response into its log, and the limit sees that response. The end
    waits likewise for the last message.
    """
    session.prompt("p1", policy="{name: p, limits: {max_total_tokens: {max: 100, action: deny}}}")
    session.used("m1", call="t1", input_tokens=60)
    first = session.pre("t1")
    monkeypatch.setattr(usage, "WAIT_S", 60.0)
    monkeypatch.setattr(time, "sleep", lambda _: session.used("m2", call="t2", input_tokens=60))
    second = session.pre("t2")
    monkeypatch.setattr(usage, "WAIT_AT_THE_END_S", 60.0)
    monkeypatch.setattr(time, "sleep", lambda _: session.used("m3", text="It is done.", input_tokens=7))
    session.hook("Stop", last_assistant_message="It is done.")
    monkeypatch.undo()

    assert (first.verdict, second.verdict) == ("allow", "deny")
    assert await tokens(session) == [(60, 0), (60, 0), (7, 0)]


@pytest.mark.parametrize("action", ["cancel", "deny", "warn"])
def test_a_prompt_without_remaining_budget_is_denied(session: Any, action: str) -> None:
    """Its response alone would exceed it. The user gets the reason, once. With `warn` it continues."""
    budget = f"{{name: tokens, max_total_tokens: 100, window: day, action: {action}}}"
    session.policy.write_text(f"{{name: p, budgets: [{budget}]}}")
    first = session.prompt("p1")
    session.pre("t1", command="ls")
    session.used("m1", input_tokens=500, output_tokens=1, call="t1")
    session.post("t1", command="ls")
    session.hook("Stop")
    second = session.prompt("p2")

    assert first.verdict == "allow"
    assert second.verdict == ("allow" if action == "warn" else "deny")
    [why] = second.notes if action == "warn" else [second.reason]
    assert why.startswith("policy `p`, rule `tokens`: 501 tokens used; it starts again at ")
    assert action == "warn" or second.notes == ()
