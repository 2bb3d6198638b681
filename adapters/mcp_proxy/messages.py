"""The messages between the two sides of a connection, as the MCP transports carry them."""

import math
import re
import unicodedata
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias, TypeGuard

import msgspec
from mcp.shared.message import SessionMessage
from mcp.types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCResponse
from pydantic import ValidationError

from proctor.policies.policy import Policy, members_of
from proctor.policies.values.json_values import NOT_JSON
from proctor.policies.values.paths import keys_of

from ..kit.display_text import escape_control
from ..kit.jsonrpc import Request
from ..kit.values import whole_characters

RequestId: TypeAlias = str | int
_SHORT = 200


class Incoming(Protocol):
    """Messages of one side; an exception among them is something it sent that is no message."""

    def __aiter__(self) -> AsyncIterator[SessionMessage | Exception]: ...


class Outgoing(Protocol):
    """Where messages to one side go."""

    async def send(self, item: SessionMessage, /) -> None: ...


def failure(request_id: RequestId | None, code: int, message: str) -> SessionMessage:
    """A request answered with an error."""
    error = JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=message))
    return SessionMessage(error)


def refusal(request_id: RequestId, text: str) -> SessionMessage:
    """A tool call answered with a tool error that the model reads."""
    result = {"content": [{"type": "text", "text": text}], "isError": True}
    return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=request_id, result=result))


def tools_changed() -> SessionMessage:
    """The notice that the tools on offer have changed."""
    return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/tools/list_changed"))


def greeting(result: Mapping[str, Any]) -> dict[str, Any]:
    """A server's answer to `initialize` as its client gets it: tools may change, and no call runs as a task."""
    given = result.get("capabilities")
    capabilities = {key: value for key, value in given.items() if key != "tasks"} if isinstance(given, dict) else {}
    if isinstance(capabilities.get("tools"), dict):
        capabilities["tools"] = {**capabilities["tools"], "listChanged": True}
    return {**result, "capabilities": capabilities}


def version_of(result: Mapping[str, Any]) -> str | None:
    """The version that a server's answer to `initialize` names; None where it is none that HTTP could carry."""
    version = result.get("protocolVersion")
    return version if isinstance(version, str) and re.fullmatch(r"[\w.-]+", version, re.ASCII) else None


def unread(error: Exception) -> str:
    """Text for a terminal about something one side sent that is no message, or could not be read."""
    sent = error.errors()[0]["input"] if isinstance(error, ValidationError) else error
    return short(sent.decode(errors="replace") if isinstance(sent, bytes) else str(sent))


class _Answer(msgspec.Struct):
    id: int
    method: msgspec.UnsetType = msgspec.UNSET


def unread_request(error: Exception) -> RequestId | None:
    """The id of a request that could not be read; None for anything else."""
    return _id_of(error, Request)


def unread_answer(error: Exception) -> RequestId | None:
    """The id of an answer that could not be read; None for anything else."""
    return _id_of(error, _Answer)


def _id_of(error: Exception, kind: type[Request | _Answer]) -> RequestId | None:
    sent = error.errors()[0]["input"] if isinstance(error, ValidationError) else None
    sent = sent.encode() if isinstance(sent, str) else sent
    try:
        whole = whole_characters(sent) if isinstance(sent, bytes) else b""
        read = msgspec.json.decode(whole, type=kind) if whole else msgspec.convert(sent, kind)
    except NOT_JSON:
        return None
    return read.id


def is_id(value: Any) -> TypeGuard[RequestId]:
    """Whether it can be a request's id."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def short(text: str) -> str:
    """A foreign text as one short line for people."""
    return escape_control(text)[:_SHORT]


INITIALIZE: Final = "initialize"
TOOL_CALL: Final = "tools/call"
TOOL_LIST: Final = "tools/list"

REQUESTS: Final = frozenset(
    {
        "completion/complete",
        INITIALIZE,
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
        TOOL_LIST,
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
    """Why the parameters of a tool call cannot be evaluated as what a server will read; None if they can.

    Some servers read keys without regard to case, and of two such keys the last (Go's encoding/json does), or every
    number as a float (JavaScript does). `keys` are those of inputs that the policy names.
    """
    if "task" in params:
        return "a tool call as a task cannot be held at the gate; call it without `task`"
    unknown = sorted(set(params) - _CALL_FIELDS)
    if unknown:
        return f"a tool call has no parameter `{unknown[0]}`; it takes `name` and `arguments`"
    arguments = params.get("arguments")
    if not isinstance(params.get("name"), str) or not isinstance(arguments, dict | None):
        return "a tool call needs a `name` and, in `arguments`, an object"
    if is_confusable(params["name"]):
        return "the tool's name cannot be used: it is empty, too long, or not spelt as it is compared"
    return _ambiguous(arguments or {}, {key.casefold(): key for key in keys}, frozenset(keys))


def is_confusable(name: str) -> bool:
    """Whether a server could take a tool's name for another: blanks around it, what does not show, other forms."""
    shows = name.isprintable() and name == name.strip() and name == unicodedata.normalize("NFKC", name)
    return not (shows and 0 < len(name) <= _LONGEST_NAME)


def _ambiguous(value: Any, folded: Mapping[str, str], keys: Collection[str]) -> str | None:
    """Why a value is not the same for every server, at any depth; `folded` are the policy's `keys` by their fold."""
    rest = [(value, False)]
    while rest:
        each, named = rest.pop()
        if isinstance(each, int | float) and not _is_same(each, exactly=named):
            return "the arguments have a number that JSON does not have, or that a server may round to another"
        if isinstance(each, list):
            rest += [(item, named) for item in each]
        if not isinstance(each, dict):
            continue
        rest += [(item, named or key in keys) for key, item in each.items()]
        if "__proto__" in each:
            return "the arguments have a `__proto__`; a server may find in it what no policy looks for there"
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


def _is_same(number: float, *, exactly: bool) -> bool:
    """Whether a number is one to a server that reads all of them as floats; `exactly`: this one."""
    try:
        read = float(number)
    except OverflowError:
        return False
    return math.isfinite(read) and (read == number or not exactly)


def named_keys(policy: Policy) -> frozenset[str]:
    """The keys of every path that a policy has, wherever it stands."""
    return frozenset(key for member in members_of(policy) for key in _keys(msgspec.to_builtins(member)))


def _keys(written: Any) -> Iterator[str]:
    if isinstance(written, str):
        yield from keys_of(written) if written.startswith("$") else ()
    elif isinstance(written, Mapping | list | tuple):
        for each in written.values() if isinstance(written, Mapping) else written:
            yield from _keys(each)
