"""`check`, `graph`, `migrate`, `schema` and `test`: commands on files of policies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.structs import replace

from proctor.policies import (
    Capabilities,
    Monitor,
    Policy,
    PolicyError,
    RunContext,
    compile_policy,
    merge_policies,
    preflight,
)
from proctor.policies.analysis import Findings
from proctor.policies.diagram import draw, draw_mermaid
from proctor.policies.errors import read_each
from proctor.policies.reading.load import policies_among
from proctor.policies.reading.migrate import migrate as migrated
from proctor.policies.reading.schema import json_schema
from proctor.policies.stack.clauses import clauses_of
from proctor.policies.values.amounts import counted

from ...kit.display_text import encoded, escape_control, escape_control_lines
from ..exits import BAD_INPUT, FINE, VIOLATED
from ..options import (
    check_standard_input,
    context_option,
    format_option,
    json_option,
    read_one_session,
    read_policies,
    read_text,
    write_document,
)
from ..output import (
    ReportFiles,
    console,
    echo,
    echo_hanging,
    echo_json,
    note,
    output_option,
    output_parameter,
    replaced,
    report_options,
    written_to,
)

if TYPE_CHECKING:
    from rich.text import Text

    from proctor.supervisor.ports.adapter import LaunchOptions

    from ...evaluate.policy_tests import JudgedTest, PolicyTests
    from ...evaluate.reports import Case


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--adapter",
    metavar="NAME",
    help="Also check what this adapter can enforce, and list the settings that the policy becomes.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 on warnings, too.")
@output_option
@json_option
def check(files: tuple[str, ...], adapter: str | None, strict: bool, as_json: bool) -> int:
    """Read policy files, merge them left to right, and run preflight.

    Exit codes: 1 the policy can never work, or denies a tool that the agent of --adapter lacks; 2 a file has errors.

    \b
    proctor check org.yaml team.yaml
    proctor check org.yaml --adapter claude --strict
    """  # noqa: D301 - click's mark for lines that are kept as they are
    from proctor.policies.analysis.redundancy_checks import contradiction_findings
    from proctor.policies.analysis.void_checks import void_findings

    from ...kit.client_tools import misspelt_tools

    check_standard_input(*files)
    capabilities = _capabilities(adapter) if adapter else None
    try:
        policies = read_policies(files)
        merged = merge_policies(policies)
    except PolicyError as error:
        if not as_json:
            raise
        echo_json(_refused(error))
        return BAD_INPUT
    findings = preflight(merged, capabilities)
    if capabilities is None:
        findings.extend(misspelt_tools(merged))
    findings.extend([*contradiction_findings(merged), *void_findings(merged)])
    levels = _levels(merged, findings, named_adapter=capabilities is not None)
    bad = {"error"} | ({"warning"} if strict else set())
    fine = bad.isdisjoint(levels)
    launch = _launch_options(adapter, merged) if adapter else None
    if as_json:
        options = {} if launch is None else {"launch_options": launch}
        echo_json({"ok": fine, "name": merged.name, "problems": [], "findings": list(findings), **options})
    else:
        _show(policies, findings, levels, fine, launch)
    return FINE if fine else VIOLATED


EFFECTS = (
    *("limit_effect", "budget_effect", "unknown_model", "starts_full", "none_in_context", "links_not_followed"),
    "taken_literally",
)
"""Findings that say how something works; all others are warnings."""


def _levels(merged: Policy, findings: Findings, *, named_adapter: bool) -> list[str]:
    from proctor.policies.analysis.name_checks import denies

    denying = {(clause.policy, clause.id) for clause in clauses_of(merged) if denies(clause)}
    levels = []
    for each in findings:
        missing = each.code == "unknown_tool" and named_adapter and (each.policy, each.rule) in denying
        if each.severity == "refuse" or missing:
            levels.append("error")
        else:
            levels.append("note" if each.code in EFFECTS else "warning")
    return levels


def _capabilities(name: str) -> Capabilities:
    """An adapter's capabilities, as the matrix has them, and the tools of its client: the same on every machine."""
    from proctor.supervisor.run.provider_session import capabilities_of

    from ...agents.catalog import adapter_named
    from ...kit.client_tools import tool_capabilities, tools_of
    from ...matrix import matrix

    declared = {row.spec.name: row.declared for row in matrix()}
    if name not in declared:
        return capabilities_of(adapter_named(name))
    return replace(declared[name], **tool_capabilities(tools_of(name), None)) if tools_of(name) else declared[name]


