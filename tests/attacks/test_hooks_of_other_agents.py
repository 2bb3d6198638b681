"""No call of Codex, Gemini CLI, opencode, Cursor or Copilot CLI gets past its hook by what is around the hook."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hook_processes import HookProcesses, end_daemons

AGENTS = ("codex", "gemini", "opencode", "cursor", "copilot")
THREE = "{name: p, limits: {max_tool_calls: {max: 3, scope: session, action: deny}}}"
BEFORE = {"codex": "PreToolUse", "gemini": "BeforeTool", "cursor": "preToolUse", "copilot": "PreToolUse"}
AFTER = {"codex": "PostToolUse", "gemini": "AfterTool", "cursor": "postToolUse", "copilot": "PostToolUse"}
BASH = {"codex": "Bash", "gemini": "run_shell_command", "cursor": "Shell", "copilot": "bash"}
CHILD = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:], stdin=0).returncode)"


def event(agent: str, number: int, command: str = "ls", session: str = "s", *, ran: bool = False) -> dict[str, Any]:
    """A call about to run, or one that has, as the agent says it."""
    if agent == "opencode":
        named = {"event": f"tool.execute.{'after' if ran else 'before'}", "session": session, "tool": "bash"}
        return {**named, "call": f"c{number}", "args": {"command": command}}
    call: dict[str, Any] = {"conversation_id" if agent == "cursor" else "session_id": session}
    call |= {"hook_event_name": (AFTER if ran else BEFORE)[agent], "tool_name": BASH[agent]}
    call["tool_input"] = {"command": command}
    return call | ({"tool_use_id": f"c{number}"} if agent in ("codex", "cursor") else {})


class Hooks:
    """The hooks of one agent, as processes."""

    def __init__(self, agent: str, folder: Path, policy: str = THREE) -> None:
        self.agent = agent
        self.hooked = HookProcesses(folder)
        self.hooked.policy.write_text(policy)

    def allows(self, data: dict[str, Any] | bytes, *before: str) -> bool:
        """Whether the agent would go on; one that is refused is refused in a way that it heeds."""
        words = [*before, *self.hooked.command[:5], "--agent", self.agent, *self.hooked.command[5:]]
        given = data if isinstance(data, bytes) else json.dumps(data).encode()
        ended = subprocess.run(words, input=given, capture_output=True, timeout=60)
        if ended.returncode == 0 and b"deny" not in ended.stdout:
            return True
        assert ended.returncode == 2 or b"deny" in ended.stdout
        return False


@pytest.fixture(params=AGENTS)
def hooks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hooks]:
    """Hooks of each agent under a policy that allows three calls."""
    made = Hooks(request.param, tmp_path)
    yield made
    end_daemons(made.hooked.store)


def test_a_process_that_judges_and_is_killed_forgets_nothing(hooks: Hooks) -> None:
    """Between any two hooks."""
    passed = []
    for number in range(5):
        passed.append(hooks.allows(event(hooks.agent, number)))
        end_daemons(hooks.hooked.store)

    assert passed == [True, True, True, False, False]


def test_a_process_below_the_client_does_not_speak_for_it(hooks: Hooks) -> None:
    """The session is that of the process whose hook came first."""
    assert hooks.allows(event(hooks.agent, 1))
    assert not hooks.allows(event(hooks.agent, 2), sys.executable, "-c", CHILD)
    assert hooks.allows(event(hooks.agent, 3))


def test_an_input_that_is_no_hook_never_runs(hooks: Hooks) -> None:
    """Whatever it holds."""
    for spoilt in (b"", b"not JSON", b'{"tool_name": "Bash"}'):
        assert not hooks.allows(spoilt)


def test_a_store_that_is_gone_refuses(hooks: Hooks) -> None:
    """What was used is not known then."""
    assert hooks.allows(event(hooks.agent, 1))
    hooks.hooked.store.unlink()
    assert not hooks.allows(event(hooks.agent, 2))


def test_a_client_that_ignores_a_refusal_is_on_record(hooks: Hooks) -> None:
    """The call ran: a violation says so, beside the refusal."""
    hooks.hooked.policy.write_text("{name: p, on_violation: deny, tool_rules: [{deny: [bash]}]}")
    refused = not hooks.allows(event(hooks.agent, 1))
    hooks.allows(event(hooks.agent, 1, ran=True))
    rows = sqlite3.connect(hooks.hooked.store).execute("SELECT type FROM events ORDER BY position").fetchall()
    types = [name for (name,) in rows]

    assert refused
    assert types.index("tool_call_denied") < types.index("tool_call_started")
    assert types.count("policy_violation") >= 2


def test_two_agents_in_one_folder_share_a_budget(tmp_path: Path) -> None:
    """Their hooks come at once, each for a session of its own."""
    budget = "{name: p, budgets: [{name: both, max_tool_calls: 3, window: day, action: deny}]}"
    agents = [Hooks(agent, tmp_path, budget) for agent in ("codex", "gemini")]
    sent = [(hooks, event(hooks.agent, number, session=hooks.agent)) for number in range(6) for hooks in agents]
    with ThreadPoolExecutor(6) as pool:
        passed = list(pool.map(lambda one: one[0].allows(one[1]), sent))
    end_daemons(agents[0].hooked.store)

    assert sum(passed) == 3
