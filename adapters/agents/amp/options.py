"""A policy as the client's permission rules: what is denied whatever its input is rejected by the client
itself, and everything else is put to the gate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from proctor.policies.policy import Policy
from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.adapters import LaunchOptions

from ...kit.launch_options import denied, options_for
from ...kit.tool_names import meant
from ...kit.tool_names.amp import TOOLS
from .names import their_names

COMPILES: Final = ("deny",)
OURS: Final = ("amp.permissions", "amp.dangerouslyAllowAll")
"""Settings that hold the gate; the caller's own say in them may only refuse."""
_SPELLABLE = re.compile(r"[A-Za-z0-9_-]+\*?")
"""A name, or the beginning of names, that the client reads as it stands."""


def compile_options(policy: Policy) -> LaunchOptions:
    """The options a policy can be turned into: `rejected`, the client's patterns of tools that never run."""
    rejected: dict[str, None] = {}
    expressed: set[str] = set()
    for entry, names in denied(policy):
        if all(map(_SPELLABLE.fullmatch, names)):
            own_names = [
                theirs for name in names for tool in (name, *meant(TOOLS, name)) for theirs in their_names(tool)
            ]
            rejected.update(dict.fromkeys(own_names))
            expressed.add(f"deny {entry}")
    return options_for(policy, {"rejected": tuple(rejected)}, expressed)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise UsageError for settings of the caller's that would let something round the gate."""
    if settings.get("amp.dangerouslyAllowAll"):
        raise UsageError("setting `amp.dangerouslyAllowAll` would let every call round the gate")
    rules = settings.get("amp.permissions", ())
    for n, rule in enumerate(rules if isinstance(rules, Sequence) and not isinstance(rules, str) else (None,)):
        if not isinstance(rule, Mapping) or rule.get("action") != "reject":
            raise UsageError(f"setting `amp.permissions[{n}]` may only reject; policies say what is allowed")


def settings_for(settings: Mapping[str, Any], rejected: Iterable[str], delegate: str) -> dict[str, Any]:
    """The client's settings for one run.

    Args:
        settings: the caller's own.
        rejected: patterns of tools the client refuses by itself.
        delegate: the program it asks about everything else.
    """
    rules = [*settings.get("amp.permissions", ())]
    rules += [{"tool": pattern, "action": "reject"} for pattern in rejected]
    rules.append({"tool": "*", "action": "delegate", "to": delegate})
    return {**settings, "amp.permissions": rules, "amp.dangerouslyAllowAll": False}