def _launch_options(name: str, merged: Policy) -> LaunchOptions | None:
    """The launch options that the policy becomes; None for an adapter that needs options of its own."""
    from proctor.supervisor import ProviderUnavailableError, UsageError
    from proctor.supervisor.run.provider_session import launch_options

    from ...agents.catalog import adapter_named

    try:
        return launch_options(adapter_named(name), merged)
    except (UsageError, ProviderUnavailableError):
        return None


def _refused(error: PolicyError) -> dict[str, Any]:
    return {"ok": False, "name": None, "problems": list(error.problems), "findings": []}


def _show(
    policies: list[Policy], findings: Findings, levels: list[str], fine: bool, launch: LaunchOptions | None
) -> None:
    from rich.text import Text

    out = console()
    for policy in policies:
        out.print(escape_control(f"{policy.name}: {_contents(policy)}"))
    for finding, word in zip(findings, levels, strict=True):
        style = "bold red" if word == "error" else "yellow"
        text = escape_control(str(finding))
        echo_hanging(out, Text.assemble((f"{word:<8}", style), text), 8)
        witness = [escape_control(step) for step in finding.witness]
        for step in () if all(step in text for step in witness) else witness:
            echo_hanging(out, Text(f"          {step}", "dim"), 10)
    for name, value in (launch.options if launch else {}).items():
        if value not in ((), [], {}):
            echo_hanging(out, Text(f"setting {name}: {msgspec.json.encode(value, enc_hook=str).decode()}"), 8)
    if findings.refusals:
        out.print("no run can start with this policy", style="bold red")
    elif fine:
        out.print("ok", style="bold green")
    else:
        out.print("not ok", style="bold red")


