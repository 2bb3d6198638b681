"""Adapters: what each takes, and what its tools are called."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping

from proctor.adapters.agents.catalog import ADAPTERS, adapter_class
from proctor.adapters.kit.client_tools import CLIENTS
from proctor.policies.events.run_context import PORTABLE, Tool

from .docstrings import described
from .markdown import code, codes, entries, table

_MANY_PATHS = 4
"""An input that several tools have at the same paths, so many or more, stands once."""
_MOST_OTHERS = 8
"""A client that says more of its calls than so many inputs says the same of all of them."""


def options(name: str) -> str:
    """The arguments of an adapter, from its docstring and its signature. Raises KeyError for one that the docstring
    does not explain.
    """
    adapter = adapter_class(ADAPTERS[name])
    known = inspect.signature(adapter).parameters
    meanings = described(adapter)
    if unexplained := ", ".join(known.keys() - meanings.keys()):
        raise KeyError(f"the docstring of `{adapter.__name__}` does not explain `{unexplained}` under `Args:`")
    return entries([code(_spelt(known[each])), "", meanings[each]] for each in known)


def _spelt(parameter: inspect.Parameter) -> str:
    """The parameter's name, with its default if that says something."""
    given = parameter.default
    name = f"**{parameter.name}" if parameter.kind is parameter.VAR_KEYWORD else parameter.name
    return name if given is parameter.empty or given is None else f"{name}={given!r}".replace("'", '"')


def tools(client: str) -> str:
    """The tools of a client by its own names, with the portable names of what they do and of their inputs; first the
    paths that an input of several tools has, last the tools without a portable name.
    """
    known = [each for each in CLIENTS[client] if each.acts or each.acts_where]
    others = [each.name for each in CLIENTS[client] if not (each.acts or each.acts_where)]
    counted = Counter(found for each in known for found in each.inputs.items() if len(found[1]) >= _MANY_PATHS)
    shared = {name: paths for (name, paths), times in counted.items() if times > 1}
    alike: dict[tuple[str, str], list[str]] = {}
    for each in known:
        inputs = "; also ".join(filter(None, (_inputs(each, shared), _others(each))))
        alike.setdefault((codes((*each.acts, *each.acts_where)), inputs), []).extend((each.name, *each.synonyms))
    written = entries((codes(names), acts, inputs) for (acts, inputs), names in alike.items())
    legend = "Tool (portable name): portable inputs; also other inputs."
    legend += "".join(f" `{name}` is at {codes(paths)}." for name, paths in shared.items())
    return f"{legend}\n\n{written}" + (f"\nWithout a portable name: {codes(others)}.\n" if others else "")


def portable_names(_: str) -> str:
    """The portable names and their inputs."""
    return table(["portable name", "inputs"], ([code(act), codes(inputs)] for act, inputs in PORTABLE.items()))


def _inputs(tool: Tool, shared: Mapping[str, tuple[str, ...]]) -> str:
    """Each portable input; if the client has it elsewhere, and not where several tools have it, at which path."""
    names = dict.fromkeys(name for act in (*tool.acts, *tool.acts_where) for name in PORTABLE[act])
    known = [name for name in names if name in tool.inputs or name in tool.takes]
    places = {name: tool.inputs.get(name, (f"$.{name}",)) for name in known}
    return ", ".join(
        code(name) if paths in ((f"$.{name}",), shared.get(name)) else f"`{name}` ({codes(paths)})"
        for name, paths in places.items()
    )


def _others(tool: Tool) -> str:
    """What else it takes, if that are few."""
    elsewhere = {path.removeprefix("$.").split("[")[0] for paths in tool.inputs.values() for path in paths}
    portable = {name for act in (*tool.acts, *tool.acts_where) for name in PORTABLE[act]}
    others = [name for name in tool.takes if name not in elsewhere | portable]
    return codes(others) if len(others) <= _MOST_OTHERS else ""
