"""Supervised runs of the real client: policies, approvals and deadlines hold from end to end."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters.agents.scripted.adapter import ScriptedAdapter
from proctor.adapters.stores import MemoryStore, SQLiteStore
from proctor.policies import Policy, PolicyViolationError, merge_policies, parse_policies
from proctor.policies.events import (
    MessageSent,
    ToolApprovalGranted,
    ToolApprovalRequested,
    ToolCallDenied,
    ToolCallStarted,
)
from proctor.supervisor.api.run_once import run_once
from proctor.supervisor.api.supervisor import Supervisor
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = [pytest.mark.claude, pytest.mark.anyio]


def policy(**text: Any) -> Policy:
    """A policy from its written form."""
    return merge_policies(parse_policies({"name": "p", **text}))


async def test_a_supervised_run_completes_with_what_it_used(bench: Any) -> None:
    """The record holds the call once, and usage and cost are the client's."""
    api = bench.api
    api.say(api.reply(api.text("I will"), api.bash("echo a")), api.reply(api.text("done")))

    result = await run_once(bench.adapter(), "go", policies=[policy(limits={"max_cost_usd": 1})])

    assert (result.status, result.output) == ("completed", "done")
    assert (result.usage.input_tokens, result.usage.output_tokens) == (200, 40)
    assert result.cost_usd == pytest.approx(200 * 3e-6 + 40 * 15e-6)
    assert [event.type for event in result.events].count("tool_call_started") == 1
    assert [event.type for event in result.events].count("message_sent") == 1


async def test_a_deny_with_a_condition_holds_inside_a_sub_agent(bench: Any) -> None:
    """The call is refused where it is asked for, and the run goes on to its end."""
    api = bench.api
    start = {"description": "d", "prompt": "sub go", "subagent_type": "general-purpose"}
    api.say(
        api.reply(api.tool("Agent", run_in_background=False, **start)),
        api.reply(api.text("main done")),
    )
    api.say(api.reply(api.bash("touch never.txt")), api.reply(api.text("sub done")), sub=True)
    touch = {"tool": "Bash", "where": [{"path": "$.command", "contains": "touch"}]}
    rule = policy(on_violation="deny", tool_rules=[{"deny": [touch]}])

    result = await run_once(bench.adapter("Bash", "Agent"), "go", policies=[rule])

    assert [event.tool_name for event in result.events if isinstance(event, ToolCallDenied)] == ["Bash"]
    assert not (bench.cwd / "never.txt").exists()
    assert result.output == "main done"


async def test_a_token_limit_crossed_in_the_middle_ends_the_run(bench: Any) -> None:
    """The command that runs just then is ended with it."""
    api = bench.api
    api.say(api.reply(api.bash("tail -f /dev/null --sleep-interval=9201"), input_tokens=5000))
    limits = policy(limits={"max_total_tokens": 1000})

    with anyio.fail_after(PATIENCE_S), pytest.raises(PolicyViolationError) as caught:
        await run_once(bench.adapter(), "go", policies=[limits], run_id="tokens")

    assert [violation.kind for violation in caught.value.violations] == ["max_total_tokens"]
    assert caught.value.partial.usage.total_tokens == 5020
    assert not bench.marked("tokens")


async def test_a_sub_agents_cost_ends_the_run_while_it_works(bench: Any) -> None:
    """The cap is on money, and only the sub-agent spends it."""
    api = bench.api
    start = {"description": "d", "prompt": "sub go", "subagent_type": "general-purpose"}
    api.say(api.reply(api.tool("Agent", run_in_background=False, **start)))
    api.say(api.reply(api.bash("tail -f /dev/null --sleep-interval=9202"), input_tokens=100_000), sub=True)
    limits = policy(limits={"max_cost_usd": 0.1})

    with anyio.fail_after(PATIENCE_S), pytest.raises(PolicyViolationError) as caught:
        await run_once(bench.adapter("Bash", "Agent"), "go", policies=[limits], run_id="cost")

    assert "max_cost_usd" in [violation.kind for violation in caught.value.violations]
    assert not bench.marked("cost")


async def test_the_turn_limit_is_a_violation_and_asks_for_no_further_response(bench: Any) -> None:
    """The client stops by itself, and the run still ends as the policy's."""
    api = bench.api
    api.say(*(api.reply(api.bash(f"echo {n}")) for n in range(5)))

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(bench.adapter(), "go", policies=[policy(limits={"max_turns": 2})])

    assert [violation.kind for violation in caught.value.violations] == ["max_turns"]
    assert len(api.requests) == 2


