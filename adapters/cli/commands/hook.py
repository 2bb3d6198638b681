"""`hook`: policies in the agents that a person uses interactively."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import click
import msgspec

from proctor.policies import Capabilities, Policy, RunContext, merge_policies, preflight
from proctor.policies.limits import LIMITS
from proctor.policies.values.amounts import counted, figure_in
from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.stored_types import RunFilter, RunInfo

from ...hooks.messages import MOST_HELD_S, UNMATCHED, HookClient, Unmatched
from ...kit.client_tools import HOOKED
from ...kit.display_text import encoded, escape_control, escape_control_json
from ...stores.store_names import DEFAULT_STORE
from ..options import (
    context_option,
    is_named,
    is_there_as_named,
    json_option,
    opened,
    policy_option,
    read_policies,
    run_async,
    store_named,
    store_option_with,
    write_document,
)
from ..output import echo, echo_json, echo_rows, note, output_option, output_parameter, written_to

if TYPE_CHECKING:
    from proctor.supervisor.ports.store import Store

    from ...hooks.settings import Scope


AGENTS: Final = tuple(HOOKED)
"""The names of `hooks.clients.CLIENTS`, which take time to import."""
_PROBE_S: Final = 30.0
_store_option = store_option_with(about="The store of hooks: a SQLite file.")


@click.group("hook", invoke_without_command=True)
@click.option("--explain-last", is_flag=True, help="Show the last decision, and why.")
@_store_option
@output_parameter
@json_option
@click.pass_context
def hook(ctx: click.Context, explain_last: bool, store: str | None, output: str | None, as_json: bool) -> None:
    """Put policies on the agents that you use interactively.

    For Claude Code, Codex, Gemini CLI, opencode, Cursor and Copilot CLI. `install` writes hooks into the agent's
    settings; the agent then asks proctor about each call.
    """
    if ctx.invoked_subcommand is None:
        if not explain_last:
            raise click.exceptions.NoArgsIsHelpError(ctx)
        with written_to(output):
            _explain_last(store, as_json=as_json)
    elif explain_last:
        raise click.UsageError(f"`--explain-last` does not go with `{ctx.invoked_subcommand}`")
    elif store is not None or output is not None:
        raise click.UsageError(f"`--store` and `-o` go after `{ctx.invoked_subcommand}`")


def _explain_last(store: str | None, *, as_json: bool) -> None:
    from ...hooks.decisions import LastAnswer
    from ...hooks.hook import ANSWER_NOTE
    from ...hooks.record import latest_note

    path = _hook_store(store)
    data = latest_note(path, ANSWER_NOTE) if is_there_as_named(store) else None
    if data is None:
        echo_rows([(None, "no decision is recorded yet")], as_json=as_json)
        return
    last = msgspec.json.decode(data, type=LastAnswer)
    if as_json:
        echo_json(msgspec.to_builtins(last))
        return
    echo(f"{last.answer}: {last.tool_name} {encoded(last.tool_input)}")
    echo(f"at {last.at}, in run {last.run_id}, call {last.tool_call_id}")
    for line in last.because:
        echo(f"  {line}")


class WantedHooks(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent's hooks do. With `hold_s` None, an agent that cannot ask its person waits as long as it may."""

    policies: tuple[str, ...]
    agent: str
    store: str | None = None
    context: RunContext | None = None
    unmatched: Unmatched = UNMATCHED
    http: bool = False
    hold_s: int | None = None


agent_option = click.option(
    "--agent", type=click.Choice(AGENTS), default="claude", help="The agent. [default: claude]"
)
_DECIDING = (
    click.option(
        "--unmatched",
        type=click.Choice(get_args(Unmatched)),
        default=UNMATCHED,
        help="For calls that no rule denies and no allow list allows: leave them to the agent (ask), allow, or deny. "
        f"[default: {UNMATCHED}]",
    ),
    click.option("--http", is_flag=True, help="Claude Code only: send hooks over HTTP, without a process for each."),
    click.option(
        "--hold",
        "hold_s",
        type=click.IntRange(0, MOST_HELD_S),
        default=0,
        metavar="SECONDS",
        help="If the agent can't ask you: how long a call waits for an approval. [default: 0, deny at once]",
    ),
)


