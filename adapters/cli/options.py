"""Options that several commands have."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from hashlib import sha256
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from proctor.policies import (
    CompiledPolicy,
    Event,
    Policy,
    RunContext,
    compile_policy,
    load_policies,
    merge_policies,
    parse_policies,
)
from proctor.policies.errors import PolicyError, Problem, os_words, read_each
from proctor.policies.events import Unrecognized
from proctor.policies.reading.schema import did_you_mean
from proctor.policies.values.amounts import counted
from proctor.policies.values.globs import is_plain
from proctor.policies.values.json_values import NOT_JSON, json_words
from proctor.supervisor.arguments import moment_before
from proctor.supervisor.errors import StoreError, UsageError
from proctor.supervisor.ports.store import Store

from ..kit.display_text import escape_control
from ..stores.store_names import DEFAULT_STORE, check_name, is_url

if TYPE_CHECKING:
    from ..operations.service import OperatorService
    from ..traces import TraceSession


T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def store_option_with(
    default: str = DEFAULT_STORE, about: str = "The store: a SQLite file or postgresql://USER@HOST/DATABASE."
) -> Callable[[Command], Command]:
    """`--store`; `default` describes the store that is used if PROCTOR_STORE isn't set either."""
    return click.option("--store", metavar="STORE", help=f"{about} [default: $PROCTOR_STORE, else {default}]")


store_option = store_option_with()
by_option = click.option("--by", metavar="WHO", help="Your name, as recorded. [default: your login name]")
group_option = click.option(
    "--group", "groups", multiple=True, metavar="NAME", help="A group of yours, if the policy names groups."
)
_policies = partial(click.option, "--policy", "policies", metavar="FILE", multiple=True)
_STACKED = "A policy file; repeat it for a stack, merged left to right."
policy_option = _policies(required=True, help=_STACKED)
any_policy_option = _policies(help=f"{_STACKED} Without one, nothing is denied.")
context_option = click.option(
    "--context",
    metavar="KEY=VALUE",
    multiple=True,
    callback=lambda ctx, param, given: read_context(given) if given else None,
    help="A fact for `when` in rules: user_role=admin, labels.env=prod. The value is text, or JSON in "
    "metadata.NAME:=VALUE.",
)
format_option = click.option(
    "--format",
    metavar="NAME",
    callback=lambda ctx, param, given: _known_format(given),
    help="Format of the recorded sessions: events, sessions, claude, codex, otel. [default: detected]",
)
fail_on_option = click.option(
    "--fail-on",
    type=click.Choice(["never", "warn", "deny", "cancel"]),
    default="deny",
    show_default=True,
    help="Exit with 1 on a violation with this action or a stricter one.",
)


def session_option(about: str) -> Callable[[Command], Command]:
    """The session that a command is about."""
    return click.option("--session", metavar="ID", help=about)


def scope_options(which: str, *, session: str, label: str = "label") -> Callable[[Command], Command]:
    """`--session`, `--tenant` and `--label`: which runs a command is about. `labels` may be repeated."""
    options = (
        session_option(session),
        click.option("--tenant", metavar="NAME", help=f"{which} of this tenant."),
        click.option(
            "--label", label, multiple=label == "labels", metavar="NAME=VALUE", help=f"{which} with this label."
        ),
    )
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def tools_option(about: str) -> Callable[[Command], Command]:
    """The names of tools, separated by commas; None without the option."""
    return click.option("--tools", metavar="A,B", callback=lambda ctx, param, given: _tool_names(given), help=about)


def _tool_names(given: str | None) -> list[str] | None:
    if given is None:
        return None
    names = [name.strip() for name in given.split(",") if name.strip()]
    if not names:
        raise click.UsageError("`--tools` names no tool; for example `--tools bash,read`")
    if pattern := next((name for name in names if not is_plain(name)), None):
        raise click.UsageError(f"`--tools {pattern}` is a pattern: name each tool, or leave the option out")
    return names


def operated(use: Callable[[OperatorService], Awaitable[T]], store: str | None) -> T:
    """What a coroutine function gives, on the service of a store that must exist; raises as `opened` does."""

    async def used() -> T:
        async with operating(store) as service:
            return await use(service)

    return run_async(used)


def write_document(text: str) -> None:
    """Write a document to standard output: exactly, but on a terminal with control characters escaped."""
    from ..kit.display_text import escape_control_lines

    shown = escape_control_lines(text) if sys.stdout.isatty() else text
    sys.stdout.write(shown.rstrip("\n") + "\n")


def run_async(function: Callable[[], Awaitable[T]]) -> T:
    import anyio

    return anyio.run(function)


