"""`run`: one supervised session, live."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import click

from proctor.policies import Policy, RunContext
from proctor.supervisor.ports.stored_types import ApprovalAnswer, ApprovalRequest

from ...kit.display_text import encoded, escape_control
from ...kit.values import login_name
from ..exits import FAILED, FINE, VIOLATED, EndingSignals, leave, report
from ..options import (
    any_policy_option,
    check_standard_input,
    context_option,
    fail_on_option,
    json_option,
    key_values,
    of_fallbacks,
    opened,
    read_policies,
    read_prompt,
    run_async,
    session_option,
    store_option,
    with_command,
)
from ..output import note, queued_output, wait_written, who_asks

if TYPE_CHECKING:
    from proctor.supervisor import Adapter, Publisher, RunHandle, RunResult, Supervisor
    from proctor.supervisor.arguments import Continuation

    from ...evaluate.judge import FailOn
    from ..live import Live


@click.command()
@click.argument("prompt", metavar="PROMPT")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option(
    "--adapter",
    required=True,
    metavar="NAME",
    help="The agent: claude, codex, acp (opencode, gemini), ... `proctor adapters` lists them.",
)
@click.option(
    "--fallback",
    "fallbacks",
    metavar="NAME",
    multiple=True,
    help="The agent to try next if the one before fails before any call ran.",
)
@any_policy_option
@click.option("--model", help="The model, if the agent has a choice.")
@click.option("--cwd", type=click.Path(exists=True, file_okay=False), help="The directory that the agent works in.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="An option of the adapter.")
@session_option("Continue this session.")
@click.option(
    "--continuation",
    type=click.Choice(["auto", "native", "replay", "none"]),
    default="auto",
    help="How to continue it: `native`, by the agent's own resume; `replay`, with the conversation so far; `none`, "
    "without it; `auto`, whichever works. [default: auto]",
)
@click.option(
    "--no-prompt", is_flag=True, help="Don't ask for approvals at this terminal. `proctor approve` still works."
)
@click.option("--otel", is_flag=True, help="Send spans and metrics over OTLP, to OTEL_EXPORTER_OTLP_ENDPOINT.")
@context_option
@store_option
@fail_on_option
@json_option
def run(
    prompt: str,
    command: tuple[str, ...],
    adapter: str,
    fallbacks: tuple[str, ...],
    policies: tuple[str, ...],
    model: str | None,
    cwd: str | None,
    settings: tuple[str, ...],
    session: str | None,
    continuation: Continuation,
    no_prompt: bool,
    otel: bool,
    context: RunContext | None,
    store: str | None,
    fail_on: FailOn,
    as_json: bool,
) -> int:
    """Run an agent on PROMPT under policies, show it live, and store it.

    COMMAND starts an ACP agent, for the adapter acp. On a terminal, proctor asks you about calls that need approval.

    Ctrl-C or SIGTERM cancels the run and waits until it has ended. A third Ctrl-C or a second SIGTERM exits at once.
    If standard output is closed, or nobody reads it, the run continues.

    Exit codes: 0 the run completed, 1 a policy rejected the run, cancelled it or denied a call (see --fail-on), 2 bad
    input or usage, 3 the agent failed or someone cancelled the run.

    \b
    proctor run --adapter claude --policy org.yaml "Fix the failing test"
    proctor run --adapter shell --policy org.yaml "make test"
    proctor run --adapter scripted --set script=agent.yaml --policy org.yaml Go
    proctor run --adapter acp --policy org.yaml "Fix the test" -- opencode acp
    proctor run --adapter claude --fallback codex --policy org.yaml "Fix the test"
    """  # noqa: D301 - click's mark for lines that are kept as they are
    signals = EndingSignals()

    check_standard_input(*policies, prompt)
    agent = _agent(adapter, fallbacks, command, settings, model=model, cwd=cwd)
    given = read_policies(policies) if policies else _nothing_refused()
    text = read_prompt(prompt)
    asks = not no_prompt and not as_json and sys.stdin.isatty() and sys.stdout.isatty()
    supervise = partial(
        supervised,
        agent,
        text,
        given,
        signals=signals,
        context=context or RunContext(),
        session_id=session,
        continuation=continuation,
        asks=asks,
        store=store,
        as_json=as_json,
        fail_on=fail_on,
    )
    with _observed(otel) as observers:
        return run_async(partial(supervise, observers=observers))


def _agent(
    name: str, fallbacks: Sequence[str], command: Sequence[str], settings: Sequence[str], **common: str | None
) -> Adapter:
    """The adapter of that name with its options, and behind it those to fall back on."""
    from ...agents.catalog import adapter_named

    own, theirs = of_fallbacks(key_values(settings), fallbacks)
    options = with_command(name, command, own)
    given = {option: value for option, value in common.items() if value is not None}
    if twice := sorted(given.keys() & options.keys()):
        raise click.UsageError(f"`{twice[0]}` is given twice: by `--set` and by `--{twice[0]}`")
    options |= given
    first = adapter_named(name, **options)
    if not fallbacks:
        return first
    from ... import FallbackAdapter

    return FallbackAdapter([first, *(adapter_named(other, **theirs[other]) for other in fallbacks)])


@contextmanager
def _observed(otel: bool) -> Iterator[list[Publisher]]:
    if not otel:
        yield []
        return
    try:
        from ...telemetry.observer import exported
    except ModuleNotFoundError as missing:
        from proctor.supervisor.errors import NotInstalledError

        raise NotInstalledError(f"`{missing.name}` is not installed", "otel") from None

    with exported(note) as observer:
        yield [observer]


def _nothing_refused() -> list[Policy]:
    """The policy of a run when no file is named: it denies nothing. A line says so, in place of the log's warning."""
    from proctor.supervisor.arguments import NO_POLICY

    note("no `--policy`: proctor records every call and denies none")
    return [NO_POLICY]


