"""`prove` and `diff --prove`: questions about every session that a policy stack allows."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.structs import replace

from proctor.policies import Policy, RunContext, compile_policy, merge_policies
from proctor.policies.diagram import draw_mermaid
from proctor.policies.events.run_context import Tool
from proctor.policies.values.amounts import counted

from ...kit.display_text import escape_control_lines
from ..exits import FINE, UNPROVED, VIOLATED
from ..options import check_standard_input, context_option, json_option, read_policies, tools_option
from ..output import ReportFiles, StatusLine, console, echo, echo_json, note, output_option, replaced, report_options

if TYPE_CHECKING:
    from ...evaluate.proofs import ProofQuestion, ProofRecord, Prover
    from ...evaluate.reports import Case

_CODES = {"proved": FINE, "refuted": VIOLATED, "unknown": UNPROVED}


@click.command()
@click.argument("policies", nargs=-1, required=True, metavar="POLICY...")
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="FILE",
    help="A policy file: does every allowed session keep its rules?",
)
@click.option(
    "--no-looser-than",
    "bases",
    multiple=True,
    metavar="BASE",
    help="Is everything that it allows also allowed by BASE? Repeat it for a stack.",
)
@click.option(
    "--same-as", "same", multiple=True, metavar="BASE", help="Do both decide every call alike? Repeat it for a stack."
)
@click.option(
    "--reach", "reached", multiple=True, metavar="CALL", help='Can this call ever run? deploy(target="prod")'
)
@tools_option("The agent's tools, separated by commas; with --adapter, more tools. [default: any]")
@click.option("--adapter", metavar="NAME", help="Use the tools of this agent, also by their portable names.")
@click.option(
    "--write-test", type=click.Path(dir_okay=False), metavar="FILE", help="Write the session found as a unit test."
)
@click.option(
    "--write-session",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the session found as a recorded session.",
)
@click.option(
    "--graph",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Draw the session found: SVG if the name ends in .svg, else Mermaid.",
)
@context_option
@report_options
@output_option
@json_option
def prove(
    policies: tuple[str, ...],
    properties: tuple[str, ...],
    bases: tuple[str, ...],
    same: tuple[str, ...],
    reached: tuple[str, ...],
    tools: list[str] | None,
    adapter: str | None,
    write_test: str | None,
    write_session: str | None,
    graph: str | None,
    context: RunContext | None,
    junit: str | None,
    sarif: str | None,
    as_json: bool,
) -> int:
    """Answer questions about every session that a policy allows: with a proof, or with a shortest counterexample.

    Without a question: list rules that have no effect, and tools that can never be called.

    Exit codes: 0 proved, 1 refuted, 2 bad input, 3 unknown. --json prints one line per question.

    \b
    proctor prove org.yaml team.yaml --no-looser-than org.yaml
    proctor prove org.yaml --reach 'deploy(target="prod")' --write-test found.yaml
    proctor prove org.yaml --property no-push.yaml
    """  # noqa: D301 - click's mark for lines that are kept as they are
    from ...evaluate.rule_proofs import sanity_questions

    check_standard_input(*policies, *properties, *bases, *same)
    reports = ReportFiles(junit, sarif)
    stack = read_policies(policies)
    merged = merge_policies(stack)
    questions = list(_questions(properties, bases, same, reached))
    if not questions and (write_test or write_session or graph):
        raise click.UsageError("only a question finds a session to write; for example `--reach CALL`")
    offered = _offered(tools, adapter)
    found: list[tuple[ProofQuestion | None, ProofRecord]] = []
    with _Search(len(questions) or sanity_questions(stack)) as search:
        for question, record in _answers(stack, merged, questions, search.prover(offered, context)):
            found.append((question, record))
            reports.add_case(_case(question, record, policies[0]))
            search.clear()
            _show(record, as_json=as_json)
    if not questions and not as_json:
        _sum_up([record for _, record in found])
    reports.write()
    _write(found, merged, policies, adapter, (write_test, write_session, graph))
    return _exit_code([record.verdict for _, record in found], stopped=search.stopped)


def _questions(
    properties: Sequence[str], bases: Sequence[str], same: Sequence[str], reached: Sequence[str]
) -> Iterator[ProofQuestion]:
    from ...evaluate.proofs import ProofQuestion, read_call

    for file in properties:
        argument = merge_policies(read_policies([file]))
        yield ProofQuestion(kind="property", text=f"property {file}", argument=argument)
    for kind, files in (("no_looser_than", bases), ("same_as", same)):
        if files:
            argument = merge_policies(read_policies(files))
            yield ProofQuestion(kind=kind, text=f"{kind.replace('_', ' ')} {' '.join(files)}", argument=argument)
    for text in reached:
        yield ProofQuestion(kind="reach", text=f"reach {text}", argument=read_call(text))


def _offered(names: list[str] | None, adapter: str | None) -> list[str | Tool] | None:
    from ...kit.client_tools import AGENTS

    if adapter is None:
        return None if names is None else [*names]
    found = AGENTS.get(adapter.casefold())
    if found is None:
        raise click.UsageError(f"the tools of `{adapter}` are not known; there are {', '.join(AGENTS)}")
    return [*found, *(names or ())]


def _answers(
    stack: list[Policy], merged: Policy, questions: list[ProofQuestion], prover: Prover
) -> Iterator[tuple[ProofQuestion | None, ProofRecord]]:
    from ...evaluate.proofs import answer_question
    from ...evaluate.rule_proofs import sanity

    for question in questions:
        record, remark = answer_question(question, merged, prover)
        yield question, replace(record, reason=f"{record.reason}; {remark}") if remark else record
    if not questions:
        yield from ((None, record) for record in sanity(stack, prover))


def _show(record: ProofRecord, *, as_json: bool) -> None:
    from ...evaluate.proofs import answer_text
    from ...evaluate.rule_proofs import NOT_ASKED

    if as_json:
        echo_json(replace(record, events=[]))
        return
    if record.question.startswith(("rule ", "callable ")):
        if record.verdict == "proved" or record.reason == NOT_ASKED:
            return
        record = replace(record, session=[])
    console().print(answer_text(record, _width()), end="")


def _width() -> int:
    """The width of answers: no wider than the terminal."""
    from ...evaluate.proofs import WIDTH

    return min(console().width, WIDTH) if sys.stdout.isatty() else WIDTH


def _case(question: ProofQuestion | None, record: ProofRecord, file: str) -> Case:
    from ...evaluate.proofs import answer_text
    from ...evaluate.reports import Case

    return Case(
        kind=question.kind if question else "sanity",
        name=record.question,
        file=file,
        wrong="" if record.verdict == "proved" else f"{record.verdict}: {record.reason}",
        details=answer_text(record).plain,
        undecided=record.verdict == "unknown",
    )


def _sum_up(records: list[ProofRecord]) -> None:
    from ...evaluate.rule_proofs import NOT_ASKED

    late = sum(record.reason == NOT_ASKED for record in records)
    count = Counter(record.verdict for record in records)
    echo(
        f"{len(records) - late} checked: {count['proved']} proved, {count['refuted']} refuted, "
        f"{count['unknown'] - late} unknown"
    )
    if late:
        echo(f"{late} {NOT_ASKED}; give fewer rules at once")


def _write(
    found: list[tuple[ProofQuestion | None, ProofRecord]],
    merged: Policy,
    policies: Sequence[str],
    adapter: str | None,
    files: tuple[str | None, str | None, str | None],
) -> None:
    from ...evaluate.counterexamples import session_lines, why_no_test, written_test

    write_test, write_session, graph = files
    if not any(files):
        return
    refuted = next(((q, r) for q, r in found if q is not None and r.verdict == "refuted"), None)
    if refuted is None:
        note("nothing is refuted, so there is no session to write")
        return
    question, record = refuted
    assert question is not None
    if write_test:
        folder = Path(write_test).parent
        text = written_test(record, [os.path.relpath(file, folder) for file in policies], adapter or "")
        if folder.is_dir() and (why := why_no_test(record, text, folder)):
            note(f"`{write_test}` is not written: {why}; `--write-session FILE` keeps the session")
        else:
            with replaced(write_test) as file:
                file.write(text.encode())
    if write_session:
        with replaced(write_session) as file:
            file.write(session_lines(record, adapter or ""))
    if graph:
        with replaced(graph) as file:
            file.write(_picture(question, record, merged, adapter, svg=graph.lower().endswith(".svg")).encode())


def _picture(question: ProofQuestion, record: ProofRecord, merged: Policy, adapter: str | None, *, svg: bool) -> str:
    """The rules of the policies, and of what they are compared with, as the session leaves them."""
    from ...drawing import draw_svg
    from ...evaluate.counterexamples import drawn, session_of
    from ...evaluate.fold import observed

    beside = question.argument
    whole = merge_policies([merged, beside]) if isinstance(beside, Policy) else merged
    compiled, agent = compile_policy(whole), adapter or ""
    context = msgspec.convert(record.context, RunContext)
    monitor = observed(compiled, session_of(record, agent).events, context)
    draw = draw_svg if svg else draw_mermaid
    return escape_control_lines(draw(whole, monitor, drawn(record, compiled, agent)))


def _exit_code(found: list[str], *, stopped: bool) -> int:
    if "refuted" in found:
        return VIOLATED
    return UNPROVED if stopped or "unknown" in found else FINE


def diff_by_proof(old: str, new: str, context: RunContext | None, *, as_json: bool) -> int:
    """`diff --prove`: each kind of difference as it is found; the exit code."""
    from ...evaluate.rule_proofs import difference_questions, difference_text, differences

    check_standard_input(old, new)
    before, after = read_policies([old]), read_policies([new])
    found: list[str] = []
    with _Search(difference_questions(before, after)) as search:
        for each in differences(before, after, search.prover(None, context)):
            found.append(each.verdict)
            search.clear()
            if as_json:
                echo_json(each)
            else:
                console().print(difference_text(each, _width()), end="")
    if not as_json:
        echo(counted(found.count("refuted"), "difference") if found else "both decide alike in every session")
    return _exit_code(found, stopped=search.stopped)


class _Search:
    """A search that says on a terminal how long it has taken, and that the first Ctrl-C stops: what is not answered
    by then is unknown.
    """

    def __init__(self, questions: int) -> None:
        from ...evaluate.proofs import SharedTime

        self.stopped = False
        self._time = SharedTime(questions, self._draw)
        self._started = time.monotonic()
        self._line = StatusLine()
        self._before: Any = None

    def __enter__(self) -> _Search:
        self._before = signal.signal(signal.SIGINT, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        self.clear()

    def prover(self, tools: list[str | Tool] | None, context: RunContext | None) -> Prover:
        """`verify` with what all questions share."""
        return self._time.prover(tools=tools, context=context)

    def clear(self) -> None:
        self._line.erase()

    def _stop(self, *_: object) -> None:
        self.stopped = True
        signal.signal(signal.SIGINT, self._before)

    def _draw(self) -> bool:
        taken = time.monotonic() - self._started
        if taken > 1:
            number, questions = self._time.number, self._time.questions
            which = f" question {number} of about {max(number, questions)}," if questions > 1 else ""
            self._line.show(f"searching,{which} {taken:,.0f} s; Ctrl-C gives what is known")
        return self.stopped
