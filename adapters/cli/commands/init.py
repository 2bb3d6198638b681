"""`init`: writes a policy to start from."""

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from proctor.policies import compile_policy, load_policies, merge_policies
from proctor.policies.events import ToolCallStarted

from ...agents.catalog import SPECS
from ...hooks.permission_import import AGENTS as FROM
from ...hooks.permission_import import Permissions, policy_text, portable_call
from ...kit.display_text import escape_control
from ..options import json_option
from ..output import echo, echo_json, replaced
from .hook import AGENTS as HOOKED
from .hook import WantedHooks, hooks_put, put_hooks

_DATA = Path(__file__).parents[1] / "data"
PACKS = tuple(sorted(path.name.removesuffix(".test.yaml") for path in (_DATA / "packs").glob("*.test.yaml")))
"""The policies that are ready to use, each with its tests beside it."""
_FILE = "proctor.yaml"
_SHOWN = 20
_TASK = '"Fix the failing test"'


def _next(file: str) -> dict[str, str]:
    run = f"proctor run --policy {file} --adapter"
    first = {spec.short_name: f"{run} {spec.first_run.format(task=_TASK)}" for spec in SPECS if spec.first_run}
    return {**first, "python": f"proctor check {file}"}


_AGENTS = tuple(_next(_FILE))
_NAMED = tuple(dict.fromkeys((*_AGENTS, *HOOKED)))


