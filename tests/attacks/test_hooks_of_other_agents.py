"""No call of an interactive agent evades its hook by its environment, its input, or its command."""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hook_processes import BASH, HookProcesses, call_of, decider_for, end_daemons
from stored_rows import stored_rows

from proctor.adapters.hooks.clients import CLIENTS
from proctor.policies.errors import EventError
from proctor.supervisor.errors import StoreError

ALL = ("claude", "codex", "gemini", "opencode", "cursor", "copilot")
THREE = "{name: p, limits: {max_tool_calls: {max: 3, scope: session, action: deny}}}"
CHILD = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:], stdin=0).returncode)"


@pytest.fixture(params=ALL)
def hooks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HookProcesses]:
    """Hooks of each agent under a policy that allows three calls."""
    made = HookProcesses(tmp_path, THREE, agent=request.param)
    yield made
    end_daemons(made.store)


def test_nothing_around_a_hook_lets_a_call_through(hooks: HookProcesses) -> None:
    """An invalid input never runs. The session is that of the process whose hook came first; a process below the
    client can't speak for it. A killed daemon loses no history. A missing store denies, as the usage is unknown.
    """
    agent = hooks.agent
    for spoilt in (b"", b"not JSON", b'{"tool_name": "Bash"}'):
        assert not hooks.allows(spoilt)
    assert hooks.allows(call_of(agent, "c1"))
    assert not hooks.allows(call_of(agent, "c2"), sys.executable, "-c", CHILD)
    assert hooks.allows(call_of(agent, "c3"))
    end_daemons(hooks.store)
    assert [hooks.allows(call_of(agent, f"c{number}")) for number in (4, 5)] == [True, False]
    hooks.store.unlink()
    assert not hooks.allows(call_of(agent, "c6", session="other"))


def test_a_client_that_ignores_a_denial_is_recorded(hooks: HookProcesses) -> None:
    """The call ran, so there is a violation beside the denial."""
    hooks.policy.write_text("{name: p, on_violation: deny, tool_rules: [{deny: [bash]}]}")
    denied = not hooks.allows(call_of(hooks.agent, "c1"))
    hooks.allows(call_of(hooks.agent, "c1", ran=True))
    rows = stored_rows(hooks.store, "SELECT type FROM events ORDER BY position")
    types = [name for (name,) in rows]

    assert denied
    assert types.index("tool_call_denied") < types.index("tool_call_started")
    assert types.count("policy_violation") >= 2


def test_agents_in_one_folder_share_a_budget(tmp_path: Path) -> None:
    """Their hooks run concurrently, each in its own session."""
    budget = "{name: p, budgets: [{name: both, max_tool_calls: 3, window: day, action: deny}]}"
    agents = [HookProcesses(tmp_path, budget, agent=agent) for agent in ALL]
    sent = [
        (hooks, call_of(hooks.agent, f"c{number}", session=hooks.agent)) for number in range(3) for hooks in agents
    ]
    with ThreadPoolExecutor(6) as pool:
        passed = list(pool.map(lambda one: one[0].allows(one[1]), sent))
    end_daemons(agents[0].store)

    assert sum(passed) == 3


def test_a_hundred_concurrent_hooks_are_all_answered_by_one_daemon(tmp_path: Path) -> None:
    """Of all agents, a tenth of the hooks in each session; three calls of each session run."""
    agents = [HookProcesses(tmp_path, THREE, agent=agent) for agent in ALL]
    sent = [(agents[n % 10 % len(ALL)], f"s{n % 10}", n) for n in range(100)]
    agents[0].allows(call_of("claude", "c0", session="first"))
    with ThreadPoolExecutor(100) as pool:
        passed = list(pool.map(lambda one: one[0].allows(call_of(one[0].agent, f"c{one[2]}", session=one[1])), sent))
    decider_for = agents[0].daemons()
    end_daemons(agents[0].store)

    assert sum(passed) == 30
    assert len(decider_for) == 1


PUSHES = """
git push ~ ls && git push ~ ls; git push & ~ git push & ls ~ A=1 git push ~ env -i A=b git push ~ (git push)
{ git push; } ~ echo $(git push) ~ echo `git push` ~ sh -c "git push" ~ git -C .. push ~ \\git push ~ g'i't push
eval git push ~ exec git push ~ nohup git push & ~ ls | xargs git push ~ timeout 5 git push ~ /usr/bin/git push
if true; then git push; fi ~ f() { git push; }; f ~ cat <(git push) ~ ls > >(git push) ~ alias x="git push"; x
trap "git push" EXIT ~ source x ~ find . -exec git push ';' ~ python -c "import os; os.system('git push')"
coproc git push ~ a[$(git push)]=1 ls ~ G=git; $G push ~ git${IFS}push ~ LD_PRELOAD=x ls ~ PATH=.:$PATH ls
BASH_ENV=x ls ~ ls " ~ ls $(( ~ bash ~ python3 ~ ssh host ~ tmux
"""
LINES = [line for row in PUSHES.strip().split("\n") for line in row.split(" ~ ")]
LINES += ["ls\ngit push", "git pu\\\nsh", "cat <<E | sh\ngit push\nE", "ls \0 git push", "git\u00a0push"]
LISTS = """
name: lists
on_violation: deny
tool_rules:
  - deny: [{tool: bash, where: [{path: $.command, runs: git push}]}]
  - deny: [{tool: [write, edit, delete, move], where: [{path: $.path, regex: secret}]}]
  - deny: ["*pay*send*"]
%s
"""
OPEN = "  - {action: warn, allow: ['*', {tool: bash, where: [{path: $.command, runs: [ls, echo, cat, git push]}]}]}"


