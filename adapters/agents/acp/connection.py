"""Facts about an agent before it starts; the handshake, resuming a session, choosing its model and mode."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, Literal

import msgspec

from proctor.policies.values.json_values import NOT_JSON
from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UnknownSessionError, UsageError

from ...kit.client_process import ClientProcess, RpcClient
from ...kit.jsonrpc import RpcError, RpcHandler


class AgentTraits(msgspec.Struct, frozen=True, kw_only=True):
    """How one agent behaves.

    `gate` is `all` only if the agent asks before every call, which its own settings decide. `deny_ends_turn`: a
    denial ends the agent's turn. `loads`: it resumes earlier sessions. `partial_usage`: it reports only part of its
    tokens, so they are not recorded. `switches`: members of JSON objects in its environment that turn off what would
    act without asking and unseen. `environment`: variables that keep it from the workspace's settings, unless the
    environment has them already.
    """

    gate: Literal["all", "some", "none"] = "some"
    deny_ends_turn: bool = False
    usage: Literal["at_end", "none"] = "none"
    partial_usage: bool = False
    reports_cost: bool = False
    loads: bool = False
    switches: dict[str, dict[str, Any]] = {}
    environment: dict[str, str] = {}


KNOWN: Final[dict[str, AgentTraits]] = {
    "claude-agent-acp": AgentTraits(usage="at_end", reports_cost=True, loads=True),
    "codex-acp": AgentTraits(deny_ends_turn=True, usage="at_end", loads=True),
    "gemini": AgentTraits(usage="at_end", loads=True, environment={"GEMINI_CLI_TRUST_WORKSPACE": "false"}),
    "opencode": AgentTraits(
        deny_ends_turn=True,
        # of the tokens of a prompt it only tells those of the last model response
        partial_usage=True,
        reports_cost=True,
        loads=True,
        # it neither asks about a subagent's calls nor tells of them
        switches={"OPENCODE_PERMISSION": {"task": "deny"}},
        environment={
            "OPENCODE_DISABLE_CLAUDE_CODE": "1",
            "OPENCODE_DISABLE_EXTERNAL_SKILLS": "1",
            "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
        },
    ),
}
"""Agents by the name of their executable."""


def switched(env: Mapping[str, str], traits: AgentTraits) -> dict[str, str]:
    """An agent's environment with its traits' settings. Raises UsageError for a switch that is no JSON object."""
    set_so: dict[str, str] = {}
    for name, members in traits.switches.items():
        try:
            own = msgspec.json.decode(env.get(name) or "{}", type=dict[str, Any])
        except NOT_JSON:
            raise UsageError(
                f"the environment variable `{name}` is not a JSON object; `{members}` is added to it"
            ) from None
        kept = {key: value for key, value in own.items() if key not in members}
        set_so[name] = msgspec.json.encode({**kept, **members}).decode()
    return {**traits.environment, **env, **set_so}


def agent_of(command: Sequence[str]) -> str:
    """The agent that a command starts; `acp` for one that is not known."""
    return next((name for word in command if (name := PurePath(word).name) in KNOWN), "acp")


AUTH_REQUIRED: Final = -32000


VERSION: Final = 1
_CLIENT: Final = {"name": "proctor", "version": "0"}
_OFFERED: Final = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
"""The client capabilities we offer the agent: none, because they would bypass the gate."""
_LISTS: Final = {
    "mode": ("modes", "availableModes", "id", "currentModeId", "session/set_mode"),
    "model": ("models", "availableModels", "modelId", "currentModelId", "session/set_model"),
}
"""Where an agent lists its choices: the field, the list, an entry's id, the current choice, the method to choose."""


