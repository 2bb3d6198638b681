"""What functions of frameworks' agents are called, by the portable names of what they do."""

from __future__ import annotations

from proctor.adapters.kit.function_tools import CALLED, PLACES
from proctor.policies.events.run_context import PORTABLE, needed

from .markdown import code, codes, entries


def functions(_: str) -> str:
    """The names of functions for each portable name; then the parameters that each input may have."""
    named = [[code(act), ", ".join(_inputs(act)), codes(names.split())] for act, names in CALLED.items()]
    inputs = dict.fromkeys(name for act in CALLED for name in PORTABLE[act])
    called = [[code(name), "", codes(PLACES[name].split())] for name in inputs]
    return (
        f"Portable name (with these inputs): functions.\n\n{entries(named)}\nInput: parameters.\n\n{entries(called)}"
    )


def _inputs(act: str) -> list[str]:
    """Each input; one that need not be there in brackets."""
    return [code(name) if name in needed(act) else f"({code(name)})" for name in PORTABLE[act]]
