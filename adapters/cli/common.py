"""Options that several commands have."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import click

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of text.")
store_option = click.option(
    "--store",
    metavar="STORE",
    help="The store, a SQLite file or postgresql://USER@HOST/DATABASE. "
    "[default: PROCTOR_STORE, else proctor/runs.db in XDG_STATE_HOME, ~/.local/state]",
)
_policies = partial(click.option, "--policy", "policies", metavar="FILE", multiple=True)
_STACKED = "A policy file; repeat it to stack more, left to right."
policy_option = _policies(required=True, help=_STACKED)
any_policy_option = _policies(help=f"{_STACKED} Without one nothing is refused.")
context_option = click.option(
    "--context",
    metavar="KEY=VALUE",
    multiple=True,
    help="Facts that rules test in `when`: user_role=admin, labels.env=prod. Values are text; metadata.NAME:=VALUE "
    "takes JSON.",
)
format_option = click.option(
    "--format", metavar="NAME", help="Format of the traces: events, sessions, claude, codex, otel."
)

fail_on_option = click.option(
    "--fail-on",
    type=click.Choice(["never", "warn", "deny", "cancel"]),
    default="deny",
    show_default=True,
    help="Exit with 1 when a rule of this action, or a stricter one, was broken.",
)


def write_document(text: str) -> None:
    """A document to standard output, exactly; a terminal shows what does not print as its escape."""
    from proctor.adapters.kit.values.printable import printable_lines

    shown = printable_lines(text) if sys.stdout.isatty() else text
    sys.stdout.write(shown.rstrip("\n") + "\n")


def run_async(function: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function to its end."""
    import anyio

    return anyio.run(function)


def check_format(name: str | None) -> None:
    """Raises UsageError naming the formats when there is none of that name."""
    from proctor.adapters.traces import FORMATS
    from proctor.policies.reading.suggestions import did_you_mean

    if name is not None and name not in FORMATS:
        hint = did_you_mean(name, FORMATS) or f"there are {', '.join(f'`{f}`' for f in FORMATS)}"
        raise click.UsageError(f"no trace format is called `{name}`; {hint}")
