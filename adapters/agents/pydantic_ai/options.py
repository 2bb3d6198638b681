"""A policy as UsageLimits: only what the framework holds exactly as the policy means it.

A limit whose action is weaker than cancel, or that counts over a session, stays with the supervisor: the
framework can only stop the run. So does a limit on calls, because the framework counts refused ones, and a limit
on cost, because it only warns if it knows no price.
"""

from __future__ import annotations

from typing import Any, Final

LIMITS: Final = {
    "max_total_tokens": "total_tokens_limit",
    "max_input_tokens": "input_tokens_limit",
    "max_output_tokens": "output_tokens_limit",
    "max_turns": "request_limit",
}


def tightened(own: Any, options: dict[str, Any]) -> Any:
    """The caller's UsageLimits, or the framework's default, with each compiled limit where it is lower."""
    from dataclasses import replace

    from pydantic_ai.usage import UsageLimits

    limits = own or UsageLimits()
    lower = {
        name: value
        for name, value in options.items()
        if getattr(limits, name) is None or value < getattr(limits, name)
    }
    return replace(limits, **lower)