def hook_options(place: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The options of `WantedHooks`; in their middle, those that say where the hooks go."""

    def added(command: Any) -> Any:
        for option in reversed((policy_option, _store_option, context_option, agent_option, place, *_DECIDING)):
            command = option(command)
        return command

    return added


MANAGED: Final = (
    "Managed settings, which no other settings can undo: for every user, each with a store of their own "
    f"({DEFAULT_STORE}). With --store: for you alone."
)


def settings_file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The settings file to change: `--project`, `--user`, `--managed`."""
    for scope, text in (("managed", MANAGED), ("user", "All your folders."), ("project", "This folder. [default]")):
        command = click.option(f"--{scope}", "scope", flag_value=scope, default="project", help=text)(command)
    return command


@hook.command("install", short_help="Install the hooks.")
@hook_options(settings_file_options)
@json_option
def install(scope: Scope, as_json: bool, **wanted: Any) -> None:
    """Write the hooks into the agent's settings, and keep everything else in them.

    If an allow list of the policies allows a call, agents that support it run the call without asking you.

    \b
    proctor hook install --policy proctor.yaml
    proctor hook install --agent codex --user --policy proctor.yaml --hold 540
    """  # noqa: D301 - click's mark for lines that are kept as they are
    path, changed, notes = put_hooks(WantedHooks(**wanted), scope)
    done = {"path": str(path), "changed": changed, "notes": notes}
    echo_rows([(done, "\n".join([hooks_put(path, changed), *notes]))], as_json=as_json)


@hook.command("settings", short_help="Print the settings with the hooks.")
@hook_options(click.option("--managed", "as_managed", is_flag=True, help=MANAGED))
@output_option
@json_option
def settings(as_managed: bool, as_json: bool, **wanted: Any) -> None:
    """Print the settings file that `install` would write. --json prints it on one line."""
    from ...hooks.settings import document

    given = WantedHooks(**wanted)
    client = _client(given.agent)
    wanted_ones, doubts = _wanted(given, client, given.hold_s or 0, managed=as_managed)
    for doubt in doubts:
        note(doubt)
    text = document(wanted_ones, client)
    if client.settings.text is not None:
        write_document(json.dumps(text) if as_json else text.rstrip("\n"))
    else:
        line = json.dumps(json.loads(text), separators=(",", ":")) if as_json else text.rstrip("\n")
        write_document(escape_control_json(line))


@hook.command("uninstall", short_help="Remove the hooks.")
@agent_option
@settings_file_options
@json_option
def uninstall(agent: str, scope: Scope, as_json: bool) -> None:
    """Remove the hooks from the agent's settings. Other changes in the file are kept."""
    from ...hooks.settings import uninstall

    client, path = _client(agent), _path(agent, scope)
    changed = uninstall(path, client)
    if client.trust is not None:
        client.trust.distrust(client.settings, path)
    done = f"removed the hooks from {path}" if changed else f"no hooks of proctor in {path}"
    echo_rows([({"path": str(path), "changed": changed}, done)], as_json=as_json)


@hook.command("status", short_help="Show where hooks are installed, and whether they work.")
@click.option("--agent", type=click.Choice(AGENTS), help="Only this agent.")
@json_option
@click.pass_context
def status(ctx: click.Context, agent: str | None, as_json: bool) -> None:
    """Show where hooks are installed, and send a probe through each as the agent would.

    Exit code 1: a hook doesn't work, or none is installed.
    """
    rows = [row for name in ([agent] if agent else AGENTS) for row in _statuses(name)]
    for row in rows:
        if as_json:
            echo_json(row)
            continue
        echo(f"{row['agent']} ({row['scope']}): {'active' if row['active'] else 'NOT active'}, {row['path']}")
        for each in row["notes"]:
            echo(f"  {each}")
    if not rows and not as_json:
        echo("no hooks are installed here; `proctor hook install --policy FILE` installs them")
    if not rows or not all(row["active"] for row in rows):
        ctx.exit(1)


def _statuses(agent: str) -> Iterator[dict[str, Any]]:
    from ...hooks.settings import lines_in

    client = _client(agent)
    scopes: tuple[Scope, ...] = ("project", "user", "managed") if client.settings.managed else ("project", "user")
    seen: set[str] = set()
    for scope in scopes:
        path = _path(agent, scope)
        if (real := os.path.realpath(path)) in seen:
            continue
        seen.add(real)
        try:
            lines = lines_in(path, client)
        except UsageError as error:
            yield {"agent": agent, "scope": scope, "path": str(path), "active": False, "notes": [str(error)]}
            continue
        if lines:
            yield _status(client, scope, path, lines)


def _status(client: HookClient, scope: Scope, path: Path, lines: Iterable[str]) -> dict[str, Any]:
    """Whether the hooks of one file decide, and what to know about them."""
    from ...hooks.settings import endpoints_in, rivals

    answers = [_probed(line, _own_shell() if client.settings.own_shell else "/bin/sh") for line in lines]
    answers += [_endpoint_answers(*to) for to in endpoints_in(path, client)]
    started, notes = _loads(client, path, managed=scope == "managed")
    if old := _too_old(client):
        started, notes = False, [*notes, old]
    if client.trust is None and shutil.which(client.program) is None:
        unchecked = ", so proctor cannot check its version" if client.lowest else ""
        notes = [*notes, f"`{client.program}` is not on PATH here{unchecked}"]
    if scope != "managed":
        notes += [f"`{file}` can change what is decided here" for file in rivals(path, Path.cwd(), client)]
    return {
        "agent": client.name,
        "scope": scope,
        "path": str(path),
        "active": started and all(good for good, _ in answers),
        "notes": [*(text for _, text in answers), *notes, *(f"fails open: {one}" for one in client.fails_open)],
    }


def _own_shell() -> str:
    """The person's."""
    import pwd

    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    return "/bin/sh"


def _probed(line: str, shell: str) -> tuple[bool, str]:
    """Whether a hook's line decides, started as an agent starts it; and by what, or why not."""
    from ...hooks.daemon import PROBE

    try:
        ended = subprocess.run([shell, "-c", line], input=PROBE, capture_output=True, timeout=_PROBE_S)
        if ended.stdout[:1] not in (b"", b"{"):
            return False, f"`{shell}` prints text as it starts, so the agent does not find the hook's answer"
        found = json.loads(ended.stdout) if ended.returncode == 0 and ended.stdout else {}
    except (OSError, ValueError, RecursionError, subprocess.TimeoutExpired) as error:
        return False, f"the hook did not answer: {error}"
    if "policy" in found:
        return True, f"decided by policy `{found['policy']}`, unmatched: {found['unmatched']}"
    why = found.get("systemMessage") or ended.stderr.decode(errors="replace").strip() or "it ended"
    return False, f"the hook {'denies everything' if ended.returncode in (0, 2) else 'fails'}: {why}"


def _endpoint_answers(url: str, authorization: str) -> tuple[bool, str]:
    """Whether hooks that the agent sends there are answered, once the hook daemon was started; or why not."""
    import urllib.request

    from ...hooks.daemon import PROBE

    request = urllib.request.Request(url, PROBE, {"Authorization": authorization})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=_PROBE_S) as answer:
            return b'"policy"' in answer.read(), f"hooks are sent to {url}"
    except OSError as error:
        return False, f"nothing answers hooks that are sent to {url}: {error}"


