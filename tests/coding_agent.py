"""The policies of `examples/coding_agent` and of the README on any real agent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

import msgspec
import pytest
from page_blocks import ROOT, blocks

from proctor.policies import Event, Limit, Policy, PolicyViolationError, load_policies, parse_policies
from proctor.supervisor import Adapter, ApprovalAnswer, ApprovalRequest, run_once
from proctor.supervisor.testing import FakeApprover

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
"""Actions that an agent must not do, with the rules that deny them: each rule is among the first two."""

PUBLISH: Final = "npm publish --dry-run --offline"

Prepare: TypeAlias = Callable[..., tuple[Adapter, str]]
"""Creates an adapter and a prompt for these actions, one in each response.

`used` is the tokens of each (in, out); with `endless`, the model does not stop.
"""


def policy(**limits: Any) -> list[Policy]:
    """The example policy, with other limits if given."""
    (loaded,) = load_policies(EXAMPLE)
    changed = msgspec.structs.replace(loaded.limits, **{name: Limit(max=most) for name, most in limits.items()})
    return [msgspec.structs.replace(loaded, limits=changed)]


class CodingAgentChecks:
    """The actions that an agent tries. A subclass defines its responses by the fixture `prepare`."""

    each_alone: ClassVar = False
    """For an agent whose run ends with a denial, and which is slow to start: the first two actions, in runs of their
    own.
    """
    limits: ClassVar[dict[str, dict[str, Any]]] = {
        "max_cost_usd": {"used": (1000, 60_000)},
        "max_total_tokens": {"used": (90_000, 10)},
        "max_duration_ms": {"most": 1000, "endless": True},
    }
    """How each limit is exceeded, and the value to which it is lowered before."""

    @pytest.fixture
    def cwd(self, bench: Any) -> Path:
        """The agent's working folder."""
        return Path(bench.cwd)

    @pytest.fixture
    def prepare(self) -> Prepare:
        """Scripts the actions."""
        raise NotImplementedError

    async def test_the_rules_are_enforced_and_an_approved_publish_runs(self, prepare: Prepare, cwd: Path) -> None:
        """Every harmless and every allowed action happens, no other does, and each denial names its rules."""
        refused = REFUSED[:2] if self.each_alone else REFUSED
        acts = [act for act, _ in refused]
        begin = [*HARMLESS, ("bash", PUBLISH)]
        runs = [[*begin, acts[0]], [*HARMLESS, acts[1]]] if self.each_alone else [[*begin, *acts]]
        found: list[set[str]] = []
        events: list[Event] = []

        async def person(request: ApprovalRequest) -> ApprovalAnswer:
            return ApprovalAnswer(granted=PUBLISH in str(request.call.input), by="ana")

        for run in runs:
            adapter, prompt = prepare(run)
            try:
                result = await run_once(adapter, prompt, policies=policy(), approver=person)
                violations = result.policy.violations
            except PolicyViolationError as ended:  # an agent that denies calls itself reports something that ran
                result, violations = ended.partial, ended.violations
            broken: dict[str | None, set[str]] = {}
            for violation in violations:
                broken.setdefault(violation.tool_call_id, set()).add(violation.rule)
            found += broken.values()
            events += result.events
        granted = [event.type for event in events if event.type in ("tool_approval_granted", "tool_call_started")]

        assert _made(cwd) == ["inside.txt", "made.txt"]
        assert "outside.txt" not in _made(cwd.parent)
        assert found == [rules for _, rules in refused], found
        assert granted.count("tool_approval_granted") == 1
        assert "tool_call_started" in granted[granted.index("tool_approval_granted") :]

    @pytest.mark.parametrize("limit", ["max_cost_usd", "max_total_tokens", "max_duration_ms"])
    async def test_a_limit_ends_the_run(self, prepare: Prepare, limit: str) -> Any:
        """Then it does nothing more."""
        if limit == "max_cost_usd":
            pytest.importorskip("genai_prices", reason="needs prices: pip install '.[prices]'")
        how = dict(self.limits[limit])
        most = {limit: how.pop("most")} if "most" in how else {}
        adapter, prompt = prepare(HARMLESS * 4, **how)
        with pytest.raises(PolicyViolationError) as raised:
            await run_once(adapter, prompt, policies=policy(**most))

        assert [violation.kind for violation in raised.value.violations if violation.action == "cancel"] == [limit]
        return raised.value

    async def test_the_policies_of_the_readme_are_enforced(self, prepare: Prepare, cwd: Path) -> None:
        """Nothing is deleted. With a team's policy on top, writing a file needs approval."""
        yes = FakeApprover(True)
        written = {block.file: block.text for block in blocks(ROOT / "README.md")}
        team = "{name: team, nets: [require human-approval before write]}"
        policies = [policy for text in (written["org.yaml"], team) for policy in parse_policies(text)]
        adapter, prompt = prepare([("bash", "mkdir old"), ("write", "notes.txt"), ("bash", "rm -r old")])
        try:
            violations = (await run_once(adapter, prompt, policies=policies, approver=yes)).policy.violations
        except PolicyViolationError as ended:
            violations = ended.violations

        assert _made(cwd) == ["notes.txt", "old"]
        assert len(yes.requests) == 1
        assert [each.kind for each in violations if each.policy == "org"] == ["deny"], violations


def _made(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
