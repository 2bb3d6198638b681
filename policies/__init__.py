"""Policies, and their evaluation over the events of a session: pure, without clock or I/O."""

from . import events
from .analysis import Findings, PreflightFinding, Proved, Refuted, Unknown, preflight, verify
from .diagram import Picture, draw, draw_mermaid
from .errors import EventError, PolicyError, PolicyViolationError, Problem, ProctorError, Violation
from .events import Event, decode_event, encode_event
from .events.calls import Decision, LimitWarning, ToolCall
from .events.run_context import Capabilities, RunContext, Usage
from .language.conditions import Condition
from .language.selectors import ToolWhere, VirtualTool
from .limits import Budget, Limit, Limits
from .monitor.compiled_policy import CompiledPolicy, compile_policy
from .monitor.limit_checker import LimitStatus
from .monitor.monitor import Monitor, Report, RuleReport
from .policy import Allow, Approval, Deny, Policy, Price, Stack
from .reading import load_policies, parse_policies
from .reading.migrate import migrate
from .reading.schema import json_schema
from .rules.count import Count, MaxCalls
from .rules.lists import Allowlist, Blocklist
from .rules.net_shorthand import NetLine
from .rules.petri_net import Net, NetState, Transition
from .rules.precedence import Before, ImmediatelyBefore
from .rules.precondition import Precondition
from .rules.prior_calls import Requirement, Same
from .rules.provenance import Provenance, Source
from .rules.python_check import Check, CheckContext, PastCall, PastMessage
from .rules.repetition import CircuitBreaker, Loop, MaxParallel
from .rules.response import After, Eventually, Require
from .rules.rule import Refuse, Rule
from .rules.sequence import ForbiddenSequence, ForbidsAfter, NeverAfter, Sequence
from .stack.locks import IgnoredOverride, loosened
from .stack.merge import merge_policies

__all__ = ["After", "Allow", "Allowlist", "Approval", "Before", "Blocklist", "Budget", "Capabilities", "Check"]
__all__ += ["CheckContext", "CircuitBreaker", "CompiledPolicy", "Condition", "Count", "Decision", "Deny", "Event"]
__all__ += ["EventError", "Eventually", "Findings", "ForbiddenSequence", "ForbidsAfter", "IgnoredOverride"]
__all__ += ["ImmediatelyBefore", "Limit", "LimitStatus", "LimitWarning", "Limits", "Loop", "MaxCalls", "MaxParallel"]
__all__ += ["Monitor", "Net", "NetLine", "NetState", "NeverAfter", "PastCall", "PastMessage", "Picture", "Policy"]
__all__ += ["PolicyError", "PolicyViolationError", "Precondition", "PreflightFinding", "Price", "Problem"]
__all__ += ["ProctorError", "Proved", "Provenance", "Refuse", "Refuted", "Report", "Require", "Requirement", "Rule"]
__all__ += ["RuleReport", "RunContext", "Same", "Sequence", "Source", "Stack", "ToolCall", "ToolWhere", "Transition"]
__all__ += ["Unknown", "Usage", "Violation", "VirtualTool", "compile_policy", "decode_event", "draw", "draw_mermaid"]
__all__ += ["encode_event", "events", "json_schema", "load_policies", "loosened", "merge_policies", "migrate"]
__all__ += ["parse_policies", "preflight", "verify"]

ROOMS = (
    "diagram",
    "analysis",
    "monitor",
    "stack",
    "reading",
    "policy",
    "limits",
    "rules",
    "language",
    "events",
    "shell",
    "values",
    "errors",
)
"""Top first: each imports only those below it."""
