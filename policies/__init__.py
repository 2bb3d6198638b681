"""Pure judgement: what a policy says, and what it answers to each event of a session."""

from .calls import Capabilities, Decision, RunContext, ToolCall, Usage, Violation
from .errors import EventError, PolicyError, PolicyViolationError, Problem, ProctorError
from .events import Event, decode_event, encode_event
from .model import Allow, Deny, Limits, Policy
