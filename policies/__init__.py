"""Pure judgement: what a policy says, and what it answers to each event of a session."""

from .budget import Budget
from .drawing import Picture, draw, draw_mermaid
from .errors import EventError, PolicyError, PolicyViolationError, Problem, ProctorError
from .language.conditions import Condition
from .language.selectors import ToolWhere, VirtualTool
from .monitor.answers.report import Report, RuleReport
from .monitor.compiled import CompiledPolicy, compile_policy
from .monitor.monitor import Monitor
from .monitor.usage.limits import LimitUse
from .policy import Allow, Approval, Deny, Limit, Limits, Policy, Price, Stack
from .preflight import Findings, PreflightFinding, preflight
from .reading import load_policies, parse_policies
from .reading.migrating.migrate import migrate
from .reading.schema import json_schema
from .rules.counting.circuit_breaker import CircuitBreaker
from .rules.counting.count import Count, MaxCalls
from .rules.counting.loop import Loop, MaxParallel
from .rules.evidence.check import Check
from .rules.evidence.check_context import CheckContext, PastCall
from .rules.evidence.precondition import Precondition
from .rules.evidence.provenance import Provenance, Source
from .rules.evidence.requirement import Requirement, Same
from .rules.lists import Allowlist, Blocklist
from .rules.nets.machine import NetState
from .rules.nets.shorthand import NetLine
from .rules.nets.written import Net, Transition
from .rules.order.after import After, Eventually
from .rules.order.before import Before, ImmediatelyBefore
from .rules.order.never_after import ForbidsAfter, NeverAfter
from .rules.order.require import Require
from .rules.order.sequence import ForbiddenSequence, Sequence
from .rules.record import Rule
from .rules.refusal import Refuse
from .stack.locks import Loosened, loosened
from .stack.merge import merge_policies
from .stream import events
from .stream.calls import Capabilities, Decision, LimitWarning, RunContext, ToolCall, Usage, Violation
from .stream.codec import decode_event, encode_event
from .stream.events import Event

__all__ = [
    "After",
    "Allow",
    "Allowlist",
    "Approval",
    "Before",
    "Blocklist",
    "Budget",
    "Capabilities",
    "Check",
    "CheckContext",
    "CircuitBreaker",
    "CompiledPolicy",
    "Condition",
    "Count",
    "Decision",
    "Deny",
    "Event",
    "EventError",
    "Eventually",
    "Findings",
    "ForbiddenSequence",
    "ForbidsAfter",
    "ImmediatelyBefore",
    "Limit",
    "LimitUse",
    "LimitWarning",
    "Limits",
    "Loop",
    "Loosened",
    "MaxCalls",
    "MaxParallel",
    "Monitor",
    "Net",
    "NetLine",
    "NetState",
    "NeverAfter",
    "PastCall",
    "Picture",
    "Policy",
    "PolicyError",
    "PolicyViolationError",
    "Precondition",
    "PreflightFinding",
    "Price",
    "Problem",
    "ProctorError",
    "Provenance",
    "Refuse",
    "Report",
    "Require",
    "Requirement",
    "Rule",
    "RuleReport",
    "RunContext",
    "Same",
    "Sequence",
    "Source",
    "Stack",
    "ToolCall",
    "ToolWhere",
    "Transition",
    "Usage",
    "Violation",
    "VirtualTool",
    "compile_policy",
    "decode_event",
    "draw",
    "draw_mermaid",
    "encode_event",
    "events",
    "json_schema",
    "load_policies",
    "loosened",
    "merge_policies",
    "migrate",
    "parse_policies",
    "preflight",
]

ROOMS = (
    "preflight",  # what is wrong with a stack, before a run starts
    "drawing",  # a stack as a picture
    "monitor",  # the state of all rules over one session
    "stack",  # several policies merged left to right, and their clauses resolved once
    "reading",  # text -> policies, every problem at its place
    "policy",  # how a policy is written
    "budget",  # a budget that many runs share, as it is written
    "rules",  # one family a file: its records and its machine
    "language",  # values, regular expressions, paths, conditions, tool names
    "commands",  # what a command line would run
    "stream",  # what is judged
    "values",  # values and how they compare
    "errors",  # what can go wrong while reading and applying policies
    "violation",  # one rule's finding about one event or call
)
"""Top first: each imports only those below it."""
