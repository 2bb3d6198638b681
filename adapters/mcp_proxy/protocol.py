"""What a client may say to a server, as the protocol defines it. Nothing else is passed on.

Source: the Model Context Protocol, revisions 2024-11-05 to 2025-11-25. Whoever passes on what it does not know passes
on what it did not judge: servers differ in how they read a `tools/call` whose id is null, or one sent as a notice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

TOOL_CALL: Final = "tools/call"

REQUESTS: Final = frozenset(
    {
        "completion/complete",
        "initialize",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        TOOL_CALL,
        "tools/list",
    }
)
"""The requests a client makes; those about tasks are left out, as a call that runs as a task cannot be held."""

NOTICES: Final = frozenset(
    {
        "notifications/cancelled",
        "notifications/initialized",
        "notifications/progress",
        "notifications/roots/list_changed",
    }
)
"""The notifications a client sends."""

_CALL_FIELDS: Final = frozenset({"_meta", "arguments", "name"})


def call_problem(params: Mapping[str, Any]) -> str | None:
    """Why the parameters of a tool call cannot be judged as what a server will read; None if they can.

    Some servers read keys without regard to case, and of two such keys the last (Go's encoding/json does).
    """
    if "task" in params:
        return "a tool call as a task cannot be held at the gate; call it without `task`"
    unknown = sorted(set(params) - _CALL_FIELDS)
    if unknown:
        return f"a tool call has no parameter `{unknown[0]}`; it takes `name` and `arguments`"
    arguments = params.get("arguments")
    if not isinstance(params.get("name"), str) or not isinstance(arguments, dict | None):
        return "a tool call needs a `name` and, in `arguments`, an object"
    return _ambiguous(arguments or {})


def _ambiguous(arguments: Mapping[str, Any]) -> str | None:
    seen: dict[str, str] = {}
    for key in arguments:
        other = seen.setdefault(key.casefold(), key)
        if other != key:
            return f"the arguments `{other}` and `{key}` differ in case only; a server may take either for the other"
    return None
