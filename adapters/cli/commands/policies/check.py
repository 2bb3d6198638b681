"""`check`: read, merge, preflight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...common import json_option
from ...exits import BAD_INPUT, FINE, VIOLATED
from ...output_file import output_option
from ...terminal.output import console, say_hanging, say_json

if TYPE_CHECKING:
    from proctor.policies import Capabilities, Policy, PolicyError
    from proctor.policies.preflight import Findings


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--adapter", metavar="NAME", help="Also check what this adapter can hold.")
@output_option
@json_option
def check(files: tuple[str, ...], adapter: str | None, as_json: bool) -> int:
    """Read policy files, merge them in the order given, and run the checks that come before a run.

    Problems in a file are exit code 2, a policy that could never work is 1.
    """
    from proctor.policies import PolicyError, merge_policies, preflight

    from ...inputs import check_standard_input, read_policies

    check_standard_input(*files)
    capabilities = _capabilities(adapter) if adapter else None
    try:
        policies = read_policies(files)
        merged = merge_policies(policies)
    except PolicyError as error:
        if not as_json:
            raise
        say_json(_refused(error))
        return BAD_INPUT
    findings = preflight(merged, capabilities)
    if as_json:
        say_json({"ok": not findings.refusals, "name": merged.name, "problems": [], "findings": list(findings)})
    else:
        _show(policies, findings)
    return VIOLATED if findings.refusals else FINE


def _capabilities(name: str) -> Capabilities:
    """What an adapter can do, as the matrix has it, and the tools of its client: the same on every machine."""
    from msgspec.structs import replace

    from proctor.adapters.agents.registry import adapter_named
    from proctor.adapters.kit.tool_names import offering, tools_of
    from proctor.adapters.matrix import matrix

    declared = {row.subject.name: row.declared for row in matrix()}
    if name not in declared:
        return adapter_named(name).capabilities
    return replace(declared[name], **offering(tools_of(name), None)) if tools_of(name) else declared[name]


def _refused(error: PolicyError) -> dict[str, Any]:
    return {"ok": False, "name": None, "problems": list(error.problems), "findings": []}


def _show(policies: list[Policy], findings: Findings) -> None:
    from rich.text import Text

    out = console()
    for policy in policies:
        out.print(f"{policy.name}: {_contents(policy)}")
    for finding in findings:
        refuses = finding.severity == "refuse"
        word, style = ("refused", "bold red") if refuses else ("note", "yellow")
        say_hanging(out, Text.assemble((f"{word:<8}", style), str(finding)), 8)
        for step in finding.witness:
            say_hanging(out, Text(f"          {step}", "dim"), 10)
    if findings.refusals:
        out.print("no run can start under this", style="bold red")
    else:
        out.print("ok", style="bold green")


def _contents(policy: Policy) -> str:
    limits = sum(1 for _ in policy.limits.given())
    counts = {
        "limit": limits,
        "tool rule": len(policy.tool_rules),
        "rule": len(policy.rules),
        "net": len(policy.nets),
    }
    parts = [f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items() if count]
    return ", ".join(parts + ["locked"] * policy.locked) or "nothing in it"