def _known_format(name: str | None) -> str | None:
    """Raises UsageError for an unknown format, naming those that exist."""
    from ..traces import FORMATS

    if name is not None and name not in FORMATS:
        hint = did_you_mean(name, FORMATS) or f"there are {', '.join(f'`{f}`' for f in FORMATS)}"
        raise click.UsageError(f"no format of recorded sessions is called `{name}`; {hint}")
    return name


def read_policies(files: Sequence[str]) -> list[Policy]:
    """The policies of files, in the order given. Raises PolicyError with the problems of all of them."""

    def read(file: str) -> list[Policy]:
        return parse_policies(_standard_input(), file="<stdin>") if file == "-" else load_policies(file)

    return [policy for found in read_each(read, files) for policy in found]


def read_traces(files: Sequence[str], format: str | None = None) -> Iterator[TraceSession]:
    """The recorded sessions of files and folders; at the end, a note on events of unknown type in those written by
    hand. Raises TraceError.
    """
    from ..traces import read_sessions

    passed_over: Counter[str] = Counter()
    for session in read_sessions(files, format=format, stdin=sys.stdin.buffer):
        if session.format == "sessions":
            passed_over.update(event.type for event in session.events if isinstance(event, Unrecognized))
        yield session
    if passed_over:
        types = ", ".join(f"`{escape_control(name)}`" for name, _ in passed_over.most_common(5))
        what = f"{counted(passed_over.total(), 'event')} of unknown type passed over: {types}"
        print(f"{what}; there are `message`, `usage`, `tool_call` and `tool_result`", file=sys.stderr)


def read_one_session(file: str, whose: str, format: str | None = None) -> list[Event]:
    """The events of a file's one session. Raises UsageError unless there is exactly one; `whose` names the option."""
    sessions = list(read_traces([file], format))
    if len(sessions) != 1:
        raise click.UsageError(f"`{file}` holds {len(sessions)} sessions; `{whose}` takes a file with one")
    return sessions[0].events


def read_compiled(files: Sequence[str]) -> CompiledPolicy:
    """The policies of files as one compiled stack. Raises PolicyError."""
    return compile_policy(merge_policies(read_policies(files)))


def read_text(file: str) -> tuple[str, str]:
    """A file's text and the name problems are reported under. Raises PolicyError when it is not text."""
    name = "<stdin>" if file == "-" else file
    try:
        data = _standard_input() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8"), name
    except UnicodeDecodeError as error:
        line, hint = data.count(b"\n", 0, error.start) + 1, "save the file as UTF-8"
        raise PolicyError([Problem(message=os_words(error), file=name, line=line, suggestion=hint)]) from None
    except OSError as error:
        reason = os_words(error)
        raise PolicyError([Problem(message=f"cannot read the file: {reason}", file=name)]) from None


def read_prompt(given: str) -> str:
    """The prompt as text. Raises UsageError when it is empty, or not text."""
    try:
        text = _standard_input().decode("utf-8") if given == "-" else given
        text.encode("utf-8")
    except UnicodeError:
        raise click.UsageError("the prompt is not UTF-8 text") from None
    if not text.strip():
        raise click.UsageError("the prompt is empty")
    return text


def wait_option(seconds: float) -> Callable[[Command], Command]:
    """How long a command waits for others, by default so many seconds."""
    return click.option(
        "--wait",
        "wait_s",
        type=click.FloatRange(min=0),
        callback=_check_wait,
        default=seconds,
        show_default=True,
        metavar="SECONDS",
        help="The most seconds to wait.",
    )


def limit_option(most: int, what: str) -> Callable[[Command], Command]:
    """How many of these a list shows, by default so many."""
    return click.option(
        "--limit",
        type=click.IntRange(1, _MOST_SHOWN),
        default=most,
        show_default=True,
        metavar="N",
        help=f"The most {what} to show.",
    )


def _check_wait(ctx: click.Context, param: click.Parameter, seconds: float) -> float:
    if isnan(seconds):
        raise click.UsageError("`--wait SECONDS`: `nan` is not a number")
    return seconds


def check_standard_input(*names: str | None) -> None:
    """Raises UsageError when more than one of the names is `-`."""
    if names.count("-") > 1:
        raise click.UsageError("standard input can be read only once; name files instead of `-`")


def _standard_input() -> bytes:
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise click.UsageError(f"standard input cannot be read: {os_words(error)}") from None


