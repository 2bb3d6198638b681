"""What spans and metrics say of an event. Inputs, outputs, prompts, messages and people are left out by
default.

Text is bounded, because an agent chooses the names of the tools it calls. Every stored event can be encoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from proctor.policies.stream.events import PolicyViolated, RunStarted

from . import names

Attributes: TypeAlias = dict[str, str | int | float | bool | tuple[str, ...]]

NAME_CHARS = 128
CONTENT_CHARS = 8 * 1024
_LABELS = 16
_PROVIDERS = {"claude": "anthropic", "codex": "openai", "openai-agents": "openai"}
"""Adapters whose models are one provider's; the others go by their own name."""


def name(text: str) -> str:
    """A name, cut to its bound."""
    return text[:NAME_CHARS]


def content(value: object) -> str:
    """Any content as text, cut to its bound."""
    if not isinstance(value, str):
        try:
            value = msgspec.json.encode(value).decode()
        except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
            value = repr(value)
    return value[:CONTENT_CHARS]


def of_agent(adapter: str, model: str | None) -> Attributes:
    """The attributes of the agent, for spans and metrics alike."""
    found: Attributes = {names.AGENT: name(adapter), names.PROVIDER: _PROVIDERS.get(adapter, name(adapter))}
    if model:
        found[names.MODEL] = name(model)
    return found


def of_run(event: RunStarted) -> Attributes:
    """The attributes that a run's span has from the start."""
    found = {names.CONVERSATION: name(event.session_id), names.RUN: name(event.run_id)}
    context = event.metadata.get("context")
    context = context if isinstance(context, Mapping) else {}
    for key, value in ((names.POLICY, event.metadata.get("policy")), (names.TENANT, context.get("tenant"))):
        if isinstance(value, str):
            found[key] = name(value)
    labels = context.get("labels")
    for label, value in list(labels.items())[:_LABELS] if isinstance(labels, Mapping) else ():
        found[names.LABEL + name(str(label))] = name(str(value))
    return {**found, **of_agent(event.provider, event.model)}


def of_violation(event: PolicyViolated) -> Attributes:
    """The attributes of a violation: its rule and policy, and how far it got."""
    return {
        names.POLICY: name(event.policy),
        names.RULE: name(event.rule),
        names.KIND: name(event.kind),
        names.ACTION: name(event.action),
        names.ENFORCEMENT: name(event.enforcement),
    }


def of_usage(usage: Mapping[str, Any]) -> Attributes:
    """The attributes of usage: tokens, and cost in USD, if they are numbers."""
    found: Attributes = {
        attribute: count
        for field, attribute in names.USAGE.items()
        if type(count := usage.get(field)) is int and count
    }
    cost = usage.get("cost_usd")
    if isinstance(cost, int | float) and cost:
        found[names.COST] = float(cost)
    return found