class EvaluatedCalls:
    """Calls of one agent, evaluated in this process."""

    def __init__(self, agent: str, folder: Path, policy: str) -> None:
        self.agent = agent
        self.number = 0
        self.decider = decider_for(folder, policy, unmatched="ask")

    def raw(self, data: bytes) -> str:
        """The decision on the agent's raw input. `allow` without a reason has no effect, and neither does `left`."""
        try:
            answer, _ = self.decider.answer_hook(data, agent=self.agent)
        except (EventError, StoreError):
            return "deny"
        return answer.verdict if answer.verdict != "allow" or answer.reason else "left"

    def call(self, tool: str, tool_input: Any) -> str:
        """The decision on one call."""
        self.number += 1
        return self.raw(json.dumps(call_of(self.agent, f"c{self.number}", tool, tool_input)).encode())


@pytest.fixture(params=ALL)
def evaluated(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EvaluatedCalls]:
    """Calls of each agent, under a policy that only denies."""
    made = EvaluatedCalls(request.param, tmp_path, LISTS % "")
    yield made
    made.decider.close()


def test_no_spelling_of_a_command_evades_a_deny(evaluated: EvaluatedCalls) -> None:
    """Nor does a program that reads its commands later."""
    found = {line: evaluated.call(BASH[evaluated.agent], {"command": line}) for line in LINES}

    assert {line for line, verdict in found.items() if verdict != "deny"} == set()


WRITES = {
    **{"claude": "Write", "codex": "apply_patch", "gemini": "write_file", "opencode": "write"},
    **{"cursor": "Write", "copilot": "create"},
}
PAYS = {"gemini": "mcp_pay_send", "opencode": "pay_send", "cursor": "MCP:pay_send", "copilot": "pay-send"}


def test_a_known_tool_with_an_unknown_input_does_not_run(evaluated: EvaluatedCalls) -> None:
    """A newer version might rename or reshape inputs. Tools of MCP servers are known by their names."""
    bash, write = BASH[evaluated.agent], WRITES[evaluated.agent]
    shapes: list[Any] = [{"cmd": "git push"}, "git push", ["git push"], 7, True]
    shapes += [{"command": value} for value in (["git", "push"], None, {"x": "git push"})]
    found = [evaluated.call(bash, shape) for shape in shapes]
    files = [evaluated.call(write, shape) for shape in ({"target": "secret"}, {"content": "x", "filename": "secret"})]
    named = evaluated.call(PAYS.get(evaluated.agent, "mcp__pay__send"), {})
    spelt = evaluated.call(bash.upper(), {"command": "git push"})

    assert {*found, *files, named, spelt} == {"deny"}


def test_an_input_that_is_not_one_json_document_does_not_run(evaluated: EvaluatedCalls) -> None:
    """Of a duplicate key the last value counts, as in the agents."""
    data = json.dumps(call_of(evaluated.agent, "c1")).encode()
    deep = data.replace(b'"ls"', b'"ls", "x": ' + b"[" * 5000 + b"]" * 5000)
    spoilt = [b"", b"[]", b"7", b"{", b'{"session_id": 1}', b'{"hook_event_name": "x"}']
    spoilt += [data + data, data + b"x", data + b"\0", b"\xef\xbb\xbf" + data, data.decode().encode("utf-16"), deep]
    spoilt += [data.replace(b'"ls"', with_) for with_ in (b'"\\ud800"', b'"\xff"', b'"l\ns"')]
    spoilt += [data.replace(b'"ls"', b'"ls", "x": ' + number) for number in (b"NaN", b"1e999")]
    twice = data.replace(b'"ls"', b'"ls", "command": "git push"')

    assert {evaluated.raw(one) for one in spoilt} == {"deny"}
    assert evaluated.raw(twice) == "deny"


def test_an_unrecognised_call_is_never_allowed(evaluated: EvaluatedCalls, tmp_path: Path) -> None:
    """Even if an allow list has it: unknown inputs, the agents' own folders, the policy, a question to the user."""
    (tmp_path / "policy.yaml").write_text(LISTS % OPEN)
    bash = BASH[evaluated.agent]
    places = (
        *(".codex/hooks.json", ".cursor/hooks.json", ".gemini/settings.json", ".github/hooks/x.json"),
        "opencode.json",
    )
    calls: list[tuple[str, Any]] = [(bash, {"command": "ls", "brand_new": "x"})]
    calls += [(bash, {"command": "ls hooks/y", "working_directory": ".git"})]
    calls += [(bash, {"command": f"echo {place}"}) for place in (*places, ".claude", tmp_path / "policy.yaml")]
    calls += [(tool, {}) for tool in ("AskUserQuestion", "request_user_input", "ask_user", "question")]
    found = {
        json.dumps(call, default=str): evaluated.call(call[0], json.loads(json.dumps(call[1]))) for call in calls
    }
    fine = evaluated.call(bash, {"command": "ls"})

    assert {call for call, verdict in found.items() if verdict == "allow"} == set()
    assert fine == ("allow" if CLIENTS[evaluated.agent].opens else "left")
