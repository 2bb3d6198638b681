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
    from proctor.policies.preflight import Findings, PreflightFinding
    from proctor.supervisor.ports.adapters import LaunchOptions


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--adapter", metavar="NAME", help="Also check what this adapter can hold, and list its launch options.")
@click.option("--strict", is_flag=True, help="Exit with 1 on a warning too.")
@output_option
@json_option
def check(files: tuple[str, ...], adapter: str | None, strict: bool, as_json: bool) -> int:
    """Read policy files, merge them in the order given, and run the checks that come before a run.

    Problems in a file are exit code 2; a policy that could never work is 1, and so is one that denies a tool which
    the agent of `--adapter` does not have.
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
    if capabilities is None:
        findings.extend(_unknown_to_every_agent(merged))
    levels = _levels(merged, findings, named_adapter=capabilities is not None)
    bad = {"refused", "error"} | ({"warning"} if strict else set())
    fine = bad.isdisjoint(levels)
    launch = _launch_options(adapter, merged) if adapter else None
    if as_json:
        options = {} if launch is None else {"launch_options": launch}
        say_json({"ok": fine, "name": merged.name, "problems": [], "findings": list(findings), **options})
    else:
        _show(policies, findings, levels, fine, launch)
    return FINE if fine else VIOLATED


EFFECTS = ("limit_effect", "budget_effect", "unknown_model", "starts_full", "none_in_context", "links_not_followed")
"""Findings that say how something works; all others are warnings."""


def _levels(merged: Policy, findings: Findings, *, named_adapter: bool) -> list[str]:
    """The word for each finding: `refused`, `error`, `warning` or `note`."""
    from proctor.policies.preflight.checks.unknown_names import denies
    from proctor.policies.stack.clauses import clauses_of

    denying = {(clause.policy, clause.id) for clause in clauses_of(merged) if denies(clause)}
    levels = []
    for each in findings:
        if each.severity == "refuse":
            levels.append("refused")
        elif each.code == "unknown_tool" and named_adapter and (each.policy, each.rule) in denying:
            levels.append("error")
        else:
            levels.append("note" if each.code in EFFECTS else "warning")
    return levels


def _unknown_to_every_agent(merged: Policy) -> list[PreflightFinding]:
    """Names that are nearly those of a tool of a known agent, and no agent's."""
    from proctor.adapters.kit.tool_names import CLIENTS
    from proctor.policies import Capabilities
    from proctor.policies.preflight.checks.unknown_names import unknown_names
    from proctor.policies.stack.clauses import clauses_of

    table = tuple(tool for tools in CLIENTS.values() for tool in tools)
    everything = Capabilities(tools=table, other_tools=True)
    found = unknown_names(merged, clauses_of(merged), everything)
    return [each for each in found if each.code == "unknown_tool" and each.severity == "report"]


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


def _launch_options(name: str, merged: Policy) -> LaunchOptions | None:
    """What the policy becomes at launch; None where the adapter cannot be made here without options of its own."""
    from proctor.adapters.agents.registry import adapter_named
    from proctor.supervisor import ProviderUnavailableError, UsageError
    from proctor.supervisor.run.foreign.agents import launch_options

    try:
        return launch_options(adapter_named(name), merged)
    except (UsageError, ProviderUnavailableError):
        return None


def _refused(error: PolicyError) -> dict[str, Any]:
    return {"ok": False, "name": None, "problems": list(error.problems), "findings": []}


def _show(
    policies: list[Policy], findings: Findings, levels: list[str], fine: bool, launch: LaunchOptions | None
) -> None:
    import msgspec
    from rich.text import Text

    out = console()
    for policy in policies:
        out.print(f"{policy.name}: {_contents(policy)}")
    for finding, word in zip(findings, levels, strict=True):
        style = "bold red" if word in ("refused", "error") else "yellow"
        say_hanging(out, Text.assemble((f"{word:<8}", style), str(finding)), 8)
        for step in finding.witness:
            say_hanging(out, Text(f"          {step}", "dim"), 10)
    for name, value in (launch.options if launch else {}).items():
        say_hanging(out, Text(f"option  {name}: {msgspec.json.encode(value, enc_hook=str).decode()}"), 8)
    if findings.refusals:
        out.print("no run can start under this", style="bold red")
    elif fine:
        out.print("ok", style="bold green")
    else:
        out.print("not ok", style="bold red")


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