async def supervised(
    adapter: Adapter,
    prompt: str,
    policies: list[Policy],
    *,
    store: str | None,
    as_json: bool,
    signals: EndingSignals,
    session_id: str | None = None,
    asks: bool = False,
    fail_on: FailOn = "deny",
    observers: Sequence[Publisher] = (),
    **how: Any,
) -> int:
    """Run, show, store; gives the exit code. `how` is what else `Supervisor.start` takes. Raises what the run raised
    when there is no result to show.
    """
    handle: RunHandle | None = None
    starting = anyio.CancelScope()

    async def end() -> None:
        if handle is None:
            starting.cancel()
        else:
            await _end(handle)

    async with signals.call(end):
        from ..live import EventLines, Live

        live = Live(EventLines(store=store), as_json=as_json)
        with queued_output():
            with starting:
                await adapter.prepare()
                async with _supervisor(store, session_id, asks, [live, *observers]) as supervisor:
                    handle = await supervisor.start(adapter, prompt, policies=policies, session_id=session_id, **how)
                    await handle.wait_finished()
            if handle is None:
                note("interrupted")
                return FAILED
            refusing_fails = adapter.capabilities.deny_ends_turn
            try:
                code = await _concluded(handle, live, as_json=as_json, fail_on=fail_on, refusing_fails=refusing_fails)
            except Exception as error:
                if handle.released:
                    raise
                code = report(error, debug=False)
        return code if handle.released else leave(code)  # an event loop waits for what does not end


@asynccontextmanager
async def _supervisor(
    store: str | None, session_id: str | None, asks: bool, publishers: list[Publisher]
) -> AsyncIterator[Supervisor]:
    """A supervisor on the store; if it `asks`, a person at the terminal answers."""
    from proctor.supervisor import Supervisor

    async with opened(store) as kept:
        if session_id and not await kept.runs(limit=1, session_id=session_id):
            note(f"there is no session `{session_id}` in the store; this run creates it")
        approver = PromptApprover() if asks else None
        async with Supervisor(kept, approver=approver, publishers=publishers) as supervisor:
            yield supervisor


async def _end(handle: RunHandle) -> None:
    if not handle.done:
        await handle.cancel(reason="interrupted by the user")
        with suppress(OSError):  # the terminal may be gone
            note("cancelling the run ...")


async def _concluded(handle: RunHandle, live: Live, *, as_json: bool, fail_on: FailOn, refusing_fails: bool) -> int:
    """Print how the run ended and return the exit code; `refusing_fails`: the agent fails when a call is denied."""
    from proctor.supervisor import PolicyViolationError, ProctorError

    from ...evaluate.judge import fails
    from ..live import summary

    try:
        result: RunResult = await handle.wait()
    except PolicyViolationError as error:
        if error.partial is None:
            raise
        summary(error.partial, live, as_json=as_json)
        return VIOLATED if fails(("cancel",), fail_on) else FINE
    except ProctorError as error:
        partial: RunResult | None = getattr(error, "partial", None)
        if partial is None:
            raise
        summary(partial, live, as_json=as_json)
        if refusing_fails and fails((violation.action for violation in partial.policy.violations), fail_on):
            return VIOLATED
        raise
    summary(result, live, as_json=as_json)
    if result.status != "completed":
        return FAILED
    broken = fails((violation.action for violation in result.policy.violations), fail_on)
    return VIOLATED if broken else FINE


_POLL_S = 0.5


class PromptApprover:
    """Shows a held call with its whole input and waits for y or n; one question at a time.

    It waits without blocking: an answer from elsewhere, or the end of the wait, takes the question away. What was
    typed before the call was shown is no answer.
    """

    def __init__(self) -> None:
        self._turn = anyio.Lock()

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        async with self._turn:
            if not _in_background():
                termios.tcflush(sys.stdin, termios.TCIFLUSH)
            _show(request)
            answer = None
            try:
                await wait_written()
                answer = await _answered(request)
            finally:
                if answer is None:  # what comes next begins a line of its own
                    with suppress(OSError):
                        print()
            return answer


async def _answered(request: ApprovalRequest) -> ApprovalAnswer | None:
    while True:
        print("  run it? [y/n] ", end="", flush=True)
        line = await _typed_line()
        if not line:  # Ctrl-D, or the terminal is gone: somebody else may answer
            return None
        answer = line.strip().lower()
        if answer in ("y", "yes", "n", "no"):
            return ApprovalAnswer(granted=answer[0] == "y", by=login_name(), input_digest=request.input_digest)


async def _typed_line() -> str:
    """The line that is typed next, empty at the end of the input. In the background it waits: a process that reads
    there what is typed for the shell is stopped.
    """
    line = b""
    while not line.endswith(b"\n"):
        await anyio.wait_readable(sys.stdin)
        if _in_background():
            await anyio.sleep(_POLL_S)
            continue
        try:
            typed = os.read(sys.stdin.fileno(), 4096)
        except OSError:
            typed = b""
        if not typed:
            return ""
        line += typed
    return line.decode(errors="replace")


def _in_background() -> bool:
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp()
    except OSError:  # not the terminal that starts and stops this process
        return False


def _show(request: ApprovalRequest) -> None:
    call, policy = escape_control(request.call.name), escape_control(request.policy_name)
    print(f"  {call} wants to run, and {policy} asks for a person")
    for key, value in request.call.input.items():
        print(f"    {escape_control(key)}: {encoded(value)}")
    for rule, why in who_asks(request):
        print(f"  asked by {rule}: {why}")
