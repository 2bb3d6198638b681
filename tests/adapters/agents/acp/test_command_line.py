"""ACP agents on the command line, and the probe, which finds out what an agent asks about."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proctor.adapters.agents.acp.adapter import AcpAdapter
from proctor.adapters.agents.acp.probe import BY_COMMAND, BY_EDIT, ProbeReport, probe
from proctor.adapters.cli.app import app
from proctor.supervisor.errors import ProviderError, UsageError

pytestmark = pytest.mark.anyio

AGENT = [sys.executable, str(Path(__file__).with_name("scripted_agent.py"))]
POLICY = "{name: p, tool_rules: [{deny: [edit], action: deny}]}"
CALLS: list[list[Any]] = [
    ["run_shell_command", {"command": f"touch {BY_COMMAND}", "description": "x"}],
    ["write_file", {"file_path": BY_EDIT, "content": "probe"}],
    ["read_file", {"file_path": BY_EDIT}],
]
"""The calls of a model that is told to write two files and to read one."""


def test_an_agent_runs_by_its_command(tmp_path: Path, touch: Any) -> None:
    """The policy is enforced on the calls that it asks about."""
    work, policy = tmp_path / "work", tmp_path / "p.yaml"
    work.mkdir()
    policy.write_text(POLICY)
    script = json.dumps({"prompts": [[touch("a"), touch("b", kind="edit"), {"say": "end"}]]})
    options = ["--policy", str(policy), "--cwd", str(work), "--store", str(tmp_path / "runs.db"), "--json"]
    result = CliRunner().invoke(app, ["run", "--adapter", "acp", *options, "go", "--", *AGENT, script])

    assert result.exit_code == 0, result.output
    assert [path.name for path in work.iterdir()] == ["a"]
    assert '"tool_call_denied"' in result.output


@pytest.mark.parametrize(("arguments", "message"), [
    (["--adapter", "acp", "go"], "the adapter `acp` needs one command that starts its agent: `... -- opencode acp`"),
    (["--adapter", "acp", "--set", 'command=["a"]', "go", "--", "a"], "needs one command that starts its agent"),
    (["--adapter", "shell", "make", "test"], "`test` is unexpected: the adapter `shell` takes no command"),
])  # fmt: skip
def test_a_missing_or_superfluous_command_is_named(arguments: list[str], message: str) -> None:
    """Before anything is started."""
    result = CliRunner().invoke(app, ["run", "--policy", "p.yaml", *arguments])

    assert (result.exit_code, message in " ".join(result.output.split())) == (2, True), result.output


@pytest.mark.slow
def test_a_probe_of_a_real_agent_reports_what_it_asked_about(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands and writes, not reads; it obeys denials."""
    command, env = bench.command("gemini"), bench.environment("gemini")
    for variable in set(os.environ) - {"PYTEST_CURRENT_TEST"}:
        monkeypatch.delenv(variable)
    for variable, value in env.items():
        monkeypatch.setenv(variable, value)
    bench.otherwise(*({"calls": [call]} for call in CALLS))
    result = CliRunner().invoke(app, ["adapters", "probe", "acp", "--json", "--", *command])

    probed = json.loads(result.stdout)
    assert (probed["gate"], probed["asked"], probed["unasked"]) == ("some", ["execute", "edit"], ["read"])
    assert (probed["refusal_held"], probed["early"], probed["went_on_after_refusal"]) == (True, [], True)


COMMAND = {"call": "c1", "title": "touch", "run": f"touch {BY_COMMAND}"}
EDIT = {"call": "c2", "kind": "edit", "run": f"touch {BY_EDIT}"}
READ = {"call": "c3", "kind": "read", "asks": False}


@pytest.fixture
def made_by(scripts: Any) -> Callable[..., Callable[[Path], AcpAdapter]]:
    """Creates adapters for an agent with this script."""

    def making(*steps: dict[str, Any], **script: Any) -> Callable[[Path], AcpAdapter]:
        return lambda folder: scripts.adapter(*steps, adapter={"cwd": folder}, **script)

    return making


async def probed(make: Callable[[Path], AcpAdapter], tmp_path: Path) -> ProbeReport:
    """The report of a probe."""
    folder = tmp_path / "probed"
    folder.mkdir()
    return await probe(make, folder)


EARLY = {"call": "c0", "kind": "edit", "run": f"touch {BY_COMMAND}", "asks": False}
PROBED: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "all but reading": ([COMMAND, EDIT, READ], {**{"gate": "some", "asked": ("execute", "edit"), "unasked": ("read",),
        "early": (), "completed": True}, **{"refusal_held": True, "went_on_after_refusal": True}}),
    "everything, as far as four calls can show": ([COMMAND, {**READ, "asks": True}], {"gate": "all"}),
    "a refusal ends the turn": ([COMMAND, {"stop": "end_turn"}], {"went_on_after_refusal": False}),
    "nothing": ([{**COMMAND, "asks": False}], {"gate": "none", "asked": (), "unasked": ("execute",),
        "refusal_held": None}),
    "before or against the answer": ([EARLY, COMMAND],
        {"gate": "none", "early": (BY_COMMAND,), "refusal_held": False}),
}  # fmt: skip


@pytest.mark.parametrize("asks", PROBED)
async def test_a_probe_reports_what_the_agent_asks_about(made_by: Any, tmp_path: Path, asks: str) -> None:
    """It also reports if the agent obeys denials: one that acts anyway asks only as a courtesy."""
    steps, reported = PROBED[asks]
    report = await probed(made_by(*steps, refusal_ends=asks.startswith("everything")), tmp_path)

    assert {name: getattr(report, name) for name in reported} == reported


async def test_a_probe_needs_an_empty_folder_and_a_working_agent(made_by: Any, tmp_path: Path) -> None:
    """Existing files are not touched."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(UsageError, match="is not an empty folder"):
        await probe(made_by(COMMAND), tmp_path / "full")
    with pytest.raises(ProviderError, match="the probed agent failed"):
        await probed(made_by({"stop": "refusal"}), tmp_path)