def key_values(given: Sequence[str]) -> dict[str, Any]:
    """The `--set KEY=VALUE` of a command; a value that is JSON is read as JSON, anything else is text."""
    found: dict[str, Any] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise click.UsageError(f"`--set {pair}` is not KEY=VALUE")
        if key in found:
            raise click.UsageError(f"`--set {key}=...` is given twice; give it once")
        try:
            found[key] = msgspec.json.decode(value)
        except NOT_JSON:
            found[key] = value
    return found


def of_fallbacks(given: dict[str, Any], names: Sequence[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """An adapter's own options, and those of the agents to fall back to, which are `NAME.KEY`."""
    own: dict[str, Any] = {}
    theirs: dict[str, dict[str, Any]] = {name: {} for name in names}
    for key, value in given.items():
        name, dot, option = key.partition(".")
        if dot and name in theirs:
            theirs[name][option] = value
        else:
            own[key] = value
    return own, theirs


def with_command(adapter: str, command: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """An adapter's options with the command that starts its agent. Raises click.UsageError where it is not due."""
    if adapter != "acp" and command:
        words = " ".join(command)
        raise click.UsageError(
            f"`{words}` is unexpected: the adapter `{adapter}` takes no command; put the prompt in quotes"
        )
    if adapter != "acp":
        return options
    if bool(command) is ("command" in options):
        raise click.UsageError("the adapter `acp` needs one command that starts its agent: `... -- opencode acp`")
    return {**options, "command": list(command)} if command else options


def read_context(given: Sequence[str]) -> RunContext:
    """The context rules name in `when`: its own fields by name, `labels.env=prod`, anything else as metadata.

    A value is text as it is written; `metadata.NAME:=VALUE` is read as JSON.
    """
    fields: dict[str, Any] = {}
    seen: set[str] = set()
    for pair in given:
        key, value = _fact(pair)
        group, dot, name = key.partition(".")
        if key in seen:
            raise click.UsageError(f"`--context {key}=...` is given twice; give it once")
        seen.add(key)
        if not (isinstance(value, str) or (value is None and not dot) or group == "metadata"):
            raise click.UsageError(f"`--context {pair}`: `{key}` is text; only `metadata.NAME` may be another value")
        if dot and name and group in ("labels", "metadata"):
            fields.setdefault(group, {})[name] = value
        elif key in RunContext.__struct_fields__ and key not in ("labels", "metadata"):
            fields[key] = value
        else:
            names = ", ".join(
                f"`{name}`" for name in RunContext.__struct_fields__ if name not in ("labels", "metadata")
            )
            raise click.UsageError(
                f"`--context {key}=...`: unknown name; use {names}, `labels.NAME`, `metadata.NAME`"
            )
    return RunContext(**fields)


def _fact(pair: str) -> tuple[str, Any]:
    key, equals, text = pair.partition("=")
    if not key.removesuffix(":") or not equals:
        raise click.UsageError(f"`--context {pair}` is not KEY=VALUE")
    if not key.endswith(":"):
        return key, text
    try:
        return key[:-1], msgspec.json.decode(text)
    except NOT_JSON as error:
        raise click.UsageError(f"`--context {pair}`: what follows `:=` is {json_words(error)}") from None


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(r"(\d{1,6})\s*([smhdw])")
_AGO = re.compile(r"\s+ago\s*$")


def age(text: str) -> timedelta | None:
    """`90d`, `12h`, `30m`; None for anything else."""
    found = _AGE.fullmatch(text.strip())
    return None if found is None else timedelta(**{_UNITS[found[2]]: int(found[1])})


class Age(click.ParamType):  # type: ignore[type-arg]
    """A time ago: `90d`."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = age(value)
        if found is None:
            self.fail(f"`{value}` is not an age; write `90d`, `12h` or `30m`", param, ctx)
        return found


class Moment(click.ParamType):  # type: ignore[type-arg]
    """A date, a date with a time, or a time ago; UTC if no zone is named."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        ago = age(_AGO.sub("", value))
        if ago is not None:
            return moment_before(None, ago)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"`{value}` is not a time; write `2026-01-31`, `2026-01-31T08:00`, `2h` or `2h ago`", param, ctx
            )
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def size_text(size: int) -> str:
    """A number of bytes in words."""
    if size < 1024:
        return f"{size} B"
    for unit, factor in (("KiB", 2**10), ("MiB", 2**20)):
        if size / factor < 1023.95:
            return f"{size / factor:.1f} {unit}"
    return f"{size / 2**30:.1f} GiB"


_MOST_SHOWN = 1_000_000
"""The most rows of a list."""

VARIABLE = "PROCTOR_STORE"


def store_named(given: str | None) -> Path | str:
    """The file of the store, or the URL of its database. Raises UsageError for anything else."""
    named = given or os.environ.get(VARIABLE)
    if named:
        check_name(named)
        return named if is_url(named) else Path(named)
    return _state() / "runs.db"


def program_as_typed() -> str:
    """This program as it is typed to run it again: by its name if that finds it, else with what found it."""
    typed = Path(sys.argv[0])
    if typed.name == "__main__.py" and typed.parent.name == "proctor":
        found = shutil.which("python")
        return f"{'python' if found == sys.executable else shlex.quote(sys.executable)} -m proctor"
    if typed.name != "proctor":
        return "proctor"
    if "UV_RUN_RECURSION_DEPTH" in os.environ:  # uv finds it, and not the shell behind uv
        return "uv run proctor"
    found = shutil.which("proctor")
    here = found is not None and os.path.realpath(found) == os.path.realpath(typed)
    return "proctor" if here else shlex.quote(str(typed))


def store_as_typed(given: str | None) -> str:
    """The option that names this store again, after a space and without a password; empty where none was given."""
    from ..stores.store_names import shown

    return f" --store {shlex.quote(shown(given))}" if given else ""


def is_named(given: str | None) -> bool:
    """Whether the option or the environment names the store."""
    return bool(given or os.environ.get(VARIABLE))


def is_there(given: str | None) -> bool:
    """Whether there is a store; without one there are no runs and no approvals."""
    named = store_named(given)
    return isinstance(named, str) or named.exists()


def is_there_as_named(given: str | None) -> bool:
    """The same. Raises UsageError if a store was named that does not exist."""
    there = is_there(given)
    if not there and is_named(given):
        raise UsageError(_missing(store_named(given)))
    return there


def _missing(path: Path | str) -> str:
    return f"there is no store at `{path}`; `proctor store --make` creates one, `--store` names another"


def beside(given: str | None) -> Path:
    """The prefix of the paths of files that belong to the store."""
    from ..stores.store_names import shown

    named = store_named(given)
    if isinstance(named, Path):
        return named
    _state().mkdir(parents=True, exist_ok=True, mode=0o700)
    return _state() / f"postgres-{sha256(shown(named).encode()).hexdigest()[:12]}"


def existing_store(given: str | None) -> Path | str:
    """The file of an existing store, or the URL of its database. Raises as `opened` does if there is no such file."""
    named = store_named(given)
    if isinstance(named, Path):
        _check_file(named, must_exist=True, is_ours=False)
    return named


def existing_file(given: str | None) -> Path:
    """The file of an existing store. Raises UsageError for a database, and if there is none."""
    named = existing_store(given)
    if not isinstance(named, Path):
        raise UsageError("a database has a backup of its own: `pg_dump`, or `proctor export` for lines of JSON")
    return named


def _state() -> Path:
    """The state directory is that of the XDG rules, on every platform."""
    try:
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "proctor"
    except RuntimeError:
        raise UsageError("you have no home directory; set XDG_STATE_HOME, or name the store: `--store`") from None


@asynccontextmanager
async def opened(given: str | None, *, must_exist: bool = False, writes: bool = True) -> AsyncIterator[Store]:
    """The store, closed at the end; one that can only be read, too, if it must exist, or nothing need be written.
    Raises UsageError: `must_exist` and there is none, or there can be none at that place; StoreError: it cannot be
    used.
    """
    import anyio

    from ..stores import open_store

    named = store_named(given)
    opens = partial(open_store, named, make=not must_exist, may_be_read_only=not writes)
    if isinstance(named, Path):
        _check_file(named, must_exist=must_exist, is_ours=not is_named(given))
        store = opens()
    else:
        store = await anyio.to_thread.run_sync(opens)
    try:
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.aclose()


@asynccontextmanager
async def operating(given: str | None, *, must_exist: bool = True) -> AsyncIterator[OperatorService]:
    """The service on the store; raises as `opened` does."""
    from ..operations.service import OperatorService

    async with opened(given, must_exist=must_exist, writes=False) as store:
        yield OperatorService(store)


def _check_file(path: Path, *, must_exist: bool, is_ours: bool) -> None:
    """Raises as `opened` does; the folder of a store that nobody named is made."""
    if path.is_dir():
        raise UsageError(f"`{path}` is a folder, not a store; name a file in it")
    if must_exist:
        from ..stores.sqlite.file import check_not_empty

        if not path.exists():
            raise UsageError(_missing(path))
        check_not_empty(path)
    if is_ours:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            reason = os_words(error)
            raise StoreError(f"`{path.parent}` cannot be created: {reason}; name a file with `--store`") from None
    if not path.parent.is_dir():
        raise UsageError(f"`{path}` cannot be created: there is no folder `{path.parent}`")
