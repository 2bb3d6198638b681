"""A client's tools: what each is called there, and what its act and its inputs are called in every client."""

from __future__ import annotations

import re
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


_ANY_ACT: Final = (
    "description explanation instruction reason thought timeout timeout_ms timeout_s timeout_seconds title"
)
_HARMLESS: Final[dict[str, str]] = {
    "bash": "background capture_output max_output_length persistent run_in_background",
    "read": "encoding end end_line limit line_end line_start lines max_bytes max_chars max_lines offset pages "
    "read_range start start_line view_range",
    "write": "append create_dirs create_parents encoding mode newline overwrite",
    "edit": "all_occurrences encoding end_line expected_replacements insert_line line line_number new new_text old "
    "oldString old_str old_string old_text replaceAll replace_all start_line",
    "delete": "force missing_ok recursive",
    "move": "force overwrite",
    "glob": "caseSensitive case_sensitive limit max_results offset recursive respect_git_ignore sort",
    "grep": "-A -B -C -i -n caseSensitive case_sensitive context context_lines exclude glob head_limit ignore_case "
    "include limit max_results multiline output_mode recursive type",
    "fetch": "body data format headers json max_chars max_length method prompt raw start_index",
    "web_search": "allowed_domains blocked_domains count exclude_domains include_domains k language limit "
    "max_results n num_results region safesearch search_depth time_range topic",
    "task": "agent model name run_in_background subagent_type",
}
HARMLESS: Final = {act: frozenset(f"{_ANY_ACT} {names}".split()) for act, names in _HARMLESS.items()}
"""The inputs of an act that have no portable name and change nothing of what the portable ones say."""


class Tool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tool of a client.

    `acts` are the portable names of every call of it; those of `acts_where` are a call's whose input has a value at
    one of the paths (a patch may write, edit and delete). `synonyms` are more names that the client has for it.
    `inputs` has, for a portable input, the paths of its values in the client's own input. `takes` has the client's
    own inputs where they are known, for finding a misspelt one.

    A tool whose act is inferred from its name is understood only in part where it takes more than the act has:
    `unclear` are the parameters that nobody understands, or the missing one without which the act cannot be judged.
    What such a tool is given is not known until it is called if it is `inferred`: each call is looked at then. A call
    that is understood in part is denied by its portable names as any, and permitted only by its own.
    """

    name: str
    acts: tuple[str, ...] = ()
    acts_where: dict[str, tuple[str, ...]] = {}
    synonyms: tuple[str, ...] = ()
    inputs: dict[str, tuple[str, ...]] = {}
    takes: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    inferred: bool = False

    @property
    def every_act(self) -> tuple[str, ...]:
        """The portable names of all that its calls may do."""
        return (*self.acts, *self.acts_where)

    def unknown_among(self, names: Iterable[str]) -> frozenset[str]:
        """Those of these inputs of which it is not known what they change."""
        at = (path for paths in self.inputs.values() for path in paths)
        understood = {*self.takes, *(root_of(path) for path in at)}.union(*(HARMLESS[act] for act in self.every_act))
        return frozenset(names) - understood

    def __hash__(self) -> int:
        return hash(self.name)


def needed(act: str) -> tuple[str, ...]:
    """The inputs without which a call could not be judged as an act."""
    return PORTABLE[act] if act == "move" else PORTABLE[act][:1]


def root_of(path: str) -> str:
    """The input that a path begins at: `action` of `$.action.command`."""
    return re.split(r"[.\[]", path.removeprefix("$."), maxsplit=1)[0]


def portable(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """The tools that go by portable names, as a run's record keeps them; `recorded` reads them back."""
    acting = [each for each in tools if each.every_act]
    described = (each if each.inferred else msgspec.structs.replace(each, takes=()) for each in acting)
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
    own = (root_of(path) for paths in at.values() for path in paths)
    takes = tuple(dict.fromkeys((*takes, *own)))
    return Tool(name=name, acts=(act,), synonyms=synonyms, inputs=at, takes=takes)
