"""What is mutated, and which tests should notice: quickest first, as the first that fails ends the run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).parents[2]


class Area(msgspec.Struct, frozen=True):
    """Files that belong together.

    Args:
        files: patterns of paths, from the root of the repository.
        tests: several lists, the next of them for what passed those before: the first takes seconds, the last all.
    """

    files: tuple[str, ...]
    tests: tuple[tuple[str, ...], ...]

    def modules(self) -> list[str]:
        """The paths of its modules, sorted; not those that only import."""
        found = {path for pattern in self.files for path in ROOT.glob(pattern)}
        return sorted(str(path.relative_to(ROOT)) for path in found if path.name != "__init__.py")


def _named(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{folder}/test_{name}.py" for name in names)


_RUNS: Final = (
    _named("supervisor", "machine_properties", "answering", "approvals", "asked_twice"),
    (
        *_named("adapters", "kit_gate"),
        *_named("supervisor", "bounded_memory"),
    ),
    _named("supervisor", "belief", "intake", "results", "resumed_machine", "deadlines", "record_faults", "writer"),
    _named("supervisor", "containment", "faults", "closing", "waiting", "continuation", "preflight_first"),
    ("tests/supervisor",),
)
_JUDGING: Final = (
    _named("policies", "cases", "judging"),
    (
        *_named("policies", "limits", "judgement", "resumed_sessions", "language", "judged_call_references"),
        *_named("policies", "refusals_that_teach", "checks", "human_approval", "reading", "drawing", "words"),
        *_named("policies", "preflight", "preflight_mistakes", "ids"),
        *_named("attacks", "a_call_id_used_again_at_a_monitor", "approvals_at_a_monitor", "inputs_at_a_monitor"),
        *_named("attacks", "bounds_of_rules", "usage_that_lies"),
    ),
    _named("policies", "differential", "differential_limits", "differential_exhaustive"),
    ("tests/policies",),
)
AREAS: Final = {
    "gate": Area(
        (
            *("supervisor/machine/gate.py", "supervisor/machine/held_calls.py", "supervisor/machine/open_calls.py"),
            *("supervisor/machine/events/approvals.py", "supervisor/run/gate_waiters.py", "adapters/kit/gate.py"),
            *("supervisor/machine/events/enforcement.py", "supervisor/machine/boundary/judge.py"),
            "supervisor/run/foreign/callouts.py",
        ),
        (*_RUNS, ("tests/adapters/agents/loop", "tests/adapters/agents/pydantic_ai")),
    ),
    "machine": Area(("supervisor/machine/**/*.py",), _RUNS),
    "journal": Area(
        ("supervisor/run/journal.py", "supervisor/machine/outbox.py", "supervisor/run/services.py"), _RUNS
    ),
    "cancel": Area(
        (
            *("supervisor/run/cancel_ladder.py", "supervisor/run/actor.py", "supervisor/run/latch.py"),
            *("supervisor/run/timers.py", "supervisor/run/foreign/isolation.py", "supervisor/run/provider_reader.py"),
        ),
        _RUNS,
    ),
    "limits": Area(
        ("policies/monitor/usage/*.py", "policies/monitor/clocks.py", "policies/monitor/answers/decisions.py"),
        (*_JUDGING, ("tests/supervisor/test_deadlines.py",)),
    ),
    "rules": Area(("policies/rules/**/*.py",), _JUDGING),
}
"""By name. A file that is in several counts in the first."""


def area_of_modules() -> dict[str, str]:
    """The area of each module that is mutated."""
    owners: dict[str, str] = {}
    for name, area in AREAS.items():
        for module in area.modules():
            owners.setdefault(module, name)
    return owners