def _contents(policy: Policy) -> str:
    limits = sum(1 for _ in policy.limits.given())
    counts = {
        "limit": limits,
        "budget": len(policy.budgets),
        "tool rule": len(policy.tool_rules),
        "rule": len(policy.rules),
        "net": len(policy.nets),
    }
    parts = [counted(count, noun) for noun, count in counts.items() if count]
    return ", ".join(parts + ["locked"] * policy.locked) or "nothing in it"


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--mermaid", "as_mermaid", is_flag=True, help="Print Mermaid text. [default]")
@click.option("--svg", "as_svg", is_flag=True, help="Print an SVG drawing. [default if -o ends in .svg]")
@click.option("--trace", metavar="FILE", help="Mark the state after the session in this file.")
@format_option
@context_option
@output_parameter
@json_option
def graph(
    files: tuple[str, ...],
    as_mermaid: bool,
    as_svg: bool,
    trace: str | None,
    format: str | None,
    context: RunContext | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Draw the nets of policies, and their rules about order.

    --json prints the nodes and arrows.
    """
    from ...drawing import draw_svg

    if as_mermaid + as_svg + as_json > 1:
        raise click.UsageError("choose one of `--mermaid`, `--svg` and `--json`")
    as_svg |= not (as_mermaid or as_json) and (output or "").lower().endswith(".svg")
    check_standard_input(*files, trace)
    with written_to(output):
        policy = merge_policies(read_policies(files))
        monitor = _monitor(policy, trace, format, context) if trace else None
        if as_json:
            write_document(encoded(draw(policy, monitor)))
        else:
            write_document(escape_control_lines((draw_svg if as_svg else draw_mermaid)(policy, monitor)))


def _monitor(policy: Policy, trace: str, format: str | None, context: RunContext | None) -> Monitor:
    from ...evaluate.fold import observed

    events = read_one_session(trace, "--trace", format)
    return observed(compile_policy(policy), events, context or RunContext())


@click.command()
@click.argument("file", metavar="FILE|DIR")
@click.option("--write", is_flag=True, help="Change the files instead of printing them.")
@output_parameter
@json_option
def migrate(file: str, write: bool, output: str | None, as_json: bool) -> None:
    """Rewrite policy files in the current format, as YAML. Comments are kept.

    Of a directory, files that hold no policy, such as tests, are named and left as they are.
    """
    if write and output:
        raise click.UsageError("choose one of `--write` and `--output`")
    if write and file == "-":
        raise click.UsageError("standard input cannot be written to; leave out `--write`")
    folder = Path(file).is_dir()
    own, others = policies_among(Path(file)) if folder else ([], {})
    files = [str(path) for path in own] if folder else [file]

    def rewritten(path: str) -> tuple[str, str, str]:
        text, name = read_text(path)
        return name, text, migrated(text, file=name)

    found = read_each(rewritten, files)
    for path in files if write else ():
        if Path(path).suffix.lower() not in (".yaml", ".yml"):
            raise click.UsageError(f"`{path}` is not a YAML file; leave out `--write` and choose a name")
    for other, kind in others.items():
        note(f"{other}: {kind}, left as it is")
    with written_to(output):
        for name, text, written in found:
            if write:
                with replaced(name) as whole:
                    whole.write(written.encode())
            if as_json:
                echo_json({"file": name, "changed": written != text, "written": write, "text": written})
            elif write:
                note(f"{name}: {'rewritten' if written != text else 'nothing to change'}")
            else:
                write_document(f"--- # {escape_control(name)}\n{written}" if folder else written)


@click.command()
@output_option
@json_option
def schema(as_json: bool) -> None:
    """Print the JSON Schema of policy files, for editors. --json prints it on one line."""
    made = msgspec.json.encode(json_schema())
    write_document((made if as_json else msgspec.json.format(made, indent=2)).decode())


@click.command(name="test")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@report_options
@output_option
@json_option
def test(files: tuple[str, ...], junit: str | None, sarif: str | None, as_json: bool) -> int:
    """Run unit tests of policies: lists of calls with the expected decisions, and `prove` blocks.

    Exit code 1: a test failed. --json prints one line per test.

    \b
    proctor test org.test.yaml team.test.yaml
    """  # noqa: D301 - click's mark for lines that are kept as they are
    from ...evaluate.policy_tests import read_policy_tests

    def read(file: str) -> PolicyTests:
        text, name = read_text(file)
        return read_policy_tests(text, name, Path() if file == "-" else Path(file).parent)

    check_standard_input(*files)
    reports = ReportFiles(junit, sarif)
    passed = failed = 0
    for given in read_each(read, files):
        for judged, case, text in _judged(given):
            passed, failed = passed + judged.passed, failed + (not judged.passed)
            reports.add_case(case)
            if as_json:
                echo_json(judged)
            elif not judged.passed:
                console().print(text)
            elif judged.note:
                note(escape_control(f"{judged.file}: {judged.test}: {judged.note}"))
    reports.write()
    if not as_json:
        echo(f"{passed} passed, {failed} failed" if failed else f"{passed} passed")
    return VIOLATED if failed else FINE


def _judged(given: PolicyTests) -> Iterator[tuple[JudgedTest, Case, Text]]:
    """The tests and proofs of a file, each evaluated: as a record, for a report, and as a failure on a terminal."""
    from rich.text import Text

    from ...evaluate.policy_tests import case_of, failed_test, judge_expected_proof, judge_test
    from ...evaluate.proofs import SharedTime, answer_text

    for one, context in given.tests:
        session, judged = judge_test(given.compiled, one, context, file=given.file)
        text = Text() if judged.passed else failed_test(session, judged)
        yield judged, case_of(judged, "test", text.plain), text
    time = SharedTime(len(given.proofs))
    for proof in given.proofs:
        judged, record = judge_expected_proof(given, proof, time)
        heading = f"FAILED {escape_control(judged.test)}\n  file:       {escape_control(judged.file)}\n"
        text = Text.assemble(heading, answer_text(record))
        text.rstrip()
        undecided = record.verdict == "unknown"
        yield judged, case_of(judged, proof.question.kind, text.plain, undecided=undecided), text
