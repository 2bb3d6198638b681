"""What the Codex client writes around a tool's output: exit codes, times, refusals."""

from __future__ import annotations

import re
from typing import Any

from ..values import parsed, text_of

_HEADER = re.compile(
    r"(?:Chunk ID: [^\n]*\n)?(?:Exit code: (?P<exit>-?\d+)\n)?Wall time: [^\n]*\n"
    r"(?:Process exited with code (?P<code>-?\d+)\n|Process running with session ID [^\n]*\n)?"
    r"(?:Original token count: \d+\n)?(?:Total output lines: \d+\n)?Output:(?:\n|$)"
)
_FAILED = ("exec_command failed", "exec command rejected", "patch rejected", "aborted by user")
_REFUSED = re.compile(
    r"exec_command failed[^\n]*\bRejected\(|(?:exec command|patch) rejected by user|unsupported call\b"
)


class CodexOutput:
    """One output as the model was given it, taken apart. `status` is the client's own word, if it has one."""

    def __init__(self, value: Any, status: str | None) -> None:
        content, told_failed = _content(value)
        head = _HEADER.match(content) if isinstance(content, str) else None
        self.value = content[head.end() :] if head else content
        self._codes = [head["exit"], head["code"]] if head else []
        self._text = content if isinstance(content, str) else ""
        self._told_failed = told_failed
        self._status = status

    @property
    def failed(self) -> bool:
        """Whether the call failed: the client's word first, then the exit code before the output."""
        if self._status is not None:
            return self._status in ("failed", "declined")
        nonzero = any(code not in (None, "0") for code in self._codes)
        return self._told_failed or nonzero or self._text.startswith(_FAILED)

    @property
    def refused(self) -> bool:
        """Whether the call never ran, as a person refused it or the client has no such tool. A command's own output
        cannot say so: the client writes its header before that.
        """
        return self._status is None and _REFUSED.match(self._text) is not None


def _content(value: Any) -> tuple[Any, bool]:
    """The content proper and whether it is marked as failed: older clients wrapped it in an object."""
    found = parsed(value)
    if isinstance(found, dict) and isinstance(found.get("metadata"), dict) and "output" in found:
        return found["output"], found["metadata"].get("exit_code", 0) != 0
    if isinstance(value, dict) and "content" in value:
        return text_of(value["content"]), value.get("success") is False
    return text_of(value), False
