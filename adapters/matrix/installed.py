"""Which adapters can be used here."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

from ..kit.agent_spec import AgentSpec


def missing(spec: AgentSpec) -> str | None:
    """What an adapter lacks on this machine; None if nothing."""
    lacking = [f"`{name}`" for name in spec.modules if find_spec(name) is None]
    on_path = any(shutil.which(program) for program in spec.programs)
    if spec.modules and spec.programs:
        return None if on_path or not lacking else f"{', '.join(lacking)} is not installed"
    if lacking:
        return f"{', '.join(lacking)} is not installed"
    if spec.programs and not on_path:
        return f"there is no program `{spec.programs[0]}` on PATH"
    return None
