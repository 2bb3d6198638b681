"""Every agent, in the order of the matrix, and its adapter made by name; nothing of an agent is imported before."""

import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import GenericAlias
from typing import Any, Final, NamedTuple

import msgspec

from proctor.policies.reading.schema import did_you_mean
from proctor.supervisor.errors import ProviderUnavailableError, UsageError, install_of
from proctor.supervisor.ports.adapter import Adapter


class AgentSpec(NamedTuple):
    """One agent, for the catalog, the matrix, the command line and telemetry.

    Attributes:
        name: The agent's name, as in `--adapter`; `acp: NAME` for an agent that the ACP adapter runs.
        about: A description, for the matrix.
        adapter: Its adapter below this folder, `module:Class`; None for one that is not made by name.
        extra: The extra of this package that installs its dependencies.
        others: How to install its dependencies that no extra installs.
        modules: Modules that must be importable; or one of the programs, if it has any.
        programs: One of these must be on PATH.
        command: The executable of an agent that speaks the Agent Client Protocol.
        model_provider: The provider of its models, if they are all from one.
        first_run: The arguments after `--adapter` in the first command that `proctor init` shows; `{task}` is the
            prompt.
        probed: Whether `proctor adapters probe` can find out what it asks about.
        resumable: Whether an interrupted run can be continued; not if its prompt is no message to an agent.
    """

    name: str
    about: str
    adapter: str | None = None
    extra: str | None = None
    others: str = ""
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    command: str | None = None
    model_provider: str | None = None
    first_run: str | None = None
    probed: bool = False
    resumable: bool = True

    @property
    def short_name(self) -> str:
        """Its name without the protocol."""
        return self.name.removeprefix("acp: ")

    @property
    def install(self) -> str:
        """How to install its dependencies; empty if it has none."""
        return install_of(self.extra) if self.extra else self.others


def _over_acp(program: str, about: str, package: str, first_run: str | None = None) -> AgentSpec:
    return AgentSpec(
        name=f"acp: {program}",
        about=f"{about} over ACP",
        others=f"npm install -g {package}",
        programs=(program,),
        command=program,
        first_run=first_run,
    )


SPECS: Final = (
    AgentSpec(
        name="claude",
        about="Claude Code",
        adapter="claude.adapter:ClaudeAdapter",
        extra="claude",
        modules=("claude_agent_sdk",),
        model_provider="anthropic",
        first_run="claude {task}",
        probed=True,
    ),
    AgentSpec(
        name="codex",
        about="Codex",
        adapter="codex.adapter:CodexAdapter",
        extra="codex",
        modules=("codex_cli_bin",),
        programs=("codex",),
        model_provider="openai",
        first_run="codex {task}",
        probed=True,
    ),
    _over_acp("opencode", "opencode", "opencode-ai", "acp {task} -- opencode acp"),
    _over_acp("gemini", "Gemini CLI", "@google/gemini-cli", "acp {task} -- gemini --acp"),
    _over_acp("claude-agent-acp", "Claude Code", "@agentclientprotocol/claude-agent-acp"),
    _over_acp("codex-acp", "Codex", "@agentclientprotocol/codex-acp"),
    AgentSpec(name="acp", about="any other ACP agent", adapter="acp.adapter:AcpAdapter", probed=True),
    AgentSpec(
        name="amp",
        about="Amp",
        adapter="amp.adapter:AmpAdapter",
        others="npm install -g @sourcegraph/amp",
        programs=("amp",),
        first_run="amp {task}",
        probed=True,
    ),
    AgentSpec(
        name="pydantic-ai",
        about="agents of pydantic-ai",
        adapter="pydantic_ai.adapter:PydanticAIAdapter",
        extra="pydantic-ai",
        modules=("pydantic_ai",),
    ),
    AgentSpec(
        name="openai-agents",
        about="agents of the OpenAI Agents SDK",
        adapter="openai_agents.adapter:OpenAIAgentsAdapter",
        extra="openai-agents",
        modules=("agents",),
        model_provider="openai",
    ),
    AgentSpec(name="function", about="your own agent loop", adapter="loop.adapter:FunctionAdapter"),
    AgentSpec(
        name="shell",
        about="bash command lines",
        adapter="shell:ShellAdapter",
        others="install bash",
        programs=("bash",),
        first_run='shell "make test"',
        resumable=False,
    ),
    AgentSpec(name="scripted", about="scripts", adapter="scripted.adapter:ScriptedAdapter"),
    AgentSpec(name="replay", about="recorded sessions", adapter="replay:ReplayAdapter", resumable=False),
)

ADAPTERS: Final = {spec.name: spec for spec in sorted(SPECS) if spec.adapter is not None}
"""The agents whose adapters are made by name."""

