"""The tools of a scripted agent: shell commands and files of its workspace, and functions given in Python."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio.to_thread
import msgspec

from proctor.policies.values.foreign_code import named_error
from proctor.supervisor.errors import UsageError
from proctor.supervisor.run.tasks import tool_error

from ...kit.subprocesses import Subprocesses

Tool: TypeAlias = Callable[..., Any]
"""A sync or async function that takes the call's input as keyword arguments and returns its output."""

BUILT_IN = ("bash", "read", "write")
READ_LIMIT = 256 * 1024
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")


class ToolFailedError(Exception):
    """A tool ran and failed; `error` is the error that the call reports."""

    def __init__(self, error: Any) -> None:
        super().__init__(str(error))
        self.error = error


class Toolbox:
    """The tools that one run of a scripted agent can call.

    Args:
        workspace: the directory that commands run in and files are confined to.
        commands: runs the shell commands.
        functions: more tools by name; they replace the built-in ones of the same name.
        timeout_s: seconds a shell command may take unless its input says less.
    """

    def __init__(
        self,
        workspace: Path,
        commands: Subprocesses,
        functions: Mapping[str, Tool],
        *,
        timeout_s: float,
    ) -> None:
        self._workspace = workspace.resolve()
        self._commands = commands
        self._timeout_s = timeout_s
        self._tools: dict[str, Tool] = {
            "bash": self._bash,
            "read": self._read,
            "write": self._write,
            **functions,
        }

    async def run(self, name: str, input: dict[str, Any]) -> Any:
        """Run one tool and return its output. Raises ToolFailedError with the error to report."""
        tool = self._tools.get(name)
        if tool is None:
            raise ToolFailedError(f"no such tool: {name}")
        _check_input(tool, input)
        try:
            if inspect.iscoroutinefunction(tool):
                output = await tool(**input)
            else:
                output = await anyio.to_thread.run_sync(partial(tool, **input), abandon_on_cancel=True)
            return await output if isinstance(output, Awaitable) else output
        except ToolFailedError:
            raise
        except BaseException as raised:
            error = tool_error(raised)
            if not isinstance(error, Exception):
                raise
            raise ToolFailedError(named_error(error)) from raised

    async def _bash(self, command: str, timeout_s: float | None = None) -> dict[str, Any]:
        given = self._timeout_s if timeout_s is None else min(float(timeout_s), self._timeout_s)
        env = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        result = await self._commands.run(
            ["bash", "-c", command],
            cwd=self._workspace,
            env={**env, "HOME": str(self._workspace)},
            timeout_s=given,
        )
        output: dict[str, Any] = msgspec.to_builtins(result)
        if result.exit_code or result.timed_out:
            raise ToolFailedError(output)
        return output

    def _read(self, path: str) -> str:
        with self._confined(path).open("rb") as file:
            return file.read(READ_LIMIT).decode("utf-8", "replace")

    def _write(self, path: str, content: str) -> str:
        return write_file(self._confined(path), content)

    def _confined(self, path: str) -> Path:
        target = (self._workspace / path).resolve()
        if not target.is_relative_to(self._workspace):
            raise ToolFailedError(f"`{path}` is outside the workspace")
        return target


def _check_input(tool: Tool, input: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(tool)
    except ValueError:
        return  # written in C, without a signature: it says itself what it does not take
    try:
        signature.bind(**input)
    except TypeError as error:
        raise ToolFailedError(f"bad input: {error}") from None


def write_file(target: Path, content: str) -> str:
    """Write a text file and its directories; returns what was written, in words."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content, encoding="utf-8")
    return f"{len(content.encode())} bytes written"


def check_tools(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """The given tools as a dict. Raises UsageError for one that cannot be called."""
    if not isinstance(tools, Mapping):
        raise UsageError("`tools` are functions by name: `{name: function}`")
    for name, tool in tools.items():
        if not name or not callable(tool):
            raise UsageError(f"tool `{name}` is not a function")
    return dict(tools)
