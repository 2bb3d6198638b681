"""Pure judgement: what a policy says, and what it answers to each event of a session."""

from .errors import EventError, PolicyError, PolicyViolationError, Problem, ProctorError
from .monitor.compiled import CompiledPolicy, compile_policy
from .monitor.monitor import Monitor
from .monitor.report import Report, RuleReport
from .policy import Allow, Deny, Limits, Policy
from .preflight import preflight
from .reading import load_policies, parse_policies
from .stack.merge import merge_policies
from .stream import events
from .stream.calls import Capabilities, Decision, LimitWarning, RunContext, ToolCall, Usage, Violation
from .stream.codec import decode_event, encode_event
from .stream.events import Event

__all__ = [
    "Allow",
    "Capabilities",
    "CompiledPolicy",
    "Decision",
    "Deny",
    "Event",
    "EventError",
    "LimitWarning",
    "Limits",
    "Monitor",
    "Policy",
    "PolicyError",
    "PolicyViolationError",
    "Problem",
    "ProctorError",
    "Report",
    "RuleReport",
    "RunContext",
    "ToolCall",
    "Usage",
    "Violation",
    "compile_policy",
    "decode_event",
    "encode_event",
    "events",
    "load_policies",
    "merge_policies",
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
    "rules",  # one family a file: its records and its machine
    "language",  # values, regular expressions, paths, conditions, tool names
    "commands",  # what a command line would run
    "stream",  # what is judged
    "values",  # values and how they compare
    "errors",  # what can go wrong while reading and applying policies
    "violation",  # one rule's finding about one event or call
)
"""Top first: each imports only those below it."""
