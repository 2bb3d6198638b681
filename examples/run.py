"""Run one example: `python examples/run.py refunds` shows what its policy stops and what it lets pass."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio

from proctor.adapters import ScriptedAdapter
from proctor.policies import PolicyViolationError, load_policies
from proctor.supervisor import ApprovalAnswer, ApprovalRequest, RunResult, run_once

HERE = Path(__file__).parent


def tools_of(folder: Path) -> Mapping[str, Callable[..., Any]]:
    """The functions an example's agent may call."""
    spec = importlib.util.spec_from_file_location(f"example_{folder.name}", folder / "tools.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tools: Mapping[str, Callable[..., Any]] = module.TOOLS
    return tools


async def decline(request: ApprovalRequest) -> ApprovalAnswer:
    """Stands for a person who is asked and says no."""
    return ApprovalAnswer(granted=False, by="the example")


async def run_example(folder: Path, script: str) -> RunResult | PolicyViolationError:
    """Run a script of an example under its policy."""
    adapter = ScriptedAdapter(folder / script, tools=dict(tools_of(folder)))
    policies = load_policies(folder / "policy.yaml")
    try:
        return await run_once(adapter, "go on", policies=policies, approver=decline)
    except PolicyViolationError as error:
        return error


def main() -> None:
    """Show both sessions of the example named on the command line."""
    if len(sys.argv) != 2 or not (HERE / sys.argv[1] / "policy.yaml").is_file():
        names = ", ".join(sorted(path.parent.name for path in HERE.glob("*/policy.yaml")))
        print(f"usage: python examples/run.py EXAMPLE, one of {names}", file=sys.stderr)
        sys.exit(2)
    for script in ("stopped.yaml", "passes.yaml"):
        result = anyio.run(run_example, HERE / sys.argv[1], script)
        violations = result.violations if isinstance(result, PolicyViolationError) else result.policy.violations
        print(f"{script}:")
        for violation in violations:
            print(f"  {violation.action} {violation.tool_name or 'the run'}: {violation.rule}, {violation.message}")
        print("  nothing to object to" if not violations else "")


if __name__ == "__main__":
    main()
