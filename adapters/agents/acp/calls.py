"""An agent's tool calls: what they are called here, their inputs and outcomes.

The protocol names no tools. A call has a title, which often is the command itself, and a kind. The name is
the agent's own name of the tool where it gives one in `_meta`, else the kind; for a call of no particular
kind its first title, if that could be a tool's name, else `other`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

KINDS: Final = frozenset(("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode"))
OTHER: Final = "other"
FINISHED: Final = frozenset(("completed", "failed"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_KEPT: Final = ("title", "kind", "content", "locations", "rawInput", "_meta")


class AcpCall(msgspec.Struct, kw_only=True):
    """One call of the agent, as far as the agent has described it.

    `fields` merges what the agent said of it. `proposals` has what was put to the gate, by id, and `allowed` the ids
    the gate let run: an agent may ask twice about one call, for different things. `parent` is the call that started
    the sub-agent that made this one.
    """

    id: str
    parent: str | None = None
    fields: dict[str, Any] = {}
    first_title: str = ""
    proposals: dict[str, tuple[str, dict[str, Any]]] = {}
    allowed: list[str] = []
    refused: bool = False
    reported: bool = False
    over: bool = False

    def hear(self, fields: Mapping[str, Any]) -> None:
        """Take in what the agent says of the call: what is absent or null has not changed."""
        self.fields.update(given(fields))
        self.first_title = self.first_title or str(fields.get("title") or "")
        self.parent = self.parent or parent_of(fields)

    @property
    def name(self) -> str:
        """The tool's name."""
        return tool_name(self.fields, self.first_title)

    @property
    def input(self) -> dict[str, Any]:
        """The tool's input."""
        return tool_input(self.fields)


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What an update or a question says of a call, without what it leaves open."""
    return {key: fields[key] for key in _KEPT if fields.get(key) not in (None, {}, [])}


def parent_of(fields: Mapping[str, Any]) -> str | None:
    """The call that started the sub-agent an update is about; None for the agent's own, and where it is not told."""
    return _in_meta(fields.get("_meta"), "parentToolUseId")


def tool_name(fields: Mapping[str, Any], first_title: str = "") -> str:
    """The name of the tool that a call is of."""
    own = _in_meta(fields.get("_meta"), "toolName")
    if own is not None:
        return own
    kind = fields.get("kind")
    if kind in KINDS:
        return str(kind)
    title = first_title or str(fields.get("title") or "")
    return title if _NAME.fullmatch(title) else OTHER


def tool_input(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The input: as the agent gives it, else what can be read of it: `title`, `locations`, `diffs`."""
    raw = fields.get("rawInput")
    if isinstance(raw, dict) and raw:
        return raw
    read: dict[str, Any] = {"title": str(fields.get("title") or "")}
    if raw not in (None, {}, ""):
        read["raw"] = raw
    if paths := [place["path"] for place in _dicts(fields.get("locations")) if "path" in place]:
        read["locations"] = paths
    if diffs := [_diff(block) for block in _dicts(fields.get("content")) if block.get("type") == "diff"]:
        read["diffs"] = diffs
    return read


def output_of(fields: Mapping[str, Any]) -> Any:
    """What a finished call gave: its text, or else its raw output, or its content as it came."""
    texts = [_text(block) for block in _dicts(fields.get("content"))]
    if texts and all(text is not None for text in texts):
        return "".join(text for text in texts if text)
    return fields.get("rawOutput", fields.get("content") or None)


def shows_output(fields: Mapping[str, Any]) -> bool:
    """Whether an update shows that the call is running: it has given something already."""
    if fields.get("rawOutput") is not None:
        return True
    return any(block.get("type") == "terminal" or _text(block) for block in _dicts(fields.get("content")))


def _in_meta(meta: Any, key: str) -> str | None:
    """What an agent says under its own name or none."""
    if not isinstance(meta, dict):
        return None
    for place in (meta, *meta.values()):
        value = place.get(key) if isinstance(place, dict) else None
        if isinstance(value, str) and value:
            return value
    return None


def _dicts(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _text(block: Mapping[str, Any]) -> str | None:
    content = block.get("content")
    if block.get("type") != "content" or not isinstance(content, dict) or content.get("type") != "text":
        return None
    return str(content.get("text") or "")


def _diff(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"path": block.get("path"), "old_text": block.get("oldText"), "new_text": block.get("newText")}
