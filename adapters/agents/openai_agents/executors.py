"""The caller's own code that the SDK runs on this machine, gated: commands, patches, tools with free text."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeAlias, TypeVar

from agents import ApplyPatchTool, CustomTool, LocalShellTool, ShellTool
from agents.editor import ApplyPatchOperation, ApplyPatchResult
from agents.tool import ShellCallOutcome, ShellCommandOutput, ShellResult, Tool

from ...kit.values.jsonable import plain
from ..loop import ToolRefused

T = TypeVar("T", bound=Tool)
Hold: TypeAlias = Callable[[str, dict[str, Any], Callable[[], Any], str | None], Awaitable[Any]]
"""Asks the gate for a call - its tool, its input, what does it, its id - and does it; raises ToolRefused."""

_Call: TypeAlias = tuple[str, dict[str, Any], str | None]

_patching: ContextVar[str | None] = ContextVar("proctor_patching", default=None)
"""The call whose patches this code applies: the SDK tells an editor what to do, and not for which call."""


def is_held(tool: Tool) -> bool:
    """Whether the code that such a tool runs can ask first. A computer cannot: the SDK has no words for a refusal of
    what a screenshot answers.
    """
    return isinstance(tool, LocalShellTool | ApplyPatchTool | CustomTool) or (
        isinstance(tool, ShellTool) and tool.executor is not None
    )


def held(tool: Tool, hold: Hold) -> Tool:
    """A copy of a tool whose code asks first; another tool, or one that does, is its own."""
    if isinstance(tool, LocalShellTool):
        return _with(tool, executor=_Asks(tool.executor, _local_shell, str, hold))
    if isinstance(tool, ShellTool) and tool.executor is not None:
        return _with(tool, executor=_Asks(tool.executor, _shell, _exited, hold))
    if isinstance(tool, ApplyPatchTool):
        return _with(tool, editor=_Editor(tool.editor, hold), needs_approval=_noting(tool.needs_approval))
    if isinstance(tool, CustomTool):
        return _with(tool, on_invoke_tool=_Asks(tool.on_invoke_tool, _custom, str, hold))
    return tool


def changed(tool: T, changes: Mapping[str, Any]) -> T:
    """A copy of a tool with other fields; its class may be a subclass that does not take what the class takes."""
    made = copy.copy(tool)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def _with(tool: Tool, **changes: Any) -> Tool:
    if any(isinstance(getattr(tool, name), _Asks | _Editor) for name in changes):
        return tool
    return changed(tool, changes)


class _Asks:
    """Code of the caller's that asks first.

    Args:
        act: the code.
        call_of: of what the code is given: the tool, the input that is judged, the call's id.
        refusal: what the code gives back in the words of a refusal.
        hold: asks.
    """

    def __init__(
        self, act: Callable[..., Any], call_of: Callable[..., _Call], refusal: Callable[[str], Any], hold: Hold
    ) -> None:
        self._act = act
        self._call_of = call_of
        self._refusal = refusal
        self._hold = hold

    async def __call__(self, *given: Any) -> Any:
        name, tool_input, call_id = self._call_of(*given)
        try:
            return await self._hold(name, tool_input, lambda: self._act(*given), call_id)
        except ToolRefused as refusal:
            return self._refusal(refusal.tell_model)


class _Editor:
    """An editor that asks before each operation of a patch; several of one call are asked one after another."""

    def __init__(self, editor: Any, hold: Hold) -> None:
        self.create_file = _Asks(editor.create_file, _patch, _not_applied, hold)
        self.update_file = _Asks(editor.update_file, _patch, _not_applied, hold)
        self.delete_file = _Asks(editor.delete_file, _patch, _not_applied, hold)


def _local_shell(request: Any) -> _Call:
    return "local_shell", {"action": plain(request.data.action)}, request.data.call_id


def _shell(request: Any) -> _Call:
    return "shell", {"action": _given(plain(request.data.action))}, request.data.call_id


def _custom(context: Any, text: str) -> _Call:
    return context.tool_name, {"input": text}, context.tool_call_id


def _patch(operation: ApplyPatchOperation) -> _Call:
    fields = {name: getattr(operation, name) for name in ("type", "path", "diff", "move_to")}
    return "apply_patch", {"operation": _given(fields)}, _patching.get()


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _exited(text: str) -> ShellResult:
    return ShellResult(output=[ShellCommandOutput(stderr=text, outcome=ShellCallOutcome(type="exit", exit_code=1))])


def _not_applied(text: str) -> ApplyPatchResult:
    return ApplyPatchResult(status="failed", output=text)


def _noting(own: Any) -> Callable[[Any, Any, str], Awaitable[bool]]:
    """The caller's own setting, asked for each patch just before it is applied: it is told the call's id."""

    async def needs_approval(context: Any, operation: Any, call_id: str) -> bool:
        _patching.set(call_id)
        wanted = own(context, operation, call_id) if callable(own) else own
        return bool(await wanted if inspect.isawaitable(wanted) else wanted)

    return needs_approval