def server_parameters(servers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """MCP servers as the protocol has them: each with a `name`, and a `command` with `args` and `env`, or a `url`
    with `type` and `headers`; `env` and `headers` may be mappings. Raises UsageError for anything else.
    """
    return [_server(n, server) for n, server in enumerate(servers)]


class AcpConnection(RpcClient):
    """A running agent, which may take `start_s` seconds for each step of its start; if nobody is logged in, its
    errors are ProviderUnavailableErrors.
    """

    def __init__(self, process: ClientProcess, handler: RpcHandler, *, start_s: float) -> None:
        super().__init__(process, handler)
        self._start_s = start_s

    def refusal(self, method: str, error: RpcError) -> ProviderError:
        refused = super().refusal(method, error)
        if error.code != AUTH_REQUIRED:
            return refused
        answer = refused.details["said"]
        return ProviderUnavailableError(f"{self.process.name} is not logged in: {answer}", details=refused.details)

    async def greet(self) -> dict[str, Any]:
        """Agree on the protocol; returns the agent's description of itself. Raises ProviderError."""
        params = {"protocolVersion": VERSION, "clientInfo": _CLIENT, "clientCapabilities": _OFFERED}
        answer = await self._step("initialize", params)
        if answer.get("protocolVersion") != VERSION:
            spoken = answer.get("protocolVersion")
            raise ProviderError(f"{self.process.name} speaks version `{spoken}` of the protocol, not {VERSION}")
        return answer

    async def new_session(self, place: dict[str, Any]) -> dict[str, Any]:
        """Start a session; returns the agent's answer with its `sessionId`. Raises ProviderError."""
        answer = await self._step("session/new", place)
        if not isinstance(answer.get("sessionId"), str):
            raise ProviderError(f"{self.process.name} started a session without an id")
        return answer

    async def load_session(self, session_id: str, place: dict[str, Any]) -> dict[str, Any]:
        """Resume an earlier session. Raises UnknownSessionError if the agent rejects it, ProviderError if the agent
        is gone.

        The protocol has no error for an unknown session, so that every error but a missing login means one.
        """
        try:
            answer = await self._step("session/load", {**place, "sessionId": session_id})
        except ProviderError as error:
            reason = error.details.get("said")
            if reason is None or isinstance(error, ProviderUnavailableError):
                raise
            raise UnknownSessionError(
                f"{self.process.name} does not resume session `{session_id}`: {reason}", details=error.details
            ) from error
        return {**answer, "sessionId": session_id}

    async def choose(self, session: Mapping[str, Any], what: str, wanted: str | None) -> str | None:
        """Have the session use a model or a mode (`what`); returns the one it uses, None if the agent does not say.

        `session` is the agent's answer when the session was created or resumed; `wanted` None leaves the choice to
        the agent. Raises ProviderError if the agent does not offer it.
        """
        offered, chosen, method, params = _choices(session, what)
        if wanted is None or wanted == chosen:
            return chosen
        if wanted not in offered:
            choices = ", ".join(f"`{name}`" for name in offered) or "none"
            raise ProviderError(f"{self.process.name} has no {what} `{wanted}`; it offers {choices}")
        key = "value" if "configId" in params else f"{what}Id"
        await self._step(method, {"sessionId": session["sessionId"], **params, key: wanted})
        return wanted

    async def _step(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return await self.request(method, params, timeout_s=self._start_s)


def can_load(greeting: Mapping[str, Any]) -> bool:
    """Whether the agent says that it resumes earlier sessions."""
    return bool(_mapping(greeting.get("agentCapabilities")).get("loadSession"))


def _choices(session: Mapping[str, Any], what: str) -> tuple[list[str], str | None, str, dict[str, Any]]:
    options = session.get("configOptions")
    for option in options if isinstance(options, list) else ():
        if isinstance(option, dict) and what in (option.get("category"), option.get("id")):
            offered = [str(entry.get("value")) for entry in _entries(option.get("options"))]
            return offered, option.get("currentValue"), "session/set_config_option", {"configId": option.get("id")}
    field, entries, key, current, method = _LISTS[what]
    listed = _mapping(session.get(field))
    offered = [str(entry.get(key)) for entry in _entries(listed.get(entries))]
    return offered, listed.get(current), method, {}


def _entries(options: Any) -> list[dict[str, Any]]:
    """The entries of a list that may be grouped."""
    found: list[dict[str, Any]] = []
    for entry in options if isinstance(options, list) else ():
        if isinstance(entry, dict):
            found.extend(_entries(entry["options"]) if "options" in entry else [entry])
    return found


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _server(n: int, server: Mapping[str, Any]) -> dict[str, Any]:
    name = server.get("name")
    if not isinstance(name, str) or not ("command" in server) ^ ("url" in server):
        raise UsageError(f"mcp_servers[{n}]: a server has a `name` and either a `command` or a `url`")
    if "command" in server:
        return {**server, "args": list(server.get("args", ())), "env": _pairs(server.get("env", {}))}
    return {"type": "http", **server, "headers": _pairs(server.get("headers", {}))}


def _pairs(values: Any) -> list[dict[str, Any]]:
    if isinstance(values, Mapping):
        return [{"name": name, "value": value} for name, value in values.items()]
    return list(values)
