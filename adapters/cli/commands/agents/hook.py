"""`proctor hook`: a person's own Claude Code under policies, through the hooks of its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...common import context_option, json_option, policy_option, store_option, write_document
from ...output_file import output_option
from ...terminal.output import say, say_json


@click.group("hook")
def hook() -> None:
    """Hold a person's own Claude Code to policies.

    `install` writes the hooks into its settings, `settings` prints them, `remove` takes them out. A hook
    itself is started by the client.
    """


@hook.command("install", short_help="Write the hooks into the client's settings.")
@policy_option
@store_option
@context_option
@click.option(
    "--user/--project", default=False, help="For this person everywhere, or in this folder. [default: folder]"
)
@json_option
def install(
    policies: tuple[str, ...], store: str | None, context: tuple[str, ...], user: bool, as_json: bool
) -> None:
    """Write the hooks into the client's settings; everything else in them stays."""
    path, changed = put_hooks(policies, store, context, user=user)
    if as_json:
        say_json({"path": str(path), "changed": changed})
    else:
        say(hooks_put(path, changed))


@hook.command("settings", short_help="Print the hooks.")
@policy_option
@store_option
@context_option
@click.option("--managed", "as_managed", is_flag=True, help="As managed settings, which no other settings undo.")
@output_option
@json_option
def settings(
    policies: tuple[str, ...],
    store: str | None,
    context: tuple[str, ...],
    as_managed: bool,
    as_json: bool,
) -> None:
    """Print the hooks as they stand in the client's settings; with --json on one line."""
    import msgspec

    from proctor.adapters.claude_hook.settings import managed, unmanaged
    from proctor.adapters.kit.values.printable import printable_json

    found = _wanted(policies, store, context)
    wanted = managed(found) if as_managed else unmanaged(found)
    encoded = msgspec.json.encode(wanted)
    written = encoded if as_json else msgspec.json.format(encoded, indent=2)
    write_document(printable_json(written.decode()))


@hook.command("remove", short_help="Take the hooks out again.")
@click.option(
    "--user/--project", default=False, help="For this person everywhere, or in this folder. [default: folder]"
)
@json_option
def remove(user: bool, as_json: bool) -> None:
    """Take the hooks out of the client's settings; everything else in them stays."""
    from proctor.adapters.claude_hook.settings import removed, settings_path

    path = settings_path(user=user, folder=Path.cwd())
    changed = removed(path)
    if as_json:
        say_json({"path": str(path), "changed": changed})
    else:
        say(f"took the hooks out of {path}" if changed else f"there are none of our hooks in {path}")


def put_hooks(
    policies: tuple[str, ...], store: str | None = None, context: tuple[str, ...] = (), *, user: bool = False
) -> tuple[Path, bool]:
    """Write the hooks into the client's settings: where these are, and whether that changed them."""
    from proctor.adapters.claude_hook.settings import installed, settings_path

    path = settings_path(user=user, folder=Path.cwd())
    return path, installed(path, _wanted(policies, store, context))


def hooks_put(path: Path, changed: bool) -> str:
    """What `put_hooks` did, in words."""
    return f"wrote the hooks into {path}" if changed else f"the hooks are in {path} already"


def _wanted(policies: tuple[str, ...], store: str | None, context: tuple[str, ...]) -> dict[str, Any]:
    """The hooks, once the policies are known to be good and the store to be one."""
    from proctor.adapters.claude_hook.session_record import store_id
    from proctor.adapters.claude_hook.settings import hooks
    from proctor.policies import Capabilities, merge_policies, preflight
    from proctor.supervisor.errors import UsageError

    from ...inputs import read_context, read_policies
    from ...store_place import store_named

    if "-" in policies:
        raise UsageError("a hook reads its policies each time; name files")
    read = read_policies(policies)
    preflight(merge_policies(read), Capabilities(gate="all", usage="per_turn")).check()
    path = store_named(store)
    if isinstance(path, str):
        raise UsageError(
            "hooks keep their record in a SQLite file, as each call waits for it, and settings are no place for a "
            "database's password; name a file with `--store`"
        )
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return hooks([Path(file) for file in policies], path, store_id(path), read_context(context))
