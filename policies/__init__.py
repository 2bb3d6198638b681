"""Pure judgement: what a policy says, and what it answers to each event of a session.

Rows, each importing only those above it:
    errors, json_words
    calls, events, codec
    language/       values, regular expressions, paths, conditions, tool names
    nets/           how nets are written
    model           how a policy is written
    rules/          one family a file: its records and its machine
    reading/        text -> policies, every problem at its place
    ids, merge      several policies as one stack
    prices, usage, limits, memory
    visits          compiled rules, and what calls of a tool mean to them
    session
    compiled        the stack as machines, indexed by tool
    objections, judging, observing, limiting, report, deciding, monitor, snapshots
    preflight/      what is wrong with a stack, before a run starts
    drawing/        a stack as a picture
    schema
"""

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
