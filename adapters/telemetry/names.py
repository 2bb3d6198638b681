"""The names of spans, metrics and attributes.

Names that begin with `gen_ai.` are from OpenTelemetry's conventions for generative AI. Those still change, which
is why the names are written here and not imported. The others are ours.
"""

from __future__ import annotations

from typing import Final

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
"""By the fields of our own record of usage."""

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
