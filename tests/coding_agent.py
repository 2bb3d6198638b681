"""`import coding_agent`: the policies of `examples/coding_agent` and the README on a real agent, whichever it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pytest
from page_blocks import ROOT, blocks

from proctor.policies import Policy, PolicyViolationError, load_policies, parse_policies
from proctor.policies.events import ToolApprovalGranted, ToolCallStarted
from proctor.policies.limits import Limit
from proctor.supervisor import RunResult, run_once
from proctor.supervisor.ports.adapter import Adapter
from proctor.supervisor.ports.stored_types import ApprovalAnswer, ApprovalRequest

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "coding_agent" / "policy.yaml"

Act: TypeAlias = tuple[str, str]
"""`bash` and a command, or `write` and a path."""

HARMLESS: Final[list[Act]] = [("write", "inside.txt"), ("bash", "echo fine > made.txt")]
REFUSED: Final[list[tuple[Act, set[str]]]] = [
    (("write", "../outside.txt"), {"nothing-outside"}),
    (
        ("bash", "x=curl; $x http://127.0.0.1:9/; touch ../outside.txt"),
        {"nothing-outside", "no-network", "no-push", "ask-before-publishing"},
    ),
    (("bash", "true; git -C . push > ../outside.txt"), {"no-push"}),
    (("bash", "npm publish || touch ../outside.txt"), {"ask-before-publishing"}),
    (("bash", "ln -s .. up && touch up/outside.txt"), {"nothing-outside"}),
    (("bash", "git push origin main"), {"no-push"}),
    (("bash", "curl -o ../outside.txt http://127.0.0.1:9/"), {"no-network"}),
]
"""What an agent may not do, and the rules that say so: each rule among the first two."""

Prepare: TypeAlias = Callable[..., tuple[Adapter, str]]
"""Makes an adapter and a prompt of acts, one a response.

`used` is the tokens of each (in, out), and `endless` a model that does not come to an end.
"""


def policy(**limits: Any) -> list[Policy]:
    """The example, with other limits where they are given."""
    (loaded,) = load_policies(EXAMPLE)
    changed = msgspec.structs.replace(loaded.limits, **{name: Limit(max=most) for name, most in limits.items()})
    return [msgspec.structs.replace(loaded, limits=changed)]


async def keeps_to_the_rules(prepare: Prepare, cwd: Path, *, each_alone: bool = False) -> None:
    """Everything harmless happens, nothing else does, and each refusal names its rules.

    `each_alone`: in a run of its own, for an agent whose run ends with a refusal; the first two acts, as such
    an agent takes seconds to start.
    """
    refused = REFUSED[:2] if each_alone else REFUSED
    acts = [act for act, _ in refused]
    runs = [[*HARMLESS, act] for act in acts] if each_alone else [[*HARMLESS, *acts]]
    found: list[set[str]] = []
    for run in runs:
        adapter, prompt = prepare(run)
        try:
            violations = (await run_once(adapter, prompt, policies=policy())).policy.violations
        except PolicyViolationError as ended:  # an agent that refuses by itself tells of it as of something that ran
            violations = ended.violations
        broken: dict[str | None, set[str]] = {}
        for violation in violations:
            broken.setdefault(violation.tool_call_id, set()).add(violation.rule)
        found += broken.values()

    assert _made(cwd) == ["inside.txt", "made.txt"]
    assert "outside.txt" not in _made(cwd.parent)
    assert found == [rules for _, rules in refused], found


async def asks_before_publishing(prepare: Prepare) -> RunResult:
    """Somebody who says yes lets it run."""
    hosts: list[str] = []

    async def yes(request: ApprovalRequest) -> ApprovalAnswer:
        hosts.append(str(request.call.input))
        return ApprovalAnswer(granted=True, by="ana")

    adapter, prompt = prepare([("bash", "npm publish --dry-run --offline")])
    result = await run_once(adapter, prompt, policies=policy(), approver=yes)
    kinds = [type(event) for event in result.events]

    assert ["npm publish --dry-run --offline" in call for call in hosts] == [True]
    assert kinds.index(ToolApprovalGranted) < kinds.index(ToolCallStarted)
    return result


async def ends_at(prepare: Prepare, limit: str, *, most: float | None = None, **how: Any) -> RunResult | None:
    """A run that passes this limit is ended by it, and does no more."""
    adapter, prompt = prepare(HARMLESS * 4, **how)
    with pytest.raises(PolicyViolationError) as ended:
        await run_once(adapter, prompt, policies=policy(**({} if most is None else {limit: most})))

    assert [violation.kind for violation in ended.value.violations if violation.action == "cancel"] == [limit]
    return getattr(ended.value, "partial", None)


async def keeps_to_the_readme(prepare: Prepare, cwd: Path) -> None:
    """The two policies of the README: nothing is deleted, a person is asked before a file is written.

    The act that they refuse is the last, as some agents end with a refusal.
    """
    requests: list[ApprovalRequest] = []

    async def yes(request: ApprovalRequest) -> ApprovalAnswer:
        requests.append(request)
        return ApprovalAnswer(granted=True, by="ana")

    written = {block.file: block.text for block in blocks(ROOT / "README.md")}
    policies = [policy for name in ("org.yaml", "team.yaml") for policy in parse_policies(written[name])]
    adapter, prompt = prepare([("bash", "mkdir old"), ("write", "notes.txt"), ("bash", "rm -r old")])
    try:
        violations = (await run_once(adapter, prompt, policies=policies, approver=yes)).policy.violations
    except PolicyViolationError as ended:
        violations = ended.violations

    assert _made(cwd) == ["notes.txt", "old"]
    assert len(requests) == 1
    assert [each.kind for each in violations if each.policy == "org"] == ["deny"], violations


def _made(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
