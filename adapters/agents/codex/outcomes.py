"""How the client's items that are calls ended."""

from __future__ import annotations

import re
from typing import Any, Final

from proctor.policies.stream.events import ToolCallCompleted, ToolCallFailed

from .items import Item, tool_name

_EXITED: Final = re.compile(r"^Process exited with code (-?\d+)$", re.MULTILINE)


def outcome(item: Item) -> ToolCallCompleted | ToolCallFailed:
    """How a call ended, as its completed item says."""
    call_id, name = str(item.get("id")), tool_name(item)
    output = _output(item)
    if item.get("status") in ("failed", "declined", "interrupted") or item.get("success") is False:
        return ToolCallFailed(tool_call_id=call_id, tool_name=name, error=output)
    return ToolCallCompleted(tool_call_id=call_id, tool_name=name, tool_output=output)


def exited(item: Item, told: str) -> Item | None:
    """A command's item as the client would complete it, None if it is not over, as far as its model was told."""
    head, _, output = told.partition("\nOutput:\n")
    found = _EXITED.search(head) if item.get("type") == "commandExecution" else None
    if found is None:
        return None
    code = int(found[1])
    return {**item, "status": "failed" if code else "completed", "exitCode": code, "aggregatedOutput": output}


def _output(item: Item) -> Any:
    if item.get("status") == "declined":
        return {"message": "the client did not run it"}
    match item.get("type"):
        case "commandExecution":
            return {"exit_code": item.get("exitCode"), "output": item.get("aggregatedOutput") or ""}
        case "fileChange":
            return {"changes": [change.get("path") for change in item.get("changes") or ()]}
        case "mcpToolCall":
            return item.get("error") or _mcp_output(item.get("result") or {})
    return {name: item[name] for name in ("result", "results", "action") if item.get(name) is not None}


def _mcp_output(result: dict[str, Any]) -> Any:
    if result.get("structuredContent") is not None:
        return result["structuredContent"]
    content = result.get("content") or []
    texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "\n".join(map(str, texts)) if len(texts) == len(content) else content