async def test_a_silent_model_is_ended_at_the_deadline(bench: Any) -> None:
    """No event comes, and the clock still counts."""
    api = bench.api
    api.say(api.reply(api.text("and then"), hold=threading.Event()))

    with anyio.fail_after(PATIENCE_S), pytest.raises(PolicyViolationError) as caught:
        await run_once(bench.adapter(), "go", policies=[policy(limits={"max_duration_ms": 2000})], run_id="silent")

    assert [violation.kind for violation in caught.value.violations] == ["max_duration_ms"]
    assert not bench.marked("silent")


async def test_a_client_that_never_answers_is_ended_at_the_deadline(bench: Any, tmp_path: Path) -> None:
    """While it is started, already; what it has started itself is ended with it."""
    client = tmp_path / "client"
    client.write_text("#!/bin/bash\n(tail -f /dev/null &)\nexec cat > /dev/null\n")
    client.chmod(0o755)
    limits = policy(limits={"max_duration_ms": 1500})

    with anyio.fail_after(PATIENCE_S), pytest.raises(PolicyViolationError) as caught:
        await run_once(bench.adapter(cli_path=str(client)), "go", policies=[limits], run_id="mute")

    assert [violation.kind for violation in caught.value.violations] == ["max_duration_ms"]
    assert not bench.marked("mute")


APPROVE = """
import sys, anyio
from proctor.adapters.agents.scripted.adapter import ScriptedAdapter
from proctor.adapters.stores import SQLiteStore
from proctor.supervisor.api.supervisor import Supervisor

async def main(path, approval_id):
    async with SQLiteStore(path) as store, Supervisor(store) as supervisor:
        await supervisor.approve(approval_id, by="ana")

anyio.run(main, *sys.argv[1:])
"""


async def test_a_held_call_runs_once_another_process_grants_it(bench: Any, tmp_path: Path) -> None:
    """It does not run before, and the answer comes through the store."""
    api = bench.api
    api.say(api.reply(api.bash("touch granted.txt")), api.reply(api.text("done")))
    path = tmp_path / "proctor.db"
    ask = policy(tool_rules=[{"deny": ["Bash"], "action": "request_approval"}])

    async with SQLiteStore(path) as store, Supervisor(store) as supervisor:
        handle = await supervisor.start(bench.adapter(), "go", policies=[ask])
        with anyio.fail_after(PATIENCE_S):
            async for event in supervisor.subscribe(run_id=handle.run_id):
                if isinstance(event, ToolApprovalRequested):
                    assert not (bench.cwd / "granted.txt").exists()
                    command = [sys.executable, "-c", APPROVE, str(path), event.approval_id]
                    await anyio.run_process(command)
            result = await handle.wait()

    [granted] = [event for event in result.events if isinstance(event, ToolApprovalGranted)]
    assert granted.by == "ana"
    assert (bench.cwd / "granted.txt").exists()
    assert len([event for event in result.events if isinstance(event, ToolCallStarted)]) == 1


async def test_a_session_resumes_in_the_client_and_its_limits_count_on(bench: Any, tmp_path: Path) -> None:
    """The second run has the client's own history, a fresh run budget and the session's spent one."""
    api = bench.api
    api.say(
        api.reply(api.text("noted"), input_tokens=1000),
        api.reply(api.text("seven"), input_tokens=1000),
        api.reply(api.text("over"), input_tokens=1000),
    )
    limits = policy(limits={"max_total_tokens": {"max": 2500, "scope": "session"}, "max_input_tokens": 1500})
    async with SQLiteStore(tmp_path / "proctor.db") as store:

        async def run(prompt: str) -> Any:
            return await run_once(
                bench.adapter(), prompt, policies=[limits], store=store, session_id="s", continuation="auto"
            )

        await run("remember 7")
        second = await run("which?")
        with pytest.raises(PolicyViolationError) as caught:
            await run("again?")

    assert second.usage.input_tokens == 1000
    assert "remember 7" in str(api.requests[1]["messages"])
    assert [violation.kind for violation in caught.value.violations] == ["max_total_tokens"]


async def test_a_session_of_another_agent_is_replayed_to_the_client(bench: Any) -> None:
    """Where the client has no such session, it gets the conversation so far; the record gets the prompt alone."""
    api, store = bench.api, MemoryStore()
    api.say(api.reply(api.text("seven")))
    look = {"call": "bash", "input": {"command": "echo n is $((3 + 4))"}}
    script = {"steps": [look, {"say": "I keep it in mind"}]}

    await run_once(ScriptedAdapter(script), "remember n", policies=[policy()], store=store, session_id="s")
    result = await run_once(
        bench.adapter(), "which?", policies=[policy()], store=store, session_id="s", continuation="auto"
    )

    messages = str(api.requests[0]["messages"])
    assert (
        messages.index("remember n")
        < messages.index("n is 7")
        < messages.index("I keep it in mind")
        < messages.index("which?")
    )
    assert [event.content for event in result.events if isinstance(event, MessageSent)] == ["which?"]
    assert result.output == "seven"


