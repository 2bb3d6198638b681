"""The commands by name, imported when they are used, and `main`."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click

from . import leave
from .exits import BAD_INPUT, FAILED, handlers, is_machines, report, restore_handlers, usage_text
from .output import lenient, note, version

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "demo": ("commands.demo:demo", "See it work: a supervised run, live, with nothing to set up."),
        "init": ("commands.init:init", "Write a first policy for an agent into this folder."),
        "run": ("commands.run:run", "Run an agent under policies."),
        "hook": ("commands.hook:hook", "Put policies on the agents that you use interactively."),
        "mcp": ("commands.agents:mcp", "Enforce policies between agents and an MCP server."),
        "adapters": ("commands.agents:adapters", "Show what each adapter can do, and which work here."),
    },
    "Policies": {
        "check": ("commands.policies:check", "Check policy files before anything runs."),
        "test": ("commands.policies:test", "Run the unit tests of policies."),
        "prove": ("commands.prove:prove", "Prove a property of every session, or show a counterexample."),
        "graph": ("commands.policies:graph", "Draw a policy's rules and nets."),
        "migrate": ("commands.policies:migrate", "Rewrite an older policy file in the current format."),
        "schema": ("commands.policies:schema", "Print the JSON Schema of policy files."),
    },
    "Recorded sessions": {
        "eval": ("commands.sessions:evaluate", "Evaluate recorded sessions under a policy."),
        "diff": ("commands.sessions:diff", "Show what a new policy would decide differently."),
        "suggest": ("commands.sessions:suggest", "Propose a policy from recorded sessions."),
        "narrow": ("commands.sessions:narrow", "List the tools that could be called after a recorded session."),
    },
    "Runs": {
        "runs": ("commands.runs:runs", "List the stored runs."),
        "show": ("commands.runs:show", "Show a stored run."),
        "tail": ("commands.runs:tail", "Show the latest events, and follow them."),
        "watch": ("commands.runs:watch", "Show runs, limits and pending approvals, live."),
        "explain": ("commands.runs:explain", "Explain each decision of a run."),
        "kill": ("commands.stop:kill", "Cancel runs, in any process."),
        "budgets": ("commands.stop:budgets", "Show how much of each shared budget is used."),
    },
    "People": {
        "approvals": ("commands.approvals:approvals", "List pending approval requests."),
        "approve": ("commands.approvals:approve", "Approve a waiting call."),
        "deny": ("commands.approvals:deny", "Deny a waiting call."),
        "serve": ("commands.serve:serve", "Serve the dashboard and the HTTP API."),
    },
    "Operate": {
        "store": ("commands.records:store_", "Show where the store is and how big it is; create or back it up."),
        "export": ("commands.records:export", "Write the event log as lines of JSON."),
        "import": ("commands.records:import_", "Load what export wrote."),
        "prune": ("commands.records:prune", "Remove old sessions."),
        "audit": ("commands.records:audit", "Check that the event log is complete and unchanged."),
        "reap": ("commands.stop:reap", "End runs whose supervisor is gone (lost runs)."),
        "fleet": ("commands.fleet:fleet", "Manage workers on a Ray cluster."),
    },
}
"""Heading of the help -> name -> where the command is, and its one line of help."""
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


def _with_repeats(command: click.Command) -> click.Command:
    """A command whose help says which options may be given several times."""
    for each in _leaves(command):
        for option in each.params:
            if isinstance(option, click.Option) and option.multiple and "repeat" not in str(option.help).lower():
                option.help = f"{option.help} Repeatable."
    return command


def _leaves(command: click.Command) -> Iterable[click.Command]:
    return command.commands.values() if isinstance(command, click.Group) else (command,)


def _strict(command: click.Command) -> click.Command:
    """A command that rejects what click would accept: an option given twice, of which the last would win; an empty
    value, as of a variable that is not set, for which a default or this folder would stand in; and one file for two
    outputs, of which the second would replace the first.
    """
    for each in _leaves(command):
        setattr(each, "make_parser", partial(_strict_parser, type(each).make_parser, each))  # noqa: B010
    return command


def _strict_parser(make_parser: Callable[..., Any], command: click.Command, ctx: click.Context) -> Any:
    parser = make_parser(command, ctx)
    parse = parser.parse_args

    def parse_args(args: list[str]) -> Any:
        options, rest, order = parse(args)
        _check_given_once(order, ctx)
        for parameter in order:
            if parameter.type is not click.UNPROCESSED:
                _check_not_empty(parameter, options.get(parameter.name), ctx)
        _check_outputs(options, order, ctx)
        return options, rest, order

    parser.parse_args = parse_args
    return parser


def _check_given_once(order: list[click.Parameter], ctx: click.Context) -> None:
    given: dict[str | None, click.Option] = {}
    for option in (each for each in order if isinstance(each, click.Option) and not each.multiple):
        other = given.setdefault(option.name, option)
        first, second = _longest(other), _longest(option)
        if first != second:
            raise click.UsageError(f"`{first}` and `{second}` are given; give one of them", ctx)
        if not option.is_flag and order.count(option) > 1:
            raise click.UsageError(f"`{first}` is given twice; give it once", ctx)


def _check_not_empty(parameter: click.Parameter, value: Any, ctx: click.Context) -> None:
    if value == "" or (isinstance(value, list | tuple) and "" in value):
        named = _longest(parameter) if isinstance(parameter, click.Option) else parameter.make_metavar(ctx)
        instead = "give it one" if parameter.required else "give it one, or leave it out"
        raise click.UsageError(f"`{named}` is given with an empty value; {instead}", ctx)


def _check_outputs(options: dict[str, Any], order: list[click.Parameter], ctx: click.Context) -> None:
    written: dict[str, click.Option] = {}
    for option in (each for each in order if isinstance(each, click.Option)):
        kind, file = option.type, str(options.get(option.name or ""))
        if not isinstance(kind, click.Path) or kind.exists or file == "-":
            continue
        if os.path.exists(file) and not os.path.isfile(file):  # a device takes both
            continue
        other = written.setdefault(os.path.realpath(file), option)
        if other is not option:
            raise click.UsageError(f"`{_longest(other)}` and `{_longest(option)}` name one file; name two", ctx)


def _longest(option: click.Option) -> str:
    return max(option.opts, key=len)


class _Commands(click.Group):
    """Imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry[0].partition(":")
        command: click.Command = getattr(importlib.import_module(f".{module}", __package__), attribute)
        if signal.getsignal(signal.SIGINT) is leave:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return _strict(_with_repeats(command))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from proctor.policies.reading.schema import did_you_mean

            hint = did_you_mean(args[0], COMMANDS) or "`proctor --help` lists the commands"
            raise click.UsageError(f"there is no command `{args[0]}`; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for heading, commands in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in commands.items()])


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"proctor {version()}")
        ctx.exit()


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--debug", is_flag=True, help="Show a traceback with errors.")
@click.option(
    "--version", is_flag=True, callback=_version, expose_value=False, is_eager=True, help="Show the version."
)
def app(debug: bool) -> None:
    """Supervise AI agents: evaluate each tool call under your policies, and cancel runs that pass their limits.

    \b
    Exit codes:
      0  success
      1  a policy denied a call or cancelled the run (see --fail-on)
      2  bad input or usage
      3  the agent or the machine failed, or someone cancelled the run

    A policy, prompt or recorded session named - is standard input.
    """  # noqa: D301 - click's mark for lines that are kept as they are


