"""The attributes of an event in spans and metrics. Inputs, outputs, prompts, messages and people are left out by
default.

Text is bounded, because an agent chooses the names of the tools it calls. Every stored event can be encoded.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from proctor.policies.events import PolicyViolated, RunStarted

from ..agents.catalog import SPECS

INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"
RUN_GUARDRAIL: Final = "run_guardrail"
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
MODEL: Final = "gen_ai.request.model"
TOOL: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOKEN_TYPE: Final = "gen_ai.token.type"
ERROR_TYPE: Final = "error.type"
USAGE: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
"""The attributes of usage, by the fields of `Usage`."""
RUN: Final = "proctor.run.id"
STATUS: Final = "proctor.run.status"
REASON: Final = "proctor.run.reason"
TENANT: Final = "proctor.tenant"
LABEL: Final = "proctor.label."
COST: Final = "proctor.usage.cost_usd"
DECISION: Final = "proctor.decision"
POLICY: Final = "proctor.policy"
RULE: Final = "proctor.rule"
RULES: Final = "proctor.rules"
KIND: Final = "proctor.violation.kind"
ACTION: Final = "proctor.violation.action"
ENFORCEMENT: Final = "proctor.violation.enforcement"
MESSAGE: Final = "proctor.violation.message"
LIMIT: Final = "proctor.limit"
APPROVAL: Final = "proctor.approval.outcome"
BY: Final = "proctor.approval.by"
VIOLATION_EVENT: Final = "proctor.violation"
WARNING_EVENT: Final = "proctor.budget_warning"
APPROVAL_EVENT: Final = "proctor.approval"
DURATION_METRIC: Final = "gen_ai.client.operation.duration"
TOKENS_METRIC: Final = "gen_ai.client.token.usage"
RUNS_METRIC: Final = "proctor.runs"
ACTIVE_METRIC: Final = "proctor.runs.active"
DECISIONS_METRIC: Final = "proctor.decisions"
VIOLATIONS_METRIC: Final = "proctor.violations"
APPROVALS_METRIC: Final = "proctor.approvals"
WAIT_METRIC: Final = "proctor.approval.wait"
COST_METRIC: Final = "proctor.cost"
Attributes: TypeAlias = dict[str, str | int | float | bool | tuple[str, ...]]
NAME_CHARS = 128
CONTENT_CHARS = 8 * 1024
_LABELS = 16
_PROVIDERS = {spec.name: spec.model_provider for spec in SPECS if spec.model_provider}
"""Adapters whose models are all from one provider; others have their own name there."""


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
    found: Attributes = {AGENT: name(adapter), PROVIDER: _PROVIDERS.get(adapter, name(adapter))}
    if model:
        found[MODEL] = name(model)
    return found


def of_run(event: RunStarted) -> Attributes:
    """The attributes that a run's span has from the start."""
    found = {CONVERSATION: name(event.session_id), RUN: name(event.run_id)}
    context = event.metadata.get("context")
    context = context if isinstance(context, Mapping) else {}
    for key, value in ((POLICY, event.metadata.get("policy")), (TENANT, context.get("tenant"))):
        if isinstance(value, str):
            found[key] = name(value)
    labels = context.get("labels")
    for label, value in list(labels.items())[:_LABELS] if isinstance(labels, Mapping) else ():
        found[LABEL + name(str(label))] = name(str(value))
    return {**found, **of_agent(event.provider, event.model)}


def of_violation(event: PolicyViolated) -> Attributes:
    """The attributes of a violation: its rule, policy and enforcement."""
    return {
        POLICY: name(event.policy),
        RULE: name(event.rule),
        KIND: name(event.kind),
        ACTION: name(event.action),
        ENFORCEMENT: name(event.enforcement),
    }


def of_usage(usage: Mapping[str, Any]) -> Attributes:
    """The attributes of usage: tokens, and cost in USD, if they are numbers."""
    found: Attributes = {
        attribute: count for field, attribute in USAGE.items() if type(count := usage.get(field)) is int and count
    }
    cost = usage.get("cost_usd")
    if isinstance(cost, int | float) and cost:
        found[COST] = float(cost)
    return found