async def test_an_api_that_refuses_is_the_providers_error_with_the_report(bench: Any) -> None:
    """A failure is no violation."""
    api = bench.api
    api.say(*(api.reply(status=401) for _ in range(6)))
    adapter = bench.adapter(env={"CLAUDE_CODE_MAX_RETRIES": "1"})

    with pytest.raises(ProviderError, match="401") as caught:
        await run_once(adapter, "go", policies=[policy(limits={"max_turns": 3})])

    assert caught.value.policy.violations == ()


async def test_a_cancel_ends_the_run_once_with_its_processes(bench: Any) -> None:
    """The record says how it was done."""
    api = bench.api
    api.say(api.reply(api.bash("tail -f /dev/null --sleep-interval=9203")))

    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(bench.adapter(), "go", policies=[policy()], run_id="cancelled")
        async for event in supervisor.subscribe(run_id=handle.run_id):
            if isinstance(event, ToolCallStarted):
                await handle.cancel(reason="user")
        result = await handle.wait()

    assert result.status == "cancelled"
    assert result.events[-1].type == "run_cancelled"
    assert [event.type for event in result.events].count("run_cancelled") == 1
    assert not bench.marked("cancelled")


async def test_portable_names_hold_on_the_clients_own_tools(bench: Any) -> None:
    """`bash` is its Bash, `write` its Write with `file_path`; what is outside the workspace is found by `$.path`."""
    api = bench.api
    inside, outside = bench.cwd / "c.txt", bench.cwd.parent / "d.txt"
    api.say(
        api.reply(api.bash("ls; touch a")),
        api.reply(api.bash("echo b > b")),
        api.reply(api.tool("Write", file_path=str(inside), content="x")),
        api.reply(api.tool("Write", file_path=str(outside), content="x")),
        api.reply(api.text("done")),
    )
    away = {"tool": ["write", "edit"], "where": [{"not": [{"path": "$.path", "within": "."}]}]}
    push = {"tool": "bash", "where": [{"path": "$.command", "runs": "touch"}]}
    rule = policy(on_violation="deny", rules=[{"type": "blocklist", "tools": [away, push]}])
    result = await run_once(bench.adapter("Bash", "Write"), "go", policies=[rule])

    refused = [event.tool_name for event in result.events if isinstance(event, ToolCallDenied)]
    assert refused == ["Bash", "Write"]
    assert sorted(path.name for path in bench.cwd.iterdir()) == ["b", "c.txt"]
    assert not outside.exists()


@pytest.mark.parametrize("denied", [{"deny": ["bash"]}, {"allow": ["Read"]}], ids=("denied", "not allowed"))
async def test_an_attempt_at_a_tool_that_was_removed_at_launch_is_a_violation(bench: Any, denied: Any) -> None:
    """The client knows no such tool and does not ask about the call; the run is cancelled by the rule."""
    api = bench.api
    api.say(api.reply(api.bash("touch never.txt")), api.reply(api.text("done")))
    rule = policy(on_violation="cancel", tool_rules=[denied])

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(bench.adapter("Bash", "Read"), "go", policies=[rule])

    seen = [event.type for event in caught.value.partial.events if "tool_call" in event.type]
    assert seen == ["tool_call_requested", "tool_call_denied"]
    (violation,) = caught.value.violations
    assert (violation.tool_name, violation.enforcement) == ("Bash", "prevented")


async def test_each_attempt_at_a_removed_tool_is_recorded_and_the_run_goes_on_where_it_may(bench: Any) -> None:
    """Those of one response, and of a sub-agent; what was never there and nobody denied stays the client's affair."""
    api = bench.api
    start = {"description": "d", "prompt": "sub go", "subagent_type": "general-purpose"}
    api.say(
        api.reply(api.bash("touch a"), api.bash("touch b")),
        api.reply(api.tool("Agent", run_in_background=False, **start)),
        api.reply(api.tool("NoSuchTool", x=1)),
        api.reply(api.text("done")),
    )
    api.say(api.reply(api.bash("touch c")), api.reply(api.text("sub done")), sub=True)
    rule = policy(on_violation="deny", tool_rules=[{"deny": ["bash"]}])

    result = await run_once(bench.adapter("Bash", "Agent"), "go", policies=[rule])

    assert result.output == "done"
    assert [violation.tool_name for violation in result.policy.violations] == ["Bash"] * 3
    denied = [event for event in result.events if isinstance(event, ToolCallDenied)]
    assert [event.tool_name for event in denied] == ["Bash"] * 3
    started = [event.tool_name for event in result.events if isinstance(event, ToolCallStarted)]
    assert started == ["Agent"]
