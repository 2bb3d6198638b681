"""Adapters by the names the command line knows them by."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from proctor.policies.reading.schema import did_you_mean
from proctor.supervisor.errors import ProviderUnavailableError, UsageError, install_of
from proctor.supervisor.ports.adapter import Adapter

from .specs import SPECS, AgentSpec

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
    "None": (type(None), "nothing"),
    "Path": (os.PathLike, "a path"),
    "bool": (bool, "true or false"),
    "float": ((int, float), "a number"),
    "int": (int, "a whole number"),
    "os.PathLike[str]": (os.PathLike, "a path"),
    "str": (str, "text"),
}
"""Types of options that are checked before an adapter is made, and their names in messages."""


def adapter_named(name: str, **options: Any) -> Adapter:
    """Make the adapter of that name with its own options.

    Raises:
        UsageError: there is no such adapter, or it does not take these options.
        ProviderUnavailableError: a package it needs is not installed; the message names the extra.
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
    return isinstance(value, kind) and (part == "bool" or not isinstance(value, bool))


def _shown(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=repr).decode()


def _unavailable(spec: AgentSpec, error: ImportError) -> ProviderUnavailableError:
    missing = f"`{error.name}` is missing" if error.name else str(error)
    how = install_of(spec.extra) if spec.extra else "reinstall proctor"
    return ProviderUnavailableError(f"adapter `{spec.name}` cannot be used: {missing}; {how}")
