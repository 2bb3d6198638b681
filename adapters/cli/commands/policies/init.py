"""`init`: a first policy for an agent, in the current folder."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from ...common import json_option
from ...terminal.output import say, say_json
from ..agents.hook import hooks_put, put_hooks

FILE = "proctor.yaml"
_RUN = f"proctor run --policy {FILE} --adapter"
_TASK = '"Fix the failing test"'
NEXT: dict[str, str] = {
    "claude": f"{_RUN} claude {_TASK}",
    "codex": f"{_RUN} codex {_TASK}",
    "opencode": f"{_RUN} acp {_TASK} -- opencode acp",
    "gemini": f"{_RUN} acp {_TASK} -- gemini --acp",
    "amp": f"{_RUN} amp {_TASK}",
    "shell": f'{_RUN} shell "make test"',
    "python": f"proctor check {FILE}",
}
"""Each agent, and the command that comes next."""
_HOOKED = "claude"


@click.command()
@click.option("--agent", type=click.Choice(list(NEXT)), help="Which agent; `python` is a framework or your own loop.")
@click.option("--hook/--no-hook", default=None, help="Hold your own Claude Code to it here, too. [default: no]")
@click.option("--yes", is_flag=True, help="Ask nothing; the agent is the first that is installed.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
@json_option
def init(agent: str | None, hook: bool | None, yes: bool, force: bool, as_json: bool) -> None:
    """Write `proctor.yaml`, a first policy for a coding agent, into this folder.

    It limits a run, keeps it inside the folder and off the network, and asks a person before anything is published.
    On a terminal, it asks for what the options leave open.
    """
    asks = not yes and not as_json and sys.stdin.isatty() and sys.stdout.isatty()
    path = Path(FILE)
    if not force and (path.exists() or path.is_symlink()):
        raise click.UsageError(f"there is a `{FILE}` already; `--force` overwrites it")
    chosen = agent or _agent(asks, yes)
    if hook and chosen != "claude":
        raise click.UsageError(f"`--hook` is for `--agent claude`, not for `{chosen}`")
    if hook is None:
        hook = asks and chosen == "claude" and click.confirm("Hold your own Claude Code to it here, by hooks?")
    with path.open("w" if force else "x", encoding="utf-8") as file:
        file.write(policy_text())
    settings, changed = put_hooks((FILE,)) if hook else (None, False)
    follows = _HOOKED if hook else NEXT[chosen]
    if as_json:
        say_json({"path": FILE, "agent": chosen, "hook": str(settings) if settings else None, "next": follows})
        return
    say(f"wrote {FILE}")
    if settings:
        say(hooks_put(settings, changed))
    say(f"next: {follows}")
    say("then: `proctor watch` shows what goes on, `proctor explain last` why each call was allowed or refused")


def policy_text() -> str:
    """The policy that is written."""
    return Path(__file__).with_name("init.yaml").read_text(encoding="utf-8")


def _agent(asks: bool, yes: bool) -> str:
    """The agent where no option names it. Raises UsageError where nobody can be asked."""
    installed = next((name for name in NEXT if name not in ("shell", "python") and shutil.which(name)), "claude")
    if yes:
        return installed
    if not asks:
        raise click.UsageError(f"name the agent: `--agent {'|'.join(NEXT)}`, or `--yes` for `{installed}`")
    chosen: str = click.prompt("Which agent", type=click.Choice(list(NEXT)), default=installed)
    return chosen
