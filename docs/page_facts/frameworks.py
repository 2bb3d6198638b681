"""What functions of frameworks' agents are called, by the portable names of what they do."""

from __future__ import annotations

from proctor.adapters.kit.function_tools import CALLED, PLACES
from proctor.policies.events.run_context import PORTABLE, needed

from .markdown import code, codes, table


def functions(_: str) -> str:
    """For each portable name: the names of functions, and of the parameters that each input may have."""
    rows = [[code(act), codes(names.split()), "; ".join(_inputs(act))] for act, names in CALLED.items()]
    return table(["portable name", "a function called", "whose parameters are"], rows)


def _inputs(act: str) -> list[str]:
    """Each input with its parameters; one that need not be there in brackets."""
    said = {name: f"{code(name)}: {codes(PLACES[name].split())}" for name in PORTABLE[act]}
    return [text if name in needed(act) else f"({text})" for name, text in said.items()]
