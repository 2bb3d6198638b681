"""Every example works as its page says: one session is stopped, the other passes."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import anyio
import pytest
from calling import called

from proctor.policies import PolicyViolationError, load_policies, merge_policies, preflight

EXAMPLES = Path(__file__).parents[2] / "examples"
STOPPED_BY = {
    "coding_agent": ["no-push", "no-network", "nothing-outside", "ask-before-publishing"],
    "refunds": ["eligible-for-this-order", "once-per-order", "no-changes-after-refund"],
    "payments": ["known-account"],
    "deployment": [
        *("require backup before deploy", "require run_tests before deploy", "never-untested"),
        *("limit deploy to 1 per run_tests", "require human-approval before rollback", "block drop_database"),
    ],
    "patient_data": ["identify-first", "own-record-only", "no-bulk-export", "log-every-read"],
    "exfiltration": ["no-posting-of-results", "own-people-only", "nothing-out-after-a-secret"],
}


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    """The examples' own `run.py`."""
    spec = importlib.util.spec_from_file_location("examples_run", EXAMPLES / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["examples_run"] = module
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested() -> None:
    """A folder with a policy that the table above lacks is not an example yet."""
    assert sorted(path.parent.name for path in EXAMPLES.glob("*/policy.yaml")) == sorted(STOPPED_BY)


@pytest.mark.parametrize("example", sorted(STOPPED_BY))
def test_the_bad_session_is_stopped_by_the_rules_it_violates(example: str, runner: ModuleType) -> None:
    """By each rule that the page mentions."""
    result = anyio.run(runner.run_example, EXAMPLES / example, "stopped.yaml")
    violations = result.violations if isinstance(result, PolicyViolationError) else result.policy.violations

    assert set(STOPPED_BY[example]) <= {violation.rule for violation in violations}
    assert all(v.enforcement == "prevented" for v in violations if v.action in ("deny", "cancel") and v.tool_call_id)


@pytest.mark.parametrize("example", sorted(STOPPED_BY))
def test_the_good_session_passes(example: str, runner: ModuleType) -> None:
    """Without a single violation."""
    result = anyio.run(runner.run_example, EXAMPLES / example, "passes.yaml")

    assert not isinstance(result, PolicyViolationError)
    assert [violation.message for violation in result.policy.violations] == []
    assert result.status == "completed"


@pytest.mark.parametrize("example", sorted(STOPPED_BY))
def test_the_properties_of_every_session_are_proved(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The properties beside each policy, by `proctor test`."""
    answer = called(capsys, "test", *sorted((EXAMPLES / example).glob("*.test.yaml")))

    assert answer.code == 0, answer.out


@pytest.mark.parametrize("example", sorted(STOPPED_BY))
def test_preflight_rejects_no_example(example: str) -> None:
    """A run under an example's policy starts."""
    preflight(merge_policies(load_policies(EXAMPLES / example / "policy.yaml"))).check()
