"""The mutated modules, and the tests that may notice."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

AREAS: Final[dict[str, tuple[str, ...]]] = {
    "gate": (*("supervisor/machine/gate.py", "supervisor/machine/pending_approvals.py"),
        *("policies/monitor/call_table.py", "supervisor/machine/event_factory.py"),
        *("supervisor/machine/interface.py", "supervisor/run/callbacks.py", "adapters/kit/gate.py")),
    "machine": ("supervisor/machine/**/*.py",),
    "journal": ("supervisor/run/journal.py", "supervisor/machine/run_state.py", "supervisor/run/services.py"),
    "cancel": (*("supervisor/run/provider_session.py", "supervisor/run/actor.py", "supervisor/run/tasks.py"),
        "supervisor/run/services.py"),
    "limits": (*("policies/monitor/usage.py", "policies/monitor/*_checker.py", "policies/monitor/handlers.py"),
        *("policies/limits.py", "policies/events/run_context.py")),
    "rules": ("policies/rules/*.py",),
    "monitor": ("policies/monitor/*.py",),
    "control": ("supervisor/control/*.py", "supervisor/run/*.py"),
    "stores": ("adapters/stores/**/*.py", "supervisor/store/*.py"),
    "guardian": ("adapters/kit/guardian.py",),
    "kit": ("adapters/kit/*.py",),
    "hook": ("adapters/hooks/daemon_client.py", "adapters/hooks/daemon.py", "adapters/hooks/origin.py"),
    "hooks": ("adapters/hooks/*.py",),
    "fleet": ("adapters/fleet/worker.py", "adapters/fleet/queue.py"),
    "operations": ("adapters/operations/*.py",),
    "web": ("adapters/web/*.py",),
}  # fmt: skip
"""Patterns of paths from the root of the repository, by area. A file in several areas counts in the first."""

OWN_PROCESSES: Final[dict[str, tuple[str, ...]]] = {
    "guardian": ("tests/adapters/kit/test_process_tree.py", "tests/attacks/test_process_trees.py"),
    "hook": (
        *("tests/adapters/hooks/test_deciding.py", "tests/adapters/hooks/test_hostile.py"),
        *("tests/adapters/hooks/test_clients_as_owners.py", "tests/attacks/test_hook_processes.py"),
        *("tests/adapters/hooks/test_forged.py", "tests/attacks/test_a_hook_runs_only_its_own_code.py"),
    ),
    "fleet": ("tests/adapters/fleet/test_worker.py", "tests/adapters/fleet/test_workers_that_die.py"),
}
"""Areas whose modules run in processes that the tests start, and those tests: such a process imports the mutant."""

TESTS: Final = (
    *("tests/policies", "tests/supervisor", "tests/faults"),
    *("tests/adapters/stores", "tests/adapters/kit", "tests/adapters/hooks"),
    *("tests/adapters/agents/loop", "tests/adapters/agents/scripted", "tests/adapters/evaluate"),
    *("tests/attacks/test_inputs_at_a_monitor.py", "tests/attacks/test_bounds_of_rules.py"),
    *("tests/attacks/test_usage_that_lies.py", "tests/attacks/test_store_goes_away.py"),
    *("tests/attacks/test_budgets.py", "tests/attacks/test_answers.py"),
)
"""Tests that run a policy, a machine or a supervised run in their own process."""

_LEFT_OUT: Final = (
    *("test_differential_exhaustive", "test_hostile_sessions", "reading/test_"),
    *("shell/test_parser", "analysis/test_reachability"),
    *("test_conformance_suites", "test_subscriptions"),
)
"""Tests that take long for what they reach, or reach everything."""

QUICK: Final = (*TESTS, *(f"--ignore-glob=*/{name}*" for name in _LEFT_OUT))
"""Arguments of pytest: the tests whose reach is recorded."""


def modules_of(area: str) -> list[str]:
    """The paths of an area's modules, sorted; without those that only import."""
    found = {path for pattern in AREAS[area] for path in ROOT.glob(pattern)}
    return sorted(str(path.relative_to(ROOT)) for path in found if path.name != "__init__.py")


def area_of_modules() -> dict[str, str]:
    """The area of each mutated module."""
    owners: dict[str, str] = {}
    for area in AREAS:
        for module in modules_of(area):
            owners.setdefault(module, area)
    return owners
