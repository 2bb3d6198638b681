"""The session log of the real Claude Code is evaluated like the run: the same policy, the same decisions."""

from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.evaluate import judge_session
from proctor.adapters.traces import read_sessions
from proctor.policies import compile_policy, merge_policies, parse_policies
from proctor.policies.events import ToolCallRequested, ToolCallStarted
from proctor.supervisor import run_once

pytestmark = [pytest.mark.claude, pytest.mark.anyio]
OUTSIDE = "{tool: [write, edit], where: [{not: [{path: $.path, within: .}]}]}"


def logs(env: dict[str, str]) -> list[str]:
    return [str(path) for path in Path(env["CLAUDE_CONFIG_DIR"]).glob("projects/*/*.jsonl")]


async def test_the_log_has_the_paths_that_the_gate_was_asked_about(bench: Any) -> None:
    """The log has paths as the model wrote them. A path that leaves the folder by `..` is found in both."""
    policy = f"name: p\non_violation: deny\ntool_rules: [{{deny: [{OUTSIDE}]}}]"
    api = bench.api
    for path in ("a.txt", "./sub/../b.txt", "sub/../../out.txt", " ../out.txt"):
        api.say(api.reply(api.tool("Write", file_path=path, content="x")))
    api.say(api.reply(api.text("done")))

    live = await run_once(bench.adapter("Write"), "go", policies=parse_policies(policy))
    (session,) = read_sessions(logs(bench.env), format="claude")
    evaluated = judge_session(compile_policy(merge_policies(parse_policies(policy))), session)
    paths = [event.tool_input["file_path"] for event in live.events if isinstance(event, ToolCallRequested)]
    recorded = [
        e.tool_input["file_path"] for e in session.events if isinstance(e, ToolCallRequested | ToolCallStarted)
    ]

    assert recorded == paths
    assert [violation.tool_call_id for violation in evaluated.violations] == [
        violation.tool_call_id for violation in live.policy.violations
    ]
    assert len(evaluated.violations) == 2


async def test_a_reused_call_id_in_the_log_is_another_call(bench: Any) -> None:
    """Three calls with one id exceed the limit of a response and that of a run."""
    policy = "name: p\nrules: [{type: count, tool: bash, max: 1, action: warn}]"
    call = bench.api.bash("echo x >> log")
    bench.api.say(*(bench.api.reply(call) for _ in range(3)), bench.api.reply(bench.api.text("done")))

    live = await run_once(bench.adapter(), "go", policies=parse_policies(policy))
    (session,) = read_sessions(logs(bench.env), format="claude")
    evaluated = judge_session(compile_policy(merge_policies(parse_policies(policy))), session)

    assert [len(evaluated.violations), len(live.policy.violations)] == [2, 2]


async def test_a_call_denied_once_ran_the_other_times_in_the_log(bench: Any) -> None:
    """Each result belongs to the call before it."""
    call = bench.api.bash("echo x >> log")
    bench.api.say(*(bench.api.reply(call) for _ in range(3)), bench.api.reply(bench.api.text("done")))
    policy = "name: p\nlimits: {max_tool_calls: {max: 1, action: deny}}"

    await run_once(bench.adapter(), "go", policies=parse_policies(policy))
    (session,) = read_sessions(logs(bench.env), format="claude")
    kinds = [event.type for event in session.events if getattr(event, "tool_call_id", None)]

    assert kinds[:2] == ["tool_call_started", "tool_call_completed"]
    assert [kind for kind in kinds if kind == "tool_call_completed"] == ["tool_call_completed"]
