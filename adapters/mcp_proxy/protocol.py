"""What a client and a server may say to each other, as the protocol defines it. Nothing else is passed on.

Source: the Model Context Protocol, revisions 2024-11-05 to 2025-11-25. Whoever passes on what it does not know passes
on what it did not judge: servers differ in how they read a `tools/call` whose id is null, or one sent as a notice.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from proctor.policies.policy import Policy, members_of
from proctor.policies.values.paths import keys_of

from .messages import short

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

SERVER_REQUESTS: Final = frozenset({"elicitation/create", "ping", "roots/list", "sampling/createMessage"})
"""The requests a server makes of its client."""

SERVER_NOTICES: Final = frozenset(
    {
        "notifications/cancelled",
        "notifications/elicitation/complete",
        "notifications/message",
        "notifications/progress",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/tools/list_changed",
    }
)
"""The notifications a server sends."""

_LONGEST_NAME: Final = 256
_CALL_FIELDS: Final = frozenset({"_meta", "arguments", "name"})


def call_problem(params: Mapping[str, Any], keys: Collection[str] = ()) -> str | None:
    """Why the parameters of a tool call cannot be judged as what a server will read; None if they can.

    Some servers read keys without regard to case, and of two such keys the last (Go's encoding/json does).

    Args:
        params: those of the call.
        keys: keys of inputs that the policy names.
    """
    if "task" in params:
        return "a tool call as a task cannot be held at the gate; call it without `task`"
    unknown = sorted(set(params) - _CALL_FIELDS)
    if unknown:
        return f"a tool call has no parameter `{unknown[0]}`; it takes `name` and `arguments`"
    arguments = params.get("arguments")
    if not isinstance(params.get("name"), str) or not isinstance(arguments, dict | None):
        return "a tool call needs a `name` and, in `arguments`, an object"
    if _looks_otherwise(params["name"]):
        return "the tool's name cannot be used: it is empty, too long, or not spelt as it is compared"
    return _ambiguous(arguments or {}, {key.casefold(): key for key in keys}, frozenset(keys))


def _looks_otherwise(name: str) -> bool:
    """Whether a server could take the name for another: blanks around it, what does not show, other forms."""
    shows = name.isprintable() and name == name.strip() and name == unicodedata.normalize("NFKC", name)
    return not (shows and 0 < len(name) <= _LONGEST_NAME)


def _ambiguous(value: Any, folded: Mapping[str, str], keys: Collection[str]) -> str | None:
    """Why a value is not the same for every server, at any depth; `folded` are the policy's `keys` by their fold."""
    rest = [value]
    while rest:
        each = rest.pop()
        if isinstance(each, float) and not math.isfinite(each):
            return "the arguments have a number that JSON does not have"
        if isinstance(each, list):
            rest += each
        if not isinstance(each, dict):
            continue
        rest += each.values()
        seen: dict[str, str] = {}
        for key in each:
            fold = key.casefold().partition("\0")[0]  # where a string of C ends
            other = seen.setdefault(fold, key)
            if other == key and key not in keys:
                other = folded.get(fold, key)
            if other != key:
                either = f"`{short(other)}` and `{short(key)}`"
                return f"the arguments {either} are alike; a server may take either for the other"
    return None


def named_keys(policy: Policy) -> frozenset[str]:
    """The keys of every path that a policy has, wherever it stands."""
    return frozenset(key for member in members_of(policy) for key in _keys(msgspec.to_builtins(member)))


def _keys(written: Any) -> Iterator[str]:
    if isinstance(written, str):
        yield from keys_of(written) if written.startswith("$") else ()
    elif isinstance(written, Mapping | list | tuple):
        for each in written.values() if isinstance(written, Mapping) else written:
            yield from _keys(each)
