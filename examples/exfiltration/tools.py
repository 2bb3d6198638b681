"""Files, a Python runner, chat and mail."""

from __future__ import annotations

from typing import Any


def read_file(path: str) -> str:
    """A file's text."""
    return f"text of {path}"


def run_python(code: str) -> str:
    """Run code."""
    return "42"


def find_user(name: str) -> dict[str, Any]:
    """A colleague."""
    return {"email": f"{name}@example.org"}


def send(**message: Any) -> str:
    """Send a message."""
    return "sent"


TOOLS = {
    "read_file": read_file,
    "run_python": run_python,
    "find_user": find_user,
    "slack.post": send,
    "mail.send": send,
}
