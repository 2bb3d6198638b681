"""`init`: a policy to start from."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from ...agents.specs import SPECS
from ..options import json_option
from ..output import say, say_json
from .hook import hooks_put, put_hooks

_DATA = Path(__file__).parents[1] / "data"
PACKS = tuple(sorted(path.name.removesuffix(".test.yaml") for path in (_DATA / "packs").glob("*.test.yaml")))
"""The policies that are ready to use, each with its tests beside it."""
_FILE = "proctor.yaml"
_TASK = '"Fix the failing test"'


def _next(file: str) -> dict[str, str]:
    """Each agent, and the command that comes next."""
    run = f"proctor run --policy {file} --adapter"
    first = {spec.short_name: f"{run} {spec.first_run.format(task=_TASK)}" for spec in SPECS if spec.first_run}
    return {**first, "python": f"proctor check {file}"}


_AGENTS = tuple(_next(_FILE))


@click.command()
@click.option("--agent", type=click.Choice(_AGENTS), help="Which agent; `python` is a framework or your own loop.")
@click.option(
    "--pack", type=click.Choice(PACKS), help="A policy for one purpose, written as PACK.yaml with its tests."
)
@click.option("--hook/--no-hook", default=None, help="Hold your own Claude Code to it here, too. [default: no]")
@click.option("--yes", is_flag=True, help="Ask nothing; the agent is the first that is installed.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
@json_option
def init(agent: str | None, pack: str | None, hook: bool | None, yes: bool, force: bool, as_json: bool) -> None:
    """Write `proctor.yaml`, a first policy for a coding agent, into this folder.

    It limits a run, keeps it inside the folder and off the network, and asks a person before anything is published.
    With `--pack`, write a policy for one purpose instead, and its tests for `proctor test`. On a terminal, it asks
    for what the options leave open.
    """
    asks = not yes and not as_json and sys.stdin.isatty() and sys.stdout.isatty()
    texts = _texts(pack)
    file = next(iter(texts))
    for name in texts:
        if not force and (Path(name).exists() or Path(name).is_symlink()):
            raise click.UsageError(f"there is a `{name}` already; `--force` overwrites it")
    chosen = agent or _agent(asks, yes or pack is not None)
    if hook and chosen != "claude":
        raise click.UsageError(f"`--hook` is for `--agent claude`, not for `{chosen}`")
    if hook is None:
        hook = asks and chosen == "claude" and click.confirm("Hold your own Claude Code to it here, by hooks?")
    for name, text in texts.items():
        with Path(name).open("w" if force else "x", encoding="utf-8") as written:
            written.write(text)
    settings, changed = put_hooks((file,)) if hook else (None, False)
    follows = "claude" if hook else _next(file)[chosen]
    if as_json:
        say_json({"path": file, "agent": chosen, "hook": str(settings) if settings else None, "next": follows})
        return
    for name in texts:
        say(f"wrote {name}")
    if settings:
        say(hooks_put(settings, changed))
    say(f"next: {follows}")
    say("then: `proctor watch` shows what goes on, `proctor explain last` why each call was allowed or refused")


def _texts(pack: str | None) -> dict[str, str]:
    """What is written, by the file's name; the policy is the first."""
    if pack is None:
        return {_FILE: (_DATA / "init.yaml").read_text(encoding="utf-8")}
    names = f"{pack}.yaml", f"{pack}.test.yaml"
    return {name: (_DATA / "packs" / name).read_text(encoding="utf-8") for name in names}


def _agent(asks: bool, yes: bool) -> str:
    """The agent where no option names it. Raises UsageError where nobody can be asked."""
    installed = next((name for name in _AGENTS if name not in ("shell", "python") and shutil.which(name)), "claude")
    if yes:
        return installed
    if not asks:
        raise click.UsageError(f"name the agent: `--agent {'|'.join(_AGENTS)}`, or `--yes` for `{installed}`")
    chosen: str = click.prompt("Which agent", type=click.Choice(_AGENTS), default=installed)
    return chosen
