"""Who asks for a person, and why, in words."""

from __future__ import annotations

from collections.abc import Iterator

from proctor.adapters.kit.values.printable import printable
from proctor.policies.stream.calls import rule_name
from proctor.supervisor.ports.adapters import ApprovalRequest


def who_asks(request: ApprovalRequest) -> Iterator[tuple[str, str]]:
    """Each rule that asks, and what it says; the reason its author gave comes behind it."""
    for asking in request.violations:
        tag = f" ({asking.reason})" if asking.reason else ""
        yield printable(f"{rule_name(asking.policy, asking.rule)} ({asking.kind})"), printable(asking.message + tag)
    if not request.violations:
        yield printable(f"{request.policy_name} ({request.violation_kind})"), printable(request.reason or "")
