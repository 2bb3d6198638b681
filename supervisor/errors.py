"""Errors raised while supervising, below ProctorError (see `proctor.policies.errors`).

ProctorError
├── PolicyError, EventError, PolicyViolationError
├── UsageError                  bad_usage            an argument that makes no sense
│   ├── ApprovalError           approval_closed      an answer that does not count; .kind, .approval
│   ├── NotInstalledError       not_installed        something that an extra of this package brings is missing
│   └── StartsBlockedError      starts_blocked       somebody froze starts; .block
├── OwnerLostError              owner_lost           the supervisor of a run went away before its end
├── StoreError                  store_error          the record cannot be read or written; .kind, .partial
└── ProviderError               provider_error       the agent's client failed; .partial has the result so far
    ├── ProviderUnavailableError  provider_unavailable  not installed, not logged in
    └── UnknownSessionError       unknown_session       it does not have the session to resume
"""

from typing import Any, ClassVar, Literal, TypeAlias

from proctor.policies.errors import EventError, PolicyError, PolicyViolationError, ProctorError
from proctor.policies.values.foreign_code import as_error

__all__ = ["ApprovalError", "EventError", "NotInstalledError", "OwnerLostError", "PolicyError"]
__all__ += ["PolicyViolationError", "ProctorError", "ProviderError", "ProviderUnavailableError", "StartsBlockedError"]
__all__ += ["StoreError", "UnknownSessionError", "UsageError", "as_error"]


class UsageError(ProctorError, ValueError):
    """An argument is wrong; nothing was started."""

    code = "bad_usage"


ApprovalErrorKind: TypeAlias = Literal[
    "unknown", "answered", "expired", "withdrawn", "other_input", "not_allowed", "owner_gone", "asks_itself"
]


class ApprovalError(UsageError):
    """An answer to an approval request was rejected.

    Attributes:
        message: Why, in words.
        kind: Why, for programs: `unknown` (there is no such approval), `answered` (somebody was first), `expired` or
            `withdrawn` (it is too late), `other_input` (it was for another input), `not_allowed` (this person may not
            answer), `owner_gone` (nobody is there to act on it), `asks_itself` (its client asks its person itself).
        approval: The approval in its current state, if there is one.
    """

    code = "approval_closed"

    def __init__(self, message: str, *, kind: ApprovalErrorKind, approval: Any = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.approval = approval


class NotInstalledError(UsageError):
    """What is needed is not installed; the message says which extra brings it.

    Args:
        missing: what needs it, and what that is, as text.
        extra: the extra of this package that installs it.
    """

    code = "not_installed"

    def __init__(self, missing: str, extra: str) -> None:
        super().__init__(f"{missing}; {install_of(extra)}")


class StartsBlockedError(UsageError):
    """Starts are frozen; `block` says who froze them, when and why."""

    code = "starts_blocked"

    def __init__(self, block: Any) -> None:
        why = f": {block.reason}" if block.reason else ""
        when = f" at {block.at:%Y-%m-%d %H:%M:%S} UTC" if block.at is not None else ""
        super().__init__(f"{block.effect}: `{block.by}` froze them{when}{why}; `proctor kill --lift` lifts that")
        self.block = block


class OwnerLostError(ProctorError):
    """The supervisor of a run went away before its end.

    Attributes:
        message: What was lost, in words.
        details: What was done to the processes that it left running.
    """

    code: ClassVar[str] = "owner_lost"

    def __init__(self, message: str, *, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.details = details or {}


StoreErrorKind: TypeAlias = Literal[
    "unwritable",
    "not_a_store",
    "newer_schema",
    "older_schema",
    "truncated",
    "corrupt",
    "gone",
    "closed",
    "forked",
    "bad_record",
    "conflict",
    "run_exists",
    "no_run",
    "run_over",
    "started",
    "claimed",
    "session_busy",
    "fenced",
    "call_started",
    "no_approval",
    "answered",
    "other_input",
    "not_allowed",
    "no_command",
]
"""What a store's error is about; docs/reference/errors.md says what each means."""


class StoreError(ProctorError):
    """The store cannot be read or written.

    Attributes:
        message: The problem, in words.
        kind: The problem, for programs; the page on errors and exit codes lists them.
        policy: Of a run, the policy report.
        partial: Of a run, the result so far.
    """

    code: ClassVar[str] = "store_error"

    def __init__(self, message: str, *, kind: StoreErrorKind = "unwritable") -> None:
        super().__init__(message)
        self.kind = kind
        self.policy: Any = None
        self.partial: Any = None


class ProviderError(ProctorError):
    """The agent's client failed.

    Attributes:
        message: The failure, in words.
        details: Details from the client.
        policy: The policy report, once the run is over.
        partial: The run's result so far, once it is over: output, usage, cost, calls.
    """

    code: ClassVar[str] = "provider_error"

    def __init__(self, message: str, *, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.details = details or {}
        self.policy: Any = None
        self.partial: Any = None


class ProviderUnavailableError(ProviderError):
    """The agent is not installed, not logged in, or its extra is missing; the message says what to do."""

    code: ClassVar[str] = "provider_unavailable"


class UnknownSessionError(ProviderError):
    """The client does not have the session to resume, or cannot read it; the prompt was not sent.

    An adapter's `open` raises it. With `continuation="auto"` the supervisor opens the client once more, in a session
    of its own to which the conversation is replayed.

    Attributes:
        reason: What is missing, in words; the message also says what to do.
        details: Details from the client.
    """

    code: ClassVar[str] = "unknown_session"

    def __init__(self, reason: str, *, details: dict[str, Any] | None = None) -> None:
        super().__init__(f"{reason}; the continuation `replay` gives it the conversation", details=details)
        self.reason = reason


def install_of(extra: str) -> str:
    """How to install what an extra of this package brings: a package of its name on an index is not this one."""
    return f"in your clone of proctor, run pip install '.[{extra}]'"