def main(arguments: list[str] | None = None) -> None:
    """The entry point: runs one command and exits with its code; an error is one message, never a traceback."""
    given = sys.argv[1:] if arguments is None else arguments
    _open_streams()
    before = handlers()
    try:
        code = _run_command(given)
    except KeyboardInterrupt:  # while an error was told, or the output written
        print("interrupted", file=sys.stderr)
        code = _nobody_reads(FAILED)
    if arguments is None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: one Ctrl-C more must not change the exit code
    else:
        restore_handlers(before)
    sys.exit(code)


def _open_streams() -> None:
    """A stream that the parent process closed reads as empty and discards what is written, and so does a standard
    error that fails: the exit code still counts. Files and pipes get UTF-8 whatever the locale; what a terminal
    cannot show, or is not text, is escaped.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open to the end
    sys.stderr = lenient(sys.stderr, OSError)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        with suppress(OSError):  # else a pipe gives or takes a part, and nobody hears of the rest
            os.set_blocking(stream.fileno(), True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")


def _run_command(given: list[str]) -> int:
    debug, reported, output = "--debug" in given[:1], True, sys.stdout
    try:
        result: Any = app.main(args=given, prog_name="proctor", standalone_mode=False)
        code, reported = result if isinstance(result, int) else 0, False
    except click.exceptions.NoArgsIsHelpError as error:
        note(error.format_message())
        code = BAD_INPUT
    except click.ClickException as error:
        note(f"error: {usage_text(error)}")
        code = FAILED if is_machines(error) else BAD_INPUT
    except BrokenPipeError:
        return _nobody_reads(0)
    except SystemExit as error:
        if sys.stdout is not output:  # click puts another in its place once the reader of a pipe is gone
            return _nobody_reads(0)
        code = report(error, debug=debug)
    except click.Abort:
        code = report(KeyboardInterrupt(), debug=False)
    except (Exception, KeyboardInterrupt) as error:
        code = report(error, debug=debug)
    try:
        sys.stdout.flush()
    except OSError as error:
        if not reported and not isinstance(error, BrokenPipeError):
            code = report(error, debug=debug)
        return _nobody_reads(code)
    return code


def _nobody_reads(code: int) -> int:
    """Write nothing more on exit, as the reader of the output has left, or its disk is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