@click.command()
@click.option("--agent", type=click.Choice(_NAMED), help="The agent; `python` is a framework or your own loop.")
@click.option(
    "--pack",
    type=click.Choice(PACKS),
    metavar="PACK",
    help=f"Write this pack instead, as PACK.yaml, with its tests: {', '.join(PACKS)}.",
)
@click.option(
    "--from", "source", type=click.Choice(FROM), help="Write the permissions in this agent's settings as a policy."
)
@click.option(
    "--sessions",
    multiple=True,
    metavar="TRACE",
    help="With --from: show the recorded calls that the two decide differently.",
)
@click.option(
    "--hook/--no-hook",
    default=None,
    help="Also install hooks for your own use of the agent in this folder. [default: no]",
)
@click.option("--yes", is_flag=True, help="Ask nothing, and use the first installed agent.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
@json_option
def init(
    agent: str | None,
    pack: str | None,
    source: str | None,
    sessions: tuple[str, ...],
    hook: bool | None,
    yes: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write `proctor.yaml`, a first policy for a coding agent, into this folder.

    The policy limits a run, denies changes outside the folder and commands that use the network, and asks a person
    before anything is published. --from writes a policy that allows no more than an agent's own permissions, and
    lists what it could not express. On a terminal, proctor asks for missing options.

    \b
    proctor init --agent claude
    proctor init --pack coding-agent --agent claude --hook
    proctor init --from claude --sessions ~/.claude/projects/my-project
    """  # noqa: D301 - click's mark for lines that are kept as they are
    if source and pack:
        raise click.UsageError("give `--pack` or `--from`, not both")
    if sessions and not source:
        raise click.UsageError("`--sessions` needs `--from`")
    asks = not yes and not as_json and sys.stdin.isatty() and sys.stdout.isatty()
    given = _permissions(source) if source else None
    texts = {f"from-{source}.yaml": policy_text(given)} if given else _texts(pack)
    file = next(iter(texts))
    _check_free(texts, force)
    chosen = agent or source or _agent(asks, yes or pack is not None)
    if hook and chosen not in HOOKED:
        raise click.UsageError(f"`--hook` is for {', '.join(HOOKED)}, not for `{chosen}`")
    if hook is None:
        hook = asks and chosen in HOOKED and click.confirm(f"Also install hooks for your own {chosen} here?")
    _check_free(texts, force)  # the questions may have taken a while
    for name, text in texts.items():
        with replaced(name) as written:
            written.write(text.encode())
    hooks = put_hooks(WantedHooks(policies=(file,), agent=chosen)) if hook else None
    install = f"proctor hook install --agent {chosen} --policy {file}"
    follows = chosen if hook else install if source else _next(file).get(chosen, install)
    differ = _differences(given, file, sessions) if given and sessions else []
    if as_json:
        put = {"hook": str(hooks[0]), "notes": hooks[2]} if hooks else {"hook": None}
        more = {"from": given.files, "not_said": given.unsaid, "differences": differ} if given else {}
        echo_json({"path": file, "agent": chosen, **put, "next": follows, **more})
        return
    for name in texts:
        echo(f"wrote {name}")
    for line in given.unsaid if given else ():
        echo(f"not said: {escape_control(line)}")
    if sessions:
        _show_differences(differ)
    if hooks:
        settings, changed, notes = hooks
        for line in (hooks_put(settings, changed), *notes):
            echo(line)
    echo(f"next: {follows}")
    echo("then: `proctor watch` shows the run, `proctor explain last` explains each decision")


def _permissions(agent: str) -> Permissions:
    from ...hooks.clients import CLIENTS

    read = CLIENTS[agent].permissions
    assert read is not None
    return read()


def _show_differences(found: list[dict[str, str]]) -> None:
    echo(f"recorded calls that differ: {len(found):,}")
    for one in found[:_SHOWN]:
        call = f"{one['tool']} {escape_control(one['value'])[:90]}"
        echo(f"  {one['settings']} by the settings, {one['policy']} by the policy: {call}")


def _differences(given: Permissions, file: str, sessions: tuple[str, ...]) -> list[dict[str, str]]:
    """The recorded calls, each once, that the settings and the policy answer otherwise."""
    from ...evaluate import judge_session
    from ...kit.client_tools import recorded_tools
    from ...traces import read_sessions

    compiled = compile_policy(merge_policies(load_policies(file)))
    answers = {"request_approval": "ask", "deny": "deny", "cancel": "deny"}
    found: dict[tuple[str, str], dict[str, str]] = {}
    for session in read_sessions(sessions, stdin=sys.stdin.buffer):
        tools = recorded_tools(session.events, session.format)
        judged: dict[str | None, str] = {}
        for violation in judge_session(compiled, session).violations:
            answer = answers.get(violation.action, "allow")
            if judged.get(violation.tool_call_id) != "deny":
                judged[violation.tool_call_id] = answer
        for event in session.events:
            if isinstance(event, ToolCallStarted):
                tool, value = portable_call(event.tool_name, event.tool_input, tools)
                by_settings, by_policy = given.decide(tool, value), judged.get(event.tool_call_id, "allow")
                if by_settings != by_policy:
                    found[tool, value] = {"settings": by_settings, "policy": by_policy, "tool": tool, "value": value}
    return list(found.values())


def _check_free(names: Iterable[str], force: bool) -> None:
    """Raises UsageError for a file that is there and may not be overwritten."""
    for name in names:
        if not force and (Path(name).exists() or Path(name).is_symlink()):
            raise click.UsageError(f"`{name}` exists; `--force` overwrites it")


def _texts(pack: str | None) -> dict[str, str]:
    if pack is None:
        return {_FILE: (_DATA / "init.yaml").read_text(encoding="utf-8")}
    names = f"{pack}.yaml", f"{pack}.test.yaml"
    return {name: (_DATA / "packs" / name).read_text(encoding="utf-8") for name in names}


def _agent(asks: bool, yes: bool) -> str:
    """The agent if no option names one. Raises UsageError without a terminal to ask at."""
    installed = next((name for name in _AGENTS if name not in ("shell", "python") and shutil.which(name)), "claude")
    if yes:
        return installed
    if not asks:
        raise click.UsageError(f"name the agent: `--agent {'|'.join(_AGENTS)}`, or `--yes` for `{installed}`")
    chosen: str = click.prompt("Which agent", type=click.Choice(_AGENTS), default=installed)
    return chosen
