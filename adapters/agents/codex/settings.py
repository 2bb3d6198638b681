"""The client's configuration: what is switched off so that the gate holds, and what still goes round it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from proctor.supervisor.errors import UsageError

UNASKED: Final = {
    "apps": "connected apps act without asking",
    "goals": "goals start turns by themselves",
    "hooks": "hooks may answer the client's questions in the supervisor's place",
    "image_generation": "images are generated without asking",
    "multi_agent": "agents are started without asking",
    "multi_agent_v2": "agents are started without asking",
    "unified_exec_tty": "text is written to a command's terminal without asking",
    "view_image": "files are read as images without asking",
}
"""Features that are off unless turned on: each lets something happen that is not asked about."""
QUIET: Final = ("plugins", "tool_suggest", "skill_mcp_dependency_install")
"""Features that are off unless turned on because they reach for the network by themselves."""

_STATED_RULE = re.compile(r"""decision\s*=\s*["'](?:prompt|forbidden)["']""")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


def arguments(config: Mapping[str, Any], features: Mapping[str, bool]) -> list[str]:
    """The client's command line for a configuration, without the program's name. Raises UsageError."""
    settings: dict[str, Any] = {
        "web_search": "disabled",
        # the files of a login shell would run before each command that was judged
        "allow_login_shell": False,
        "sandbox_workspace_write.network_access": False,
        **{f"features.{name}": False for name in (*UNASKED, *QUIET)},
        **{f"features.{name}": on for name, on in features.items()},
        **config,
    }
    flags = [word for key, value in settings.items() for word in ("-c", f"{key}={toml(value, key)}")]
    return [*flags, "app-server"]


def untrusted(folder: Path) -> dict[str, Any]:
    """Configuration that keeps the client from the settings of a folder and those above it, whatever its own say.

    A client that is not told so trusts the folder it works in, for good, and takes over its `.codex`.
    """
    places = {str(place): {"trust_level": "untrusted"} for place in (folder, *folder.parents)}
    return {"projects": places}


def toml(value: Any, where: str) -> str:
    """A value as the client's command line wants it. Raises UsageError for what it cannot hold."""
    if isinstance(value, bool) or (isinstance(value, (int, float)) and value == value):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(str(k))} = {toml(v, f'{where}.{k}')}" for k, v in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(toml(item, where) for item in value) + "]"
    raise UsageError(f"config `{where}`: the client's configuration cannot hold `{value!r}`")


def asking_servers(servers: Mapping[str, Any], denied: Sequence[str]) -> dict[str, Any]:
    """Configuration of a thread that makes every MCP server ask before each call, and drops denied tools.

    Args:
        servers: the client's configured servers by name.
        denied: patterns of tools no call may be made to: `mcp__server__tool` or `mcp__server__*`.
    """
    config: dict[str, Any] = {}
    for name, server in servers.items():
        prefix = f"mcp__{name}__".casefold()
        fields = server if isinstance(server, dict) else {}
        own = [pattern for pattern in denied if pattern.casefold().startswith(prefix)]
        dropped = [pattern[len(prefix) :] for pattern in own if not pattern.endswith("*")]
        base = f"mcp_servers.{name}"
        config[f"{base}.default_tools_approval_mode"] = "prompt"
        if tools := fields.get("tools"):
            config[f"{base}.tools"] = {tool: {**_asking(tools[tool])} for tool in tools}
        if len(dropped) < len(own):
            config[f"{base}.enabled"] = False
        if dropped:
            config[f"{base}.disabled_tools"] = [*(fields.get("disabled_tools") or ()), *dropped]
    return config


def ways_round(
    env: Mapping[str, str], trusted: Path | None, config: Mapping[str, Any], features: Mapping[str, bool]
) -> list[str]:
    """What in the client's settings lets something happen that the gate is not asked about, in words.

    Args:
        env: the client's environment, which says where its home is.
        trusted: the folder whose own settings are taken over, and those of the folders above it.
        config: the caller's configuration.
        features: the features the caller turns on or off.
    """
    found = [why for name, why in UNASKED.items() if features.get(name)]
    if config.get("web_search", "disabled") != "disabled":
        found.append("the provider searches the web without asking")
    above = (trusted, *trusted.parents) if trusted is not None else ()
    if trusted is not None:
        found.append(f"the settings in `.codex` of `{trusted}` bring servers and programs that run without asking")
    folders = [home(env), Path("/etc/codex"), *(place / ".codex" for place in above)]
    for folder in dict.fromkeys(folders):
        found.extend(f"`{path}` lets commands run without asking" for path in _permitting_rules(folder))
    if any(key.startswith("mcp_servers") for key in config) or any(map(_has_servers, folders)):
        found.append("resources of MCP servers are read without asking")
    return list(dict.fromkeys(found))


def home(env: Mapping[str, str]) -> Path:
    """The client's own folder."""
    return Path(env.get("CODEX_HOME") or Path(env.get("HOME", "~")).expanduser() / ".codex")


def _key(name: str) -> str:
    return name if _PLAIN_KEY.match(name) else json.dumps(name)


def _asking(tool: Any) -> dict[str, Any]:
    return {**(tool if isinstance(tool, dict) else {}), "approval_mode": "prompt"}


def _permitting_rules(folder: Path) -> Iterator[Path]:
    for path in sorted((folder / "rules").glob("*.rules")):
        text = path.read_text(errors="replace")
        if text.count("prefix_rule(") > len(_STATED_RULE.findall(text)):  # a rule permits unless it says else
            yield path


def _has_servers(folder: Path) -> bool:
    try:
        return bool(tomllib.loads((folder / "config.toml").read_text()).get("mcp_servers"))
    except (OSError, ValueError):
        return False
