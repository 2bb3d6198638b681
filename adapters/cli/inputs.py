"""What is named on the command line: policies, contexts, options. `-` is standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from proctor.policies import CompiledPolicy, Policy, RunContext


def read_policies(files: Sequence[str]) -> list[Policy]:
    """The policies of files, in the order given. Raises PolicyError with the problems of all of them."""
    from proctor.policies import load_policies, parse_policies
    from proctor.policies.errors import read_each

    def read(file: str) -> list[Policy]:
        return parse_policies(_standard_input(), file="<stdin>") if file == "-" else load_policies(file)

    return [policy for found in read_each(read, files) for policy in found]


def read_compiled(files: Sequence[str]) -> CompiledPolicy:
    """The policies of files as one compiled stack. Raises PolicyError."""
    from proctor.policies import compile_policy, merge_policies

    return compile_policy(merge_policies(read_policies(files)))


def read_text(file: str) -> tuple[str, str]:
    """A file's text and the name problems are reported under. Raises PolicyError when it is not text."""
    from pathlib import Path

    from proctor.policies.errors import PolicyError, Problem

    name = "<stdin>" if file == "-" else file
    try:
        data = _standard_input() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8"), name
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PolicyError([Problem(message="the text is not UTF-8", file=name, line=line)]) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
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


def check_standard_input(*names: str | None) -> None:
    """Raises UsageError when more than one of the names is `-`."""
    if names.count("-") > 1:
        raise click.UsageError("standard input can be read only once; name files instead of `-`")


def _standard_input() -> bytes:
    return sys.stdin.buffer.read()


def key_values(given: Sequence[str], option: str) -> dict[str, Any]:
    """`KEY=VALUE`, several of them; a value that is JSON is read as JSON, anything else is text."""
    import msgspec

    found: dict[str, Any] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise click.UsageError(f"`{option} {pair}` is not KEY=VALUE")
        try:
            found[key] = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeError):
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
        raise click.UsageError(f"`{words}` is too much: the adapter `{adapter}` takes no command; quote the prompt")
    if adapter != "acp":
        return options
    if bool(command) is ("command" in options):
        raise click.UsageError("the adapter `acp` needs the command of its agent, once: `... -- opencode acp`")
    return {**options, "command": list(command)} if command else options


def read_context(given: Sequence[str]) -> RunContext:
    """The context rules name in `when`: its own fields by name, `labels.env=prod`, anything else as metadata.

    A value is text as it is written; `metadata.NAME:=VALUE` is read as JSON.
    """
    from proctor.policies import RunContext

    fields: dict[str, Any] = {}
    for pair in given:
        key, value = _fact(pair)
        group, dot, name = key.partition(".")
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
            raise click.UsageError(f"`--context {key}=...`: there are {names}, `labels.NAME` and `metadata.NAME`")
    return RunContext(**fields)


def _fact(pair: str) -> tuple[str, Any]:
    """`KEY=TEXT` or `KEY:=JSON`."""
    import msgspec

    key, equals, text = pair.partition("=")
    if not key.removesuffix(":") or not equals:
        raise click.UsageError(f"`--context {pair}` is not KEY=VALUE")
    if not key.endswith(":"):
        return key, text
    try:
        return key[:-1], msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise click.UsageError(f"`--context {pair}`: what follows `:=` is not JSON: {error}") from None
