"""Checks and settings before the client starts, and clients that start concurrently in a new home."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters import CodexAdapter
from proctor.adapters.agents.codex import connection
from proctor.adapters.agents.codex.connection import find_client, turn_to_start
from proctor.adapters.matrix import settled
from proctor.policies import Allow, Capabilities, Condition, Deny, Limits, Policy, ToolWhere
from proctor.supervisor.errors import ProviderUnavailableError, UsageError
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio


@pytest.mark.codex
async def test_a_working_client_is_accepted_and_one_that_is_not_logged_in_is_an_error(
    bench: Any, tmp_path: Path
) -> None:
    """The check leaves nothing behind. The error says what to do, also without `codex` on PATH."""
    await bench.adapter().prepare()
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "CODEX_HOME": str(tmp_path)}
    with pytest.raises(ProviderUnavailableError, match=f"codex is not logged in; run `{find_client()} login`"):
        await CodexAdapter(cwd=tmp_path, env=env).prepare()

    assert bench.api.requests == []


async def test_without_a_working_client_the_error_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executable does not exist or exits at once; neither the package nor an executable on PATH is there."""
    monkeypatch.setitem(sys.modules, "codex_cli_bin", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    cases: list[tuple[Any, str]] = [
        (tmp_path / "codex", r"pip install '\.\[codex\]'"),
        ("/bin/false", "codex does not work: codex ended before it answered"),
        (None, r"codex is not installed; in your clone of proctor, run pip install '\.\[codex\]'"),
    ]
    for program, says in cases:
        with pytest.raises(ProviderUnavailableError, match=says):
            await CodexAdapter(codex_path=program, cwd=tmp_path, env={"HOME": str(tmp_path)}).prepare()


def test_a_sandbox_that_the_client_lacks_or_does_not_enforce_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the client ran stopped commands again outside, `read-only` would be the weakest of all."""
    with pytest.raises(UsageError, match="sandbox `none` is not one of read-only, workspace-write, danger"):
        CodexAdapter(sandbox="none")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="sandbox `read-only` is not held on Windows, nor with `allow_escalation`"):
        CodexAdapter(sandbox="read-only", allow_escalation=True)
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(UsageError, match="`read-only` is not held"):
        CodexAdapter(sandbox="read-only")


@pytest.mark.parametrize("value", [None, float("nan"), {"a": object()}])
def test_configuration_that_the_client_does_not_enforce_is_rejected(value: object) -> None:
    """The message names the key."""
    with pytest.raises(UsageError, match="config `x"):
        CodexAdapter(config={"x": value})


def test_it_gates_all_unless_settings_bypass_the_gate(tmp_path: Path) -> None:
    """Each such setting is named."""
    env = {"CODEX_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    plain = CodexAdapter(cwd=tmp_path, env=env, model="m")
    loose = CodexAdapter(
        cwd=tmp_path, env=env, features={"multi_agent": True}, config={"web_search": "live", "mcp_servers.s": {}}
    )

    assert settled(plain.capabilities) == Capabilities(
        gate="all", usage="per_turn", cancel_kills_children=True, resume=True, compiles=("deny",)
    )
    assert plain.capabilities.model == "m"
    assert loose.capabilities.gate == "some"
    assert loose.ungated == [
        "agents are started without asking",
        "the provider searches the web without asking",
        "resources of MCP servers are read without asking",
    ]


@pytest.mark.parametrize(("text", "gate"), [
    ('prefix_rule(pattern=["a"], decision="forbidden")\nprefix_rule(pattern=["b"], decision="prompt")', "all"),
    ('prefix_rule(pattern=["git"])', "some"),
    ('prefix_rule (pattern=["git"])  # decision="prompt"', "some"),
    ("", "some"),
])  # fmt: skip
def test_a_rule_allows_unless_it_says_otherwise(tmp_path: Path, text: str, gate: str) -> None:
    """Rules of a trusted project count like the user's; those of another are not read. An unreadable file (a folder,
    or no text) may allow.
    """
    rules = tmp_path / ".codex" / "rules"
    rules.mkdir(parents=True)
    (rules / "project.rules").write_text(text)
    (tmp_path / "sub").mkdir()
    env = {"HOME": str(tmp_path / "home")}
    if not text:
        (rules / "project.rules").unlink()
        (rules / "project.rules").mkdir()
    trusting = CodexAdapter(cwd=tmp_path / "sub", env=env, trust_workspace=True)
    untrusting = CodexAdapter(cwd=tmp_path / "sub", env=env)

    assert any("lets commands run" in why for why in trusting.ungated) == (gate == "some")
    assert (trusting.capabilities.gate, untrusting.capabilities.gate) == ("some", "all")


def test_a_policy_removes_the_tools_that_the_client_can_start_without() -> None:
    """A rule without a setting is listed. A rule that only warns removes nothing."""
    policy = Policy(
        name="p",
        limits=Limits(max_total_tokens=10),
        tool_rules=(
            Deny(("SHELL", "apply_patch", "mcp__a__*", "mcp__b__drop", "mcp__*__drop")),
            Deny(("view_image",), action="warn"),
            Deny((ToolWhere(tool="web_search", where=(Condition(path="$.query", contains="x"),)),)),
        ),
    )
    compiled = CodexAdapter().compile(policy)

    assert compiled.options == {
        "features": {"shell_tool": False}, "config": {}, "denied": ["mcp__a__*", "mcp__b__drop"],
    }  # fmt: skip
    assert compiled.expressed == ("deny SHELL", "deny mcp__a__*", "deny mcp__b__drop")
    assert compiled.unexpressed == (
        *("max_total_tokens", "deny apply_patch", "deny mcp__*__drop", "deny view_image", "deny web_search where"),
    )


def test_an_allow_list_removes_the_tools_it_does_not_name() -> None:
    """Aliases of the policy stand for their tools."""
    policy = Policy(name="p", tool_rules=(Allow(("run", "apply_patch")),), aliases={"run": ("shell",)})
    compiled = CodexAdapter().compile(policy)

    assert compiled.options["features"] == {"multi_agent": False, "multi_agent_v2": False, "view_image": False}
    assert compiled.options["config"] == {"web_search": "disabled"}
    assert compiled.unexpressed == ("allow run", "allow apply_patch")


PROCESSES, HOMES = 2, 4
PREPARING = """
import sys
import anyio
from proctor.adapters import CodexAdapter
print("ready", flush=True)
sys.stdin.readline()
here = {"name": "here", "base_url": "http://127.0.0.1:9/v1", "wire_api": "responses", "requires_openai_auth": False}
config = {"model_provider": "here", "model_providers.here": here}
for home in sys.argv[1:]:
    env = {"PATH": "/usr/bin:/bin", "HOME": home, "CODEX_HOME": home}
    try:
        anyio.run(CodexAdapter(cwd=home, env=env, config=config).prepare)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", getattr(error, "details", ""), flush=True)
