"""What a client's hook says and is answered, in the words that all clients share; `clients` translate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from proctor.policies.errors import EventError
from proctor.policies.events import TokenUsageUpdated
from proctor.policies.events.run_context import Tool
from proctor.policies.values.json_values import json_words

Kind: TypeAlias = Literal["prompt", "call", "completed", "failed", "batch", "stop", "session_end", "settings"]
"""What happened: a person prompts; a call is about to run, has run, or has failed; the calls of a response are over;
the response is; the session is; settings have changed."""
CAN_STOP: tuple[Kind, ...] = ("call", "completed", "failed", "batch")
"""Those whose answer may end the response."""


class BatchCall(msgspec.Struct, frozen=True):
    """One call of a model response that is over."""

    tool_use_id: str
    tool_name: str = ""


class HookInput(msgspec.Struct, frozen=True, kw_only=True):
    """What one hook says.

    Attributes:
        kind: what happened; None for an event that nothing follows from.
        event: the client's own name of it.
        session_id: the session, as the client names it.
        prompt_id: the prompt it belongs to, where the client names it.
        agent_id: the sub-agent it comes from.
        own_settings: settings that no repository and no agent can write have changed.
        can_ask: an answer of `ask` reaches the person.
    """

    kind: Kind | None
    event: str
    session_id: str
    prompt_id: str = ""
    agent_id: str | None = None
    permission_mode: str = ""
    cwd: str = ""
    transcript_path: str = ""
    prompt: str = ""
    tool_name: str = ""
    tool_input: dict[str, Any] = {}
    tool_use_id: str = ""
    tool_response: Any = None
    error: Any = None
    tool_calls: tuple[BatchCall, ...] = ()
    last_assistant_message: str | None = None
    reason: str = ""
    own_settings: bool = False
    can_ask: bool = True


Verdict = Literal["allow", "ask", "deny"]


class HookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from one hook.

    `allow` with a reason asks nobody, and never opens what the client's own rules keep shut; without one the client
    decides as if there were no hook. `reason` is public: of `deny` the model reads it, of the others the person.
    `stop` ends the response; `notes` are for the person only.
    """

    verdict: Verdict = "allow"
    reason: str = ""
    stop: bool = False
    notes: tuple[str, ...] = ()


STOPPED = "A policy ended this response."


class UsageReader(Protocol):
    """What a client's own log says a session used."""

    @property
    def state(self) -> bytes:
        """How far everything was read."""

    def news(
        self, *, may_be_missing: bool, call_id: str = "", message: str = "", wait_s: float = 0.0
    ) -> list[TokenUsageUpdated]:
        """What was used since it was read last. Raises EventError when that cannot be known."""


class HookClient(msgspec.Struct, frozen=True, kw_only=True):
    """One client with hooks: its words for what all of them have.

    Attributes:
        name: as `--agent` has it, and as the record names the provider.
        title: its name for people.
        by: who answers when the client asks its person.
        tools: its tools by their portable names.
        events: its names of events that are needed, with what happened.
        read: what it says, from the bytes; raises EventError.
        output: its words for an answer; empty when there is nothing to say.
        usage: reads its log of a session, from a path, an earlier state, and the time before which nothing counts.
    """

    name: str
    title: str
    by: str
    tools: tuple[Tool, ...]
    events: Mapping[str, Kind]
    read: Callable[[bytes], HookInput]
    output: Callable[[HookAnswer, HookInput], dict[str, Any]]
    usage: Callable[[str, bytes | None, datetime], UsageReader] | None = None


def decoded(data: bytes, type: type[Any], title: str) -> Any:
    """What a client says, as a type of its own. Raises EventError for anything else."""
    try:
        data.decode()  # all of it is text, also what is not looked at
        return msgspec.json.decode(data, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EventError(f"standard input is not a hook of {title}: {json_words(error)}") from None


def complete(given: HookInput) -> HookInput:
    """The input, once it names what it is about. Raises EventError."""
    if not given.session_id:
        raise EventError("the hook names no session")
    if given.kind in ("call", "completed", "failed") and not (given.tool_use_id and given.tool_name):
        raise EventError("the hook names no call")
    return given
