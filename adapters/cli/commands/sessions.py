"""Recorded sessions: `eval` evaluates them by a policy, `suggest` proposes a policy that they keep."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
import yaml

from proctor.policies import Event, RunContext, compile_policy, merge_policies, parse_policies
from proctor.policies.events import RunStarted, ToolEvent
from proctor.policies.values.json_values import NOT_YAML
from proctor.supervisor.ports.store import closing

from ...kit.display_text import escape_control, escape_control_json, escape_control_lines, redacted
from ..exits import FINE, VIOLATED
from ..options import (
    check_standard_input,
    context_option,
    fail_on_option,
    format_option,
    json_option,
    opened,
    policy_option,
    read_compiled,
    read_policies,
    read_traces,
    run_async,
    tools_option,
    write_document,
)
from ..output import (
    Progress,
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

    from ...evaluate import SessionReport
    from ...evaluate.judge import FailOn
    from ...suggest import Suggestion
    from ...suggest.entries import Entry
    from ...traces import TraceSession


_HEAD = re.compile(r"  [a-z]+: +|  [> ] *\d+\. ")
"""How a line of a failure begins: the name of a field, or the number of a call."""
SHOWN = 20
"""How many failures are shown in full by default."""


@click.command(name="eval")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@policy_option
@format_option
@context_option
@report_options
@click.option(
    "--failures",
    type=click.IntRange(min=0),
    default=SHOWN,
    show_default=True,
    metavar="N",
    help="The most failures to show in full.",
)
@fail_on_option
@output_option
@json_option
def evaluate(
    traces: tuple[str, ...],
    policies: tuple[str, ...],
    format: str | None,
    context: RunContext | None,
    junit: str | None,
    sarif: str | None,
    failures: int,
    fail_on: FailOn,
    as_json: bool,
) -> int:
    """Evaluate recorded sessions under policies: files or folders, also .gz. No agent runs.

    Exit code 1: a session has a violation with the action deny or cancel (see --fail-on). --json prints one line
    per session.

    \b
    proctor eval --policy org.yaml ~/.claude/projects/my-project
    proctor eval --policy org.yaml --junit eval.xml sessions.jsonl
    """  # noqa: D301 - click's mark for lines that are kept as they are
    from ...evaluate import judge_sessions
    from ...evaluate.judge import CalledTools

    check_standard_input(*policies, *traces)
    files = ReportFiles(junit, sarif, fail_on)
    compiled = read_compiled(policies)
    report = _Report(files, as_json=as_json, failures=failures, fail_on=fail_on)
    called = CalledTools()
    sessions = read_traces(traces, format)
    progress = Progress()
    try:
        for session, found in judge_sessions(compiled, sessions, context or RunContext(), progress):
            if report.shows(found):
                progress.clear()
            report.add(session, found)
            called.add(session)
    finally:
        progress.erase()
    report.finish()
    for finding in called.misspelt_in(compiled.policy):
        note(f"warning {escape_control(str(finding))}")
    return FINE if report.summary.all_passed else VIOLATED


class _Report:
    """Takes sessions as they are evaluated; what is long is written at the end."""

    def __init__(self, files: ReportFiles, *, as_json: bool, failures: int, fail_on: FailOn) -> None:
        from ...evaluate import EvalSummary

        self.summary = EvalSummary(fail_on=fail_on)
        self._fail_on = fail_on
        self._as_json = as_json
        self._files = files
        self._left = failures
        self._console: Any = console(tables=True)

    def shows(self, found: SessionReport) -> bool:
        """Whether something is printed of a session at once."""
        return self._as_json or (self._left > 0 and not found.passed)

    def add(self, session: TraceSession, found: SessionReport) -> None:
        from ...evaluate import failure_reports

        found = redacted(found)
        self.summary.add(found, session.source)
        self._files.add(session, found)
        if self._as_json:
            sys.stdout.write(escape_control_json(msgspec.json.encode(found).decode()) + "\n")
        elif self._left > 0:
            for text in failure_reports(session, found, fail_on=self._fail_on):
                self._left -= 1
                self._show(text)
                if not self._left:
                    break

    def _show(self, text: Text) -> None:
        for line in text.split("\n", allow_blank=True):
            head = _HEAD.match(line.plain)
            echo_hanging(self._console, line, len(head[0]) if head else 0)

    def finish(self) -> None:
        from ...evaluate import summary_table

        self._files.write()
        if not self._as_json:
            self._console.print(summary_table(self.summary))


@click.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.argument("traces", nargs=-1, metavar="[TRACE...]")
@click.option("--prove", "proved", is_flag=True, help="Compare them over every session, without recorded ones.")
@format_option
@context_option
@output_option
@json_option
def diff(
    old: str,
    new: str,
    traces: tuple[str, ...],
    proved: bool,
    format: str | None,
    context: RunContext | None,
    as_json: bool,
) -> int:
    """Show which recorded calls the policy file NEW decides differently from OLD. The files of a folder are one
    stack, in the order of their names.

    Exit code 1: a session that passed under OLD fails under NEW. With --prove: 0 both decide alike in every session,
    1 a session shows a difference, 3 unknown.

    \b
    proctor diff today.yaml stricter.yaml week.jsonl
    proctor diff today.yaml stricter.yaml --prove
    """  # noqa: D301 - click's mark for lines that are kept as they are
    if proved:
        if traces or format:
            raise click.UsageError("`--prove` is about every session: leave out the recorded ones")
        from .prove import diff_by_proof

        return diff_by_proof(old, new, context, as_json=as_json)
    if not traces:
        raise click.UsageError("give recorded sessions (`TRACE...`), or compare over every session with `--prove`")

    from ...evaluate import DiffSummary, compare_sessions, diff_table

    check_standard_input(old, new, *traces)
    compiled = read_compiled([old]), read_compiled([new])
    sessions = read_traces(traces, format)
    summary, progress = DiffSummary(), Progress()
    try:
        for count, change in enumerate(compare_sessions(*compiled, sessions, context or RunContext()), 1):
            summary.add(change)
            progress(count)
            if as_json:
                progress.clear()
                echo(escape_control_json(msgspec.json.encode(change).decode()))
    finally:
        progress.erase()
    if not as_json:
        console(tables=True).print(diff_table(summary))
    return VIOLATED if summary.now_failing else FINE


@click.command()
@click.argument("trace", metavar="TRACE")
@tools_option("The tools to consider, separated by commas. [default: the session's]")
@policy_option
@format_option
@context_option
@output_option
@json_option
def narrow(
    trace: str,
    tools: list[str] | None,
    policies: tuple[str, ...],
    format: str | None,
    context: RunContext | None,
    as_json: bool,
) -> int:
    """List the tools that an agent could call next, after a recorded session.

    If the recording doesn't say which tools the agent has, the tools that it called are considered. Exit code 1: a
    rule can't be evaluated, because its `when` names a fact that is missing. Add it with --context.
    """
    from ...evaluate.fold import observed
    from ...evaluate.judge import filled, unjudged

    check_standard_input(*policies, trace)
    compiled = read_compiled(policies)
    exit_code = FINE
    for session in read_traces([trace], format):
        offered = _offered(session.events) if tools is None else tools
        of_run = filled(context or RunContext(), session)
        visible = observed(compiled, session.events, of_run).narrow(offered)
        left_out = unjudged(compiled, of_run)
        if left_out:
            exit_code = VIOLATED
        if as_json:
            found = {"session": session.id, "tools": visible, "hidden": [t for t in offered if t not in visible]}
            echo_json({**found, **({"unjudged": [each.rule for each in left_out]} if left_out else {})})
        else:
            echo(escape_control(f"{session.id}: {', '.join(visible) or 'none'}"))
            for each in left_out:
                note(escape_control(f"{session.id}: `{each.rule}`: {each.message}; give it with --context"))
    return exit_code


def _offered(events: Sequence[Event]) -> list[str]:
    """The tools that a session is said to offer, else those it called, in order."""
    declared = [event.tools for event in events if isinstance(event, RunStarted) and event.tools is not None]
    called = [event.tool_name for event in events if isinstance(event, ToolEvent)]
    return list(dict.fromkeys(declared[-1] if declared else called))


@click.command()
@click.argument("sessions", nargs=-1, metavar="SESSION...")
@click.option(
    "--base",
    "bases",
    multiple=True,
    metavar="POLICY",
    help="Suggest nothing that this policy denies; repeat it for a stack.",
)
@click.option("--store", metavar="STORE", help="Also read the sessions of this store.")
@click.option("--name", default="suggested", show_default=True, metavar="NAME", help="The policy's name.")
@click.option(
    "--action",
    type=click.Choice(["request_approval", "deny"]),
    help="The action for all other calls. [default: request_approval; deny with --base]",
)
@click.option(
    "--tests", type=click.Path(dir_okay=False), metavar="FILE", help="Also write tests of the policy. Needs -o."
)
@click.option("-i", "--interactive", is_flag=True, help="Accept, edit or reject each entry on the terminal.")
@format_option
@output_parameter
@json_option
def suggest(
    sessions: tuple[str, ...],
    bases: tuple[str, ...],
    store: str | None,
    name: str,
    action: str | None,
    tests: str | None,
    interactive: bool,
    format: str | None,
    output: str | None,
    as_json: bool,
) -> int:
    """Propose a policy from recorded sessions: files or folders, in the formats of `eval`.

    The policy allows the tools, commands, folders, hosts and values that the sessions used, and gives the evidence
    for each in a comment. With --base, each entry is proved to be no looser than the base.

    \b
    proctor suggest ~/.claude/projects/my-project -o learned.yaml
    proctor suggest --store runs.db --base org.yaml
    """  # noqa: D301 - click's mark for lines that are kept as they are
    from ...suggest import learn, observe, policy_text, tests_text, without_denied

    check_standard_input(*sessions, *bases)
    if not sessions and not store:
        raise click.UsageError("name the sessions: files, folders or `--store`")
    if bases and action == "request_approval":
        raise click.UsageError(
            "with `--base`, `--action` must be `deny`: a person could approve what the base denies"
        )
    if tests and (not output or output == "-"):
        raise click.UsageError("`--tests` goes with `--output FILE`: the tests name the policy's file")
    if interactive and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("`--interactive` asks on a terminal, and there is none; leave it out")
    base = read_policies(bases) if bases else []
    recorded = [*_counted(_read(sessions, store, format))]
    observed = [*map(observe, recorded)]
    found = learn(observed, name=name, action=action or ("deny" if bases else "request_approval"))
    if not found.tools:
        raise click.UsageError("the sessions have no call that ran: there is nothing to learn from")
    if interactive:
        found = _reviewed(found)
    if base:
        found = without_denied(found, merge_policies(base), observed)
    denied = _denied(found, recorded)
    if as_json:
        echo_json({**_data(found), "denied": denied})
    if output is not None or not as_json:
        with written_to(output):
            write_document(policy_text(found))
    if tests and output:
        beside = os.path.relpath(output, Path(tests).parent)
        text = tests_text(found, observed, beside, without=())
        text = tests_text(found, observed, beside, without=_failing(text, tests))
        with replaced(tests) as file:
            file.write(text.encode())
    _note_left_out(found, denied)
    return FINE


def _note_left_out(found: Suggestion, denied: Mapping[str, str]) -> None:
    if found.dropped:
        note(f"left out: {len(found.dropped)}; the policy says why")
    for id, why in itertools.islice(denied.items(), SHOWN):
        note(f"not allowed, though learned from: session `{id}`: {why}")
    if len(denied) > SHOWN:
        note(f"not allowed, though learned from: {len(denied) - SHOWN:,} more sessions")


def _denied(found: Suggestion, recorded: Sequence[TraceSession]) -> dict[str, str]:
    """The sessions, by their ids, that the policy does not allow, each with the first reason."""
    from ...evaluate import judge_sessions

    compiled = compile_policy(merge_policies(parse_policies(found.policy())))
    denied: dict[str, str] = {}
    for _, report in judge_sessions(compiled, _counted(iter(recorded))):
        for each in report.violations:
            if each.action != "warn":
                denied.setdefault(report.session, each.message)
    return denied


def _reviewed(found: Suggestion) -> Suggestion:
    """The suggestion as a person on the terminal leaves it; questions go to standard error."""
    entries = found.entries
    for number, entry in enumerate(entries, 1):
        if entry not in found.entries:
            continue  # its tool was rejected
        for line in ("", f"{number} of {len(entries)}  {entry.about}", *_proposed(entry)):
            click.echo(escape_control(line), err=True)
        chosen = None
        while chosen is None:
            chosen = click.prompt(
                "accept, edit, reject, or accept all the rest", type=_CHOICES, show_choices=False, err=True
            )
            if chosen == "edit":
                edited = _edited(found, entry)
                found, chosen = edited or found, "edit" if edited else None
        if chosen == "reject":
            found = found.without([entry], "rejected")
        elif chosen == "rest":
            break
    return found


_CHOICES = click.Choice(["accept", "edit", "reject", "rest"])


def _proposed(entry: Entry) -> Iterator[str]:
    """What an entry adds to the policy, the evidence for it, and a call that it would have stopped."""
    from ...suggest.entries import flow

    yield (
        f"  {entry.tool}: {flow(entry.part)}" if entry.part and entry.tool else f"  {flow(entry.part or entry.tool)}"
    )
    yield f"  {entry.evidence}"
    if "path" in entry.stops:
        yield f"  would stop {entry.stops['tool']} {flow({entry.stops['path']: entry.stops['value']})}"
    elif entry.stops:
        yield f"  would stop {entry.stops['tool']} as the first call"
    if entry.kind == "input":
        yield "  without it, any value is allowed"


def _edited(found: Suggestion, entry: Entry) -> Suggestion | None:
    """The suggestion with an entry as a person writes it in an editor; None, saying why, if it stays as it is."""
    from ...suggest.entries import flow

    if not entry.part:
        click.echo(f"`{entry.tool}` is a name: accept or reject it; what restricts it follows", err=True)
        return None
    try:
        text = click.edit(f"{flow(entry.part)}\n", extension=".yaml")
        part = yaml.safe_load(text or "")
        if not isinstance(part, dict):
            click.echo("nothing is changed", err=True)
            return None
        changed = found.edited(entry, part)
        parse_policies(changed.policy())
    except click.ClickException as error:
        click.echo(f"no editor: {error.message}", err=True)
        return None
    except (yaml.YAMLError, LookupError, *NOT_YAML) as error:
        click.echo(escape_control_lines(f"not a part of a policy: {error}"), err=True)
        return None
    return changed


def _failing(text: str, file: str) -> list[str]:
    from ...evaluate.policy_tests import judge_test, read_policy_tests

    given = read_policy_tests(text, file, Path(file).parent)
    judged = [judge_test(given.compiled, test, context, file=file)[1] for test, context in given.tests]
    return [each.test for each in judged if not each.passed]


def _read(sessions: tuple[str, ...], store: str | None, format: str | None) -> Iterator[TraceSession]:
    if sessions:
        yield from read_traces(sessions, format)
    if store:
        yield from _stored(store)


def _stored(store: str) -> list[TraceSession]:
    from proctor.supervisor.store.maintenance import export_lines

    from ...kit.trace_lines import TraceLines
    from ...traces import FORMATS

    async def exported() -> bytes:
        async with opened(store, must_exist=True) as opened_store, closing(export_lines(opened_store)) as lines:
            return b"".join([line async for line in lines])

    return [*FORMATS["events"](TraceLines(store, BytesIO(run_async(exported))))]


def _counted(sessions: Iterator[TraceSession]) -> Iterator[TraceSession]:
    progress = Progress()
    try:
        for count, session in enumerate(sessions, 1):
            yield session
            progress(count)
    finally:
        progress.erase()


def _data(found: Suggestion) -> dict[str, Any]:
    return {
        "policy": found.policy(),
        "sessions": found.sessions,
        "disturbed": len(found.disturbed),
        "entries": [entry.data() for entry in found.entries],
        "left_out": [{**entry.data(), "reason": why} for entry, why in found.dropped],
    }