"""


@pytest.mark.codex
def test_processes_that_start_clients_concurrently_all_succeed(tmp_path: Path) -> None:
    """If they did not wait for each other, all clients but one would exit with an error of their database."""
    homes = [tmp_path / f"home-{n}" for n in range(HOMES)]
    for home in homes:
        home.mkdir()
    command = [sys.executable, "-c", PREPARING, *map(str, homes)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()

    assert [process.communicate(timeout=PATIENCE_S)[0] for process in started] == [""] * PROCESSES


@pytest.mark.codex
async def test_runs_that_start_concurrently_in_a_new_home_all_complete(bench: Any) -> None:
    """In tasks of one event loop."""
    shutil.rmtree(bench.home)
    bench.home.mkdir()
    ended: list[str] = []

    async def one() -> None:
        events = await bench.run()
        ended.append(events[-1].type)

    async with anyio.create_task_group() as runs:
        for _ in range(4):
            runs.start_soon(one)

    assert ended == ["run_completed"] * 4


@pytest.fixture
def start_waits(monkeypatch: pytest.MonkeyPatch) -> anyio.Event:
    """Set when a start has found that another one is first."""
    found = anyio.Event()
    lock = connection._lock

    def observed_lock(folder: int) -> bool:
        locked = lock(folder)
        if not locked:
            found.set()
        return locked

    monkeypatch.setattr(connection, "_lock", observed_lock)
    return found


async def cancelled_start(env: dict[str, str], start_waits: anyio.Event) -> None:
    """A start that is cancelled once it had to wait."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn_to_start, env)
        await start_waits.wait()
        tasks.cancel_scope.cancel()


async def test_a_start_waits_until_the_one_before_has_finished(tmp_path: Path, start_waits: anyio.Event) -> None:
    """Starts in other homes do not wait, and a cancelled one leaves its turn to the next."""
    (tmp_path / "other").mkdir()
    env = {"CODEX_HOME": str(tmp_path)}
    first = await turn_to_start(env)
    (await turn_to_start({"CODEX_HOME": str(tmp_path / "other")})).release()
    assert not start_waits.is_set()
    await cancelled_start(env, start_waits)
    first.release()
    first.release()
    (await turn_to_start(env)).release()


async def test_starts_wait_for_those_with_the_same_database_folder(tmp_path: Path, start_waits: anyio.Event) -> None:
    """Two homes may share one."""
    shared = {"CODEX_SQLITE_HOME": str(tmp_path / "shared")}
    first = await turn_to_start({"HOME": str(tmp_path / "a"), **shared})
    await cancelled_start({"HOME": str(tmp_path / "b"), **shared}, start_waits)
    first.release()


@pytest.mark.codex
async def test_a_missing_home_is_not_created(tmp_path: Path) -> None:
    """The client reports it. The user's default home is created as the client would."""
    named = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CODEX_HOME": str(tmp_path / "missing")}
    with pytest.raises(ProviderUnavailableError) as caught:
        await CodexAdapter(cwd=tmp_path, env=named).prepare()
    (await turn_to_start({"HOME": str(tmp_path)})).release()

    assert "missing" in str(caught.value.details)
    assert os.listdir(tmp_path) == [".codex"]
