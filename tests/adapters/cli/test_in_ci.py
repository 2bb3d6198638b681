"""The GitHub Action and the pre-commit hooks: the commands in their files, run literally."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.forked_programs import warm_proctor

ROOT = Path(__file__).parents[3]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
"""How GitHub runs a bash step."""
SESSION = {"id": "s", "events": [{"type": "tool_call", "id": "1", "name": "delete", "input": {}}]}
Done = subprocess.CompletedProcess[str]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A policy with a passing test, a weaker policy, and a session that the policy denies."""
    (tmp_path / "proctor.yaml").write_text("name: team\non_violation: deny\ntool_rules: [{deny: [delete]}]\n")
    (tmp_path / "loose.yaml").write_text("name: loose\non_violation: deny\ntool_rules: [{deny: [rename]}]\n")
    (tmp_path / "proctor.test.yaml").write_text(
        "policies: [proctor.yaml]\ntests:\n  - {name: no delete, calls: [{tool: delete, expect: deny}]}\n"
    )
    (tmp_path / "sessions.jsonl").write_text(json.dumps(SESSION) + "\n")
    return tmp_path


def run(command: list[str], folder: Path, **env: str) -> Done:
    path = f"{Path(warm_proctor()).parent}:{os.environ['PATH']}"
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path, **env}, capture_output=True, text=True
    )


def act(name: str, folder: Path, **given: str) -> Done | None:
    """A step of the action with these inputs, run as in a workflow; None if its `if` skips it."""
    inputs = {key: str(value.get("default", "")) for key, value in ACTION["inputs"].items()}
    inputs |= {key.replace("_", "-"): value for key, value in given.items()}
    step: dict[str, Any] = STEPS[name]
    if "if" in step:
        asks = re.fullmatch(r"inputs\.([\w-]+) != ''", step["if"])
        assert asks
        if not inputs[asks[1]]:
            return None
    env = {
        key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], value)
        for key, value in step["env"].items()
    }
    return run([*BASH, step["run"]], folder, **env)


def code(done: Done | None) -> int | None:
    """The exit code of a step, None if it was skipped."""
    return done.returncode if done else None


def test_the_steps_pass_on_a_policy_that_keeps_its_promises(repository: Path) -> None:
    """Check, test and prove, with globs and several lines. Steps without input are skipped."""
    given = {"policies": "proctor.yaml\n", "tests": "*.test.yaml", "base": "proctor.yaml"}
    alone = {name: code(act(name, repository, policies="proctor.yaml")) for name in STEPS if name != "install"}

    assert [code(act(name, repository, **given)) for name in ("check", "test", "prove")] == [0, 0, 0]
    assert alone == {"check": 0, "test": None, "prove": None, "eval": None}


def test_each_step_fails_if_its_command_does(repository: Path) -> None:
    """An invalid file, a failing test, a weaker policy, a session with a violation."""
    (repository / "bad.yaml").write_text("name: x\ntool_rules:\n  - denny: [a]\n")
    (repository / "wrong.test.yaml").write_text(
        "policies: [proctor.yaml]\ntests:\n  - {name: t, calls: [{tool: delete}]}\n"
    )

    assert code(act("check", repository, policies="bad.yaml")) == 2
    assert code(act("check", repository, policies="proctor.yaml", adapter="nobody")) == 2
    assert code(act("test", repository, tests="proctor.test.yaml wrong.test.yaml")) == 1
    assert code(act("prove", repository, policies="loose.yaml", base="proctor.yaml")) == 1
    assert code(act("eval", repository, policies="proctor.yaml", sessions="sessions.jsonl")) == 1


def test_steps_write_their_reports(repository: Path) -> None:
    """SARIF and JUnit, each in a file of its own, whether the step passes or fails. `fail-on: never` passes."""
    for name, given, ends, found in (
        ("test", {"tests": "proctor.test.yaml"}, 0, 0),
        ("prove", {"policies": "loose.yaml", "base": "proctor.yaml"}, 1, 1),
        ("eval", {"policies": "proctor.yaml loose.yaml", "sessions": "sessions.jsonl", "fail_on": "never"}, 0, 1),
    ):
        prefix = "" if name == "eval" else f"{name}_"
        reports = {f"{prefix}sarif": f"{name}.sarif", f"{prefix}junit": f"{name}.xml"}

        assert code(act(name, repository, **given, **reports)) == ends, name
        sarif = json.loads((repository / f"{name}.sarif").read_text())
        assert (sarif["version"], len(sarif["runs"][0]["results"])) == ("2.1.0", found), name
        assert "<testcase" in (repository / f"{name}.xml").read_text()


def test_hostile_inputs_run_nothing(repository: Path) -> None:
    """Text that would be a command or an option in a script is the name of a missing file here."""
    assert not [step for step in STEPS.values() if "${{" in step["run"]]
    hostile = ("x; touch taken", "$(touch taken)", "`touch taken`", "--output=taken", "x\ntouch taken")
    for text in hostile:
        assert code(act("check", repository, policies=text)) == 2
    text = "; ".join(hostile)
    assert code(act("test", repository, tests=text)) == 2
    assert code(act("prove", repository, policies="proctor.yaml", base=text)) == 2
    assert code(act("eval", repository, policies="proctor.yaml", sessions=text)) == 2
    assert code(act("check", repository, policies="proctor.yaml", adapter=text)) == 2

    assert not (repository / "taken").exists()


def test_an_error_becomes_an_annotation(repository: Path) -> None:
    """The problem matcher finds file, line, column and message in the output of `check`."""
    (repository / "bad.yaml").write_text("name: x\ntool_rules:\n  - denny: [a]\n")
    [matcher] = json.loads((ROOT / ".github" / "proctor-matcher.json").read_text())["problemMatcher"]
    [pattern] = matcher["pattern"]
    done = act("check", repository, policies="bad.yaml")

    assert done
    found = [match for line in done.stderr.splitlines() if (match := re.search(pattern["regexp"], line))]
    fields = [found[0][pattern[field]] for field in ("file", "line", "column", "severity")]
    assert fields == ["bad.yaml", "3", "5", "error"]
    assert "proctor-matcher.json" in STEPS["install"]["run"]


def test_the_hooks_run_and_fail_as_their_commands_do(repository: Path) -> None:
    """Each entry with its arguments, on a valid policy and on one that became invalid."""
    commands = [[*shlex.split(hook["entry"]), *hook["args"]] for hook in HOOKS]

    assert [hook["id"] for hook in HOOKS] == ["proctor-check", "proctor-test"]
    assert [run(command, repository).returncode for command in commands] == [0, 0]

    (repository / "proctor.yaml").write_text("name: team\non_violation: deny\ntool_rules: [{deny: [rename]}]\n")

    assert [run(command, repository).returncode for command in commands] == [0, 1]

    (repository / "proctor.yaml").write_text("name: team\ntool_rules: [{denny: [rename]}]\n")

    assert [run(command, repository).returncode for command in commands] == [2, 2]
