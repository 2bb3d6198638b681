"""What tools are mostly called, for records that do not say whose they are: the names of the known clients that mean
one act everywhere, and those of well-known frameworks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from proctor.policies.stream.tools import Tool, tool

from . import amp, claude, codex

_OF_FRAMEWORKS: Final = (
    tool("run_shell_command", "bash", "command"),
    tool("execute_command", "bash", "command"),
    tool("run_command", "bash", "command"),
    tool("run_bash", "bash", "command"),
    tool("terminal", "bash", command=("$.commands", "$.command")),
    tool("read", "read", path=("$.file_path", "$.filePath")),
    tool("write", "write", path=("$.file_path", "$.filePath")),
    tool("edit", "edit", path=("$.file_path", "$.filePath"), content=("$.new_string", "$.newString")),
    tool("read_file", "read", path=("$.path", "$.file_path", "$.filePath", "$.absolute_path")),
    tool("write_file", "write", path=("$.path", "$.file_path", "$.filePath"), content=("$.content", "$.text")),
    tool("create_file", "write", path=("$.path", "$.file_path"), content=("$.content", "$.file_text")),
    tool("edit_file", "edit", path=("$.path", "$.file_path"), content=("$.new_str", "$.new_string")),
    tool("replace", "edit", path=("$.file_path",), content=("$.new_string",)),
    tool("delete_file", "delete", path=("$.path", "$.file_path")),
    tool("file_delete", "delete", path=("$.file_path", "$.path")),
    tool("move_file", "move", path=("$.source_path", "$.path"), to=("$.destination_path", "$.to")),
    tool("web_fetch", "fetch", url=("$.url", "$.prompt")),
    tool("requests_get", "fetch", "url"),
    tool("google_web_search", "web_search", "query"),
)


def _of_clients() -> Iterator[Tool]:
    """The tools of clients whose name stands for one act in all of them, with everybody's places for its inputs."""
    known: dict[str, list[Tool]] = {}
    for each in (*claude.TOOLS, *codex.TOOLS, *amp.TOOLS):
        known.setdefault(each.name.casefold(), []).append(each)
    taken = {each.name for each in _OF_FRAMEWORKS}
    for name, alike in known.items():
        first = alike[0]
        one_act = all((each.acts, each.acts_where) == (first.acts, first.acts_where) for each in alike)
        if one_act and (first.acts or first.acts_where) and name not in taken and name != "bash":
            places = {key: tuple(p for each in alike for p in each.inputs.get(key, ())) for key in _inputs(alike)}
            yield Tool(name=first.name, acts=first.acts, acts_where=first.acts_where, inputs=places)


def _inputs(alike: list[Tool]) -> list[str]:
    return sorted({key for each in alike for key in each.inputs})


TOOLS: Final = (*_OF_FRAMEWORKS, *_of_clients())
