"""Supervised runs of the real client: policies, approvals and deadlines, end to end."""

from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.agents.scripted.adapter import ScriptedAdapter
from proctor.adapters.stores import MemoryStore
from proctor.policies import Policy, PolicyViolationError, merge_policies, parse_policies
from proctor.policies.events import MessageSent, ToolCallDenied, ToolCallStarted
from proctor.supervisor.api.run_once import run_once

pytestmark = [pytest.mark.claude, pytest.mark.anyio]


def policy(**text: Any) -> Policy:
    return merge_policies(parse_policies({"name": "p", **text}))


async def test_a_subagents_cost_ends_the_run_while_it_works(bench: Any) -> None:
    """Only the subagent has a cost."""
    api = bench.api
    start = {"description": "d", "prompt": "sub go", "subagent_type": "general-purpose"}
    api.say(api.reply(api.tool("Agent", run_in_background=False, **start)))
    api.say(api.reply(api.bash("tail -f /dev/null --sleep-interval=9202"), input_tokens=100_000), sub=True)
    limits = policy(limits={"max_cost_usd": 0.1})

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(bench.adapter("Bash", "Agent"), "go", policies=[limits], run_id="cost")

    assert "max_cost_usd" in [violation.kind for violation in caught.value.violations]
    assert not bench.marked("cost")


async def test_a_client_that_never_answers_is_ended_at_the_deadline(bench: Any, tmp_path: Path) -> None:
    """Also while it starts; the processes it has started are ended too."""
    client = tmp_path / "client"
    client.write_text("#!/bin/bash\n(tail -f /dev/null &)\nexec cat > /dev/null\n")
    client.chmod(0o755)
    limits = policy(limits={"max_duration_ms": 1500})

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(bench.adapter(cli_path=str(client)), "go", policies=[limits], run_id="mute")

    assert [violation.kind for violation in caught.value.violations] == ["max_duration_ms"]
    assert not bench.marked("mute")


async def test_a_session_of_another_agent_is_replayed_to_the_client(bench: Any) -> None:
    """If the client has no such session, it gets the conversation so far. Only the prompt is recorded."""
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


async def test_portable_names_match_the_clients_own_tools(bench: Any) -> None:
    """`bash` is its Bash, `write` its Write with `file_path`; `$.path` finds paths outside the workspace, even
    through a link. The log has each call once, and usage and cost are the client's.
    """
    api, link = bench.api, bench.cwd.with_name("link")
    link.symlink_to(bench.cwd)
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
    rule = policy(
        on_violation="deny", rules=[{"type": "blocklist", "tools": [away, push]}], limits={"max_cost_usd": 1}
    )
    result = await run_once(bench.adapter("Bash", "Write", cwd=link), "go", policies=[rule])

    denied = [event.tool_name for event in result.events if isinstance(event, ToolCallDenied)]
    assert denied == ["Bash", "Write"]
    assert sorted(path.name for path in bench.cwd.iterdir()) == ["b", "c.txt"]
    assert not outside.exists()
    assert (result.status, result.output) == ("completed", "done")
    assert (result.usage.input_tokens, result.usage.output_tokens) == (500, 100)
    assert result.cost_usd == pytest.approx(500 * 3e-6 + 100 * 15e-6)
    types = [event.type for event in result.events]
    assert [types.count(name) for name in ("message_sent", "tool_call_started", "tool_call_completed")] == [1, 2, 2]


async def test_a_call_of_a_tool_removed_at_launch_is_a_violation(bench: Any) -> None:
    """The client lacks the tool and does not ask about the call. The rule cancels the run."""
    api = bench.api
    api.say(api.reply(api.bash("touch never.txt")), api.reply(api.text("done")))
    rule = policy(on_violation="cancel", tool_rules=[{"allow": ["Read"]}])

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(bench.adapter("Bash", "Read"), "go", policies=[rule])

    seen = [event.type for event in caught.value.partial.events if "tool_call" in event.type]
    assert seen == ["tool_call_requested", "tool_call_denied"]
    (violation,) = caught.value.violations
    assert (violation.tool_name, violation.enforcement) == ("Bash", "prevented")


async def test_each_call_of_a_removed_tool_is_recorded_and_the_run_continues_if_it_may(bench: Any) -> None:
    """Several in one response, and those of a subagent. A tool that never existed and is not denied is left to the
    client.

    The model is not offered the tool, in any case of the policy's name. Limits are passed on too.
    """
    api = bench.api
    start = {"description": "d", "prompt": "sub go", "subagent_type": "general-purpose"}
    api.say(
        api.reply(api.bash("touch a"), api.bash("touch b")),
        api.reply(api.tool("Agent", run_in_background=False, **start)),
        api.reply(api.tool("NoSuchTool", x=1)),
        api.reply(api.text("done")),
    )
    api.say(api.reply(api.bash("touch c")), api.reply(api.text("sub done")), sub=True)
    rule = policy(on_violation="deny", tool_rules=[{"deny": ["bash"]}], limits={"max_output_tokens": 777})

    result = await run_once(bench.adapter("Bash", "Agent"), "go", policies=[rule])

    assert (result.output, api.requests[0]["max_tokens"]) == ("done", 777)
    assert "Bash" not in [tool["name"] for tool in api.requests[0]["tools"]]
    assert [violation.tool_name for violation in result.policy.violations] == ["Bash"] * 3
    denied = [event for event in result.events if isinstance(event, ToolCallDenied)]
    assert [event.tool_name for event in denied] == ["Bash"] * 3
    started = [event.tool_name for event in result.events if isinstance(event, ToolCallStarted)]
    assert started == ["Agent"]
