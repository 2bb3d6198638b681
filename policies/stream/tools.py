"""A client's tools: what each is called there, and what its act and its inputs are called in every client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

PORTABLE: Final[dict[str, tuple[str, ...]]] = {
    "bash": ("command",),
    "read": ("path",),
    "write": ("path", "content"),
    "edit": ("path", "content"),
    "delete": ("path",),
    "move": ("path", "to"),
    "glob": ("pattern", "path"),
    "grep": ("pattern", "path"),
    "fetch": ("url",),
    "web_search": ("query",),
    "task": ("prompt",),
}
"""The portable names of tools, and the inputs of each."""


class Tool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tool of a client.

    `acts` are the portable names of every call of it; those of `acts_where` are a call's whose input has a value at
    one of the paths (a patch may write, edit and delete). `synonyms` are more names that the client has for it.
    `inputs` has, for a portable input, the paths of its values in the client's own input. `takes` has the client's
    own inputs where they are known, for finding a misspelt one.
    """

    name: str
    acts: tuple[str, ...] = ()
    acts_where: dict[str, tuple[str, ...]] = {}
    synonyms: tuple[str, ...] = ()
    inputs: dict[str, tuple[str, ...]] = {}
    takes: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)


def portable(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """The tools that go by portable names, as a run's record keeps them; `recorded` reads them back."""
    described = (msgspec.structs.replace(each, takes=()) for each in tools if each.acts or each.acts_where)
    return [msgspec.to_builtins(each) for each in described]


def recorded(written: Any) -> tuple[Tool, ...]:
    """The tools that a run's record keeps; empty where the record does not hold tools."""
    try:
        return msgspec.convert(written, tuple[Tool, ...])
    except msgspec.ValidationError:
        return ()


def tool(name: str, act: str, *takes: str, synonyms: tuple[str, ...] = (), **inputs: str | tuple[str, ...]) -> Tool:
    """A tool of one act, as tables write it: `tool("Write", "write", "content", path="$.file_path")`.

    Args:
        name: what the client calls it.
        act: its portable name.
        takes: inputs it calls as everybody does, or that have no portable name.
        synonyms: more names that the client has for it.
        inputs: for a portable input, where the client's own input has it.
    """
    at = {key: (path,) if isinstance(path, str) else path for key, path in inputs.items()}
    own = (path.removeprefix("$.").split("[")[0] for paths in at.values() for path in paths)
    takes = tuple(dict.fromkeys((*takes, *own)))
    return Tool(name=name, acts=(act,), synonyms=synonyms, inputs=at, takes=takes)