def _loads(client: HookClient, path: Path, *, managed: bool) -> tuple[bool, list[str]]:
    """Whether the agent starts hooks of this file, as far as its settings say; and why not."""
    if client.trust is not None:
        return client.trust.loads(Path.cwd(), path)
    own = client.settings
    folder = () if managed else (Path.cwd() / each for each in own.overriding)
    for file in (*folder, path) if own.off else ():  # the first that says anything holds
        try:
            found = json.loads(file.read_text())
            for key in own.off:
                found = found[key]
        except (KeyError, FileNotFoundError):
            continue
        except (OSError, ValueError, TypeError, RecursionError) as error:
            return False, [f"whether `{file}` switches hooks off cannot be read: {error}"]
        return (True, []) if found is own.on else (False, [f"hooks are switched off in `{file}`"])
    return True, []


@hook.command("status-line", short_help="Print how much of the limits is used, for a status line.")
@_store_option
@json_option
def status_line(store: str | None, as_json: bool) -> None:
    """Print one line: how much of a session's limits and shared budgets is used.

    For `statusLine` in Claude Code's settings, which names the session on standard input. If nothing is known, the
    line is empty.
    """
    try:
        session_id = str(json.load(sys.stdin)["session_id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        session_id = ""

    async def figures() -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
        async with opened(store) as kept:
            found = await kept.runs(limit=1, where=RunFilter(begins=f"{session_id}-")) if session_id else []
            return await _figures_of(kept, found[0]) if found else ([], [], 0)

    uses, shared, by_subagents = run_async(figures)
    if as_json:
        echo_json({"session": session_id, "limits": uses, "budgets": shared, "subagent_tokens": by_subagents})
        return
    parts = []
    for use in uses:
        unit = LIMITS[use["limit"]].unit
        used = f"{figure_in(unit, use['used'])}/{figure_in(unit, use['max'])}"
        parts.append(f"{use['limit'].removeprefix('max_')} {used}")
    for one in shared:
        part = f"{one['used'] / one['max']:.0%}" if one["max"] else "used up"
        parts.append(f"{escape_control(one['budget'].partition('/')[2])} {part}")
    echo(" · ".join([*parts, *([f"subagents {counted(by_subagents, 'token')}"] if by_subagents else [])]))


async def _figures_of(kept: Store, run: RunInfo) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """The limits of a run, the shared budgets that it uses, and the tokens of its subagents."""
    from ...operations.service import OperatorService

    service = OperatorService(kept)
    fold = await service.folds.of(run)
    uses = [{"limit": use.limit, "used": use.used, "max": use.max} for use in fold.limits()]
    mine = {(claim.budget, claim.key): claim.max for claim in fold.refold().monitor.budgets}
    shared = [
        {"budget": one.budget, "key": one.key, "used": one.in_use, "max": mine[one.budget, one.key]}
        for one in (await service.budgets()).budgets
        if (one.budget, one.key) in mine
    ]
    return uses, shared, run.usage.subagent_tokens


def put_hooks(wanted: WantedHooks, scope: Scope = "project") -> tuple[Path, bool, list[str]]:
    """Write the hooks into the agent's settings: where these are, whether that changed them, and what to know."""
    from ...hooks.settings import install, lines_in

    client, path, hold_s = _client(wanted.agent), _path(wanted.agent, scope), wanted.hold_s
    if hold_s is None:
        hold_s = MOST_HELD_S if client.hears == "call" else 0
    if old := _too_old(client):
        raise UsageError(old)
    settings, doubts = _wanted(wanted, client, hold_s, managed=scope == "managed")
    if client.trust is not None and not lines_in(path, client):
        client.trust.back_up(client.settings)
    changed = install(path, settings, client)
    held = [f"a call to be approved waits {hold_s} s for `proctor approvals` or `proctor serve`"] if hold_s else []
    trusted = [client.trust.trust(Path.cwd(), path)] if client.trust is not None else []
    return path, changed, [*doubts, *held, *trusted]


def hooks_put(path: Path, changed: bool) -> str:
    """What `put_hooks` did, in words."""
    return f"wrote the hooks into {path}" if changed else f"the hooks are in {path} already"


def _client(agent: str) -> HookClient:
    from ...hooks.clients import CLIENTS

    return CLIENTS[agent]


def _path(agent: str, scope: Scope) -> Path:
    from ...hooks.settings import settings_path

    folder = Path(os.getcwd())
    return settings_path(user=scope == "user", managed=scope == "managed", folder=folder, client=_client(agent))


def _wanted(
    wanted: WantedHooks, client: HookClient, hold_s: int, *, managed: bool
) -> tuple[dict[str, Any], list[str]]:
    """The settings, once the policies are known to be good and the store to be one; and what will not hold: limits,
    as the agent does not say what the model uses, misspelt tools, and those that no hook shows. Managed ones have a
    store of each user if none is named.

    Raises PolicyError, UsageError.
    """
    from ...hooks.settings import settings_with_hooks
    from ...kit.client_tools import misspelt_tools

    if hold_s and client.hears != "call":
        raise UsageError(f"`--hold` is for agents that cannot ask you: {client.title} asks you itself")
    if "-" in wanted.policies:
        raise UsageError("a hook reads its policies again; name files instead of `-`")
    reports = client.usage is not None or client.tells_usage
    can_do = Capabilities(gate="all", usage="per_turn" if reports else "none")
    policy = merge_policies(read_policies(wanted.policies))
    findings = preflight(policy, can_do)
    findings.check()
    path = None if managed and not is_named(wanted.store) else _hook_store(wanted.store)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    settings = settings_with_hooks(
        [Path(file) for file in wanted.policies],
        path,
        wanted.context or RunContext(),
        unmatched=wanted.unmatched,
        client=client,
        http=wanted.http,
        hold_s=hold_s,
        managed=managed,
    )
    uncounted = [f"{client.title}: {each.message}" for each in findings if each.code == "uncounted_limit"]
    return settings, [*uncounted, *map(str, misspelt_tools(policy)), *_unheard(policy, client)]


def _unheard(policy: Policy, client: HookClient) -> Iterator[str]:
    """What rules say about tools that no hook of the agent shows."""
    from proctor.policies.stack.clauses import clauses_of
    from proctor.policies.values.globs import matcher

    for clause in clauses_of(policy):
        named = clause.names
        for tool, why in client.unheard.items():
            if any(map(matcher([tool]), named)):
                yield f"{clause.policy}/{clause.id} does nothing about `{tool}` in {client.title}: {why}"


def _too_old(client: HookClient) -> str:
    """Why the agent that is here cannot have these hooks; empty where it can, or is not here."""
    from ...hooks.messages import version

    program = shutil.which(client.program) if client.lowest else None
    if program is None:
        return ""
    try:
        ended = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = version(ended.stdout.decode(errors="replace"))
    if not () < found < version(client.lowest):
        return ""
    named = ".".join(map(str, found))
    return f"{client.title} {named} can run calls without a decision; update it to {client.lowest}"


def _hook_store(store: str | None) -> Path:
    path = store_named(store)
    if isinstance(path, str):
        raise UsageError(
            "hooks need a SQLite file: each call waits for the store, and settings must not hold a database's "
            "password; name a file with `--store`"
        )
    return path