ALIASES = {
    **{
        spec.short_name: f"use `--adapter acp` and, after the prompt, `{spec.first_run.partition('{task} ')[2]}`"
        for spec in SPECS
        if spec.command and spec.first_run
    },
    "langchain": "its agents are supervised from Python, in a `supervise` block; `function` names one here",
    "langgraph": "its agents are supervised from Python, in a `supervise` block; `function` names one here",
    "claude-code": "did you mean `claude`?",
    "bash": "did you mean `shell`?",
}
"""Agents by other names that people use, and how to supervise them."""
_PLAIN: dict[str, tuple[Any, str]] = {
    "Mapping[str, Any]": (dict[str, Any], "a mapping"),
    "Mapping[str, bool]": (dict[str, bool], "a mapping to true or false"),
    "Mapping[str, str]": (dict[str, str], "a mapping to text"),
    "None": (type(None), "nothing"),
    "Path": (os.PathLike, "a path"),
    "Sequence[Mapping[str, Any]]": (list[dict[str, Any]], "a list of mappings"),
    "Sequence[str]": (list[str], "a list of text"),
    "bool": (bool, "true or false"),
    "float": ((int, float), "a number"),
    "int": (int, "a whole number"),
    "os.PathLike[str]": (os.PathLike, "a path"),
    "str": (str, "text"),
}
"""Types of options that are checked before an adapter is made, and their names in messages."""


def adapter_named(name: str, /, **options: Any) -> Adapter:
    """Make the adapter of that name with its own options. Raises UsageError: there is no such adapter, or it does not
    take these options; ProviderUnavailableError: a package it needs is not installed; the message names the extra.
    """
    spec = ADAPTERS.get(name)
    if spec is None:
        names = ", ".join(f"`{adapter}`" for adapter in ADAPTERS)
        hint = ALIASES.get(name.lower()) or did_you_mean(name, ADAPTERS) or f"there are {names}"
        raise UsageError(f"no adapter is called `{name}`; {hint}")
    try:
        made = adapter_class(spec)
    except ImportError as error:
        raise _unavailable(spec, error) from error
    _check_options(name, made, options)
    try:
        adapter: Adapter = made(**options)
    except ImportError as error:
        raise _unavailable(spec, error) from error
    except TypeError as error:
        raise UsageError(f"adapter `{name}`: {str(error).partition('() ')[2] or error}") from None
    return adapter


def adapter_class(spec: AgentSpec) -> Callable[..., Adapter]:
    """The class of its adapter. Raises ImportError if a package it needs is not installed."""
    module, _, name = str(spec.adapter).partition(":")
    made: Callable[..., Adapter] = getattr(importlib.import_module(f".{module}", __package__), name)
    return made


def _check_options(name: str, made: Callable[..., Adapter], options: Mapping[str, Any]) -> None:
    """Raises UsageError for an option that an adapter lacks, that is of the wrong type, or that is missing."""
    found = inspect.signature(made).parameters
    parameters = {option: each for option, each in found.items() if each.kind is not each.VAR_KEYWORD}
    passes_on = parameters.keys() != found.keys()  # what else it is given it checks itself
    for option in () if passes_on else options.keys() - parameters.keys():
        hint = did_you_mean(option, parameters) or f"it has {', '.join(f'`{one}`' for one in parameters)}"
        raise UsageError(f"adapter `{name}` has no option `{option}`; {hint}")
    for option, value in options.items():
        if option not in parameters:
            continue
        wanted = [part.strip() for part in str(parameters[option].annotation).split("|")]
        if _PLAIN.keys() >= set(wanted) and not any(_is(value, part) for part in wanted):
            kinds = " or ".join(_PLAIN[part][1] for part in wanted if part != "None")
            raise UsageError(f"option `{option}` of adapter `{name}` is {kinds}, not `{_shown(value)}`")
    for option, parameter in parameters.items():
        if parameter.default is parameter.empty and option not in options:
            raise UsageError(f"adapter `{name}` needs its option `{option}`; use `--set {option}=...`")


def _is(value: object, part: str) -> bool:
    kind = _PLAIN[part][0]
    if isinstance(kind, GenericAlias):
        with suppress(msgspec.ValidationError, UnicodeError):
            msgspec.convert(value, kind)
            return True
        return False
    return isinstance(value, kind) and (part == "bool" or not isinstance(value, bool))


def _shown(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=repr).decode()


def _unavailable(spec: AgentSpec, error: ImportError) -> ProviderUnavailableError:
    missing = f"`{error.name}` is missing" if error.name else str(error)
    how = install_of(spec.extra) if spec.extra else "reinstall proctor"
    return ProviderUnavailableError(f"adapter `{spec.name}` cannot be used: {missing}; {how}")
