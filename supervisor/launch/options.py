"""The options of one run, and their checks before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

import msgspec

from proctor.policies.errors import PolicyError
from proctor.policies.events.run_context import RunContext
from proctor.policies.policy import Policy
from proctor.policies.rules.petri_net import Mappers, OnResults, Validators

from ..arguments import check_count, check_order
from ..errors import UsageError
from ..machine.run_state import RecordBounds

Continuation: TypeAlias = Literal["auto", "native", "replay", "none"]


class RunOptions(TypedDict, total=False):
    """The options that every run has.

    Attributes:
        policies: The policies, merged left to right; `()` for a run under no policy.
        policy: One policy, instead of `policies`.
        context: The user, tenant and labels of the run; rules read them in `when`.
        continuation: How to continue a session: `native` (the agent's own resume), `replay`, `none`; `auto` chooses
            what fits, and `replay` if the client does not have its own session.
        validators: Callables that judge calls under a net, by the net's name.
        on_results: Callables that receive what such calls returned, by the net's name.
        mappers: Callables that give calls more names for a net, by the net's name.
    """

    policies: Sequence[Policy] | None
    policy: Policy | None
    context: RunContext | None
    continuation: Continuation
    validators: Validators | None
    on_results: OnResults | None
    mappers: Mappers | None


class StartOptions(RunOptions, total=False):
    """The options of a run that was not created before.

    Attributes:
        session_id: The session to continue; by default a new one.
        run_id: The run's id; by default a new one.
        metadata: Anything to record with the run.
    """

    session_id: str | None
    run_id: str | None
    metadata: Mapping[str, Any] | None


class RecordOptions(TypedDict, total=False):
    """How much of one run is recorded.

    Attributes:
        max_messages: How many messages, those of users counted by themselves; what comes after them is in the record
            as one `error_occurred`, and the run goes on. By default 50,000.
        max_message_bytes: About how many bytes of them; by default 32 MiB.
        max_events: How many other events; one more is an `error_occurred` with the code `record_full`, and ends the
            run as failed. By default 100,000.
        max_event_bytes: About how many bytes of them; by default 256 MiB.
    """

    max_messages: int
    max_message_bytes: int
    max_events: int
    max_event_bytes: int


class OnceOptions(StartOptions, RecordOptions, total=False):
    """What one run takes that is started by itself."""


class ExecuteOptions(RunOptions, RecordOptions, total=False):
    """What one run takes that was created before and is started by itself."""


def record_bounds(given: Mapping[str, Any]) -> RecordBounds:
    """The bounds that options give. Raises UsageError."""
    for name, most in given.items():
        check_count(name, most)
    return RecordBounds(**given)


def parted(options: Mapping[str, Any]) -> tuple[Any, Any]:
    """The options of a run, and those of what is recorded of it."""
    bounds = {name: value for name, value in options.items() if name in RecordOptions.__annotations__}
    return {name: value for name, value in options.items() if name not in bounds}, bounds


NO_POLICY = Policy(name="no policy")
"""The record's entry for a run under no policy, which denies nothing."""


def policies_given(policies: object, policy: object) -> tuple[Policy, ...]:
    """The policies a caller gave, in one of the two ways; `()` says on purpose that there is none.

    Raises UsageError where none is given, or both ways are used, PolicyError for what is not a policy.
    """
    if policies is None and policy is None:
        raise UsageError("no policy was given; use `policies=[...]`, or `policies=()` for a run under no policy")
    if policies is not None and policy is not None:
        raise UsageError("both `policies` and `policy` were given; put all of them into `policies=[...]`")
    if policies == () and isinstance(policies, tuple):
        return (NO_POLICY,)
    given: Any = policies if policies is not None else [policy]
    if isinstance(given, Policy):
        raise PolicyError("`policies` is one policy; use `policies=[policy]` or `policy=policy`")
    if isinstance(given, (str, bytes, dict)) or not isinstance(given, Sequence):
        raise PolicyError(f"`policies` is a value of type `{type(given).__name__}`, not a list of policies")
    if not given:
        raise PolicyError("`policies` is an empty list; write `policies=()` where a run under no policy is meant")
    for n, item in enumerate(given):
        if not isinstance(item, Policy):
            raise PolicyError(f"`policies[{n}]` is a value of type `{type(item).__name__}`, not a policy")
    return tuple(given)


class NetHooks(msgspec.Struct, frozen=True):
    """Callables attached to nets, by the nets' names."""

    validators: Validators = {}
    on_results: OnResults = {}
    mappers: Mappers = {}

    def ids(self) -> tuple[object, ...]:
        """The same for the same functions on the same nets."""
        of_each = (self.validators, self.on_results, self.mappers)
        return tuple((n, name, id(hooks[name])) for n, hooks in enumerate(of_each) for name in sorted(hooks))


def hooks_given(validators: object, on_results: object, mappers: object) -> NetHooks:
    """The hooks a caller gave. Raises UsageError for anything that is not a mapping from names."""
    each = {"validators": validators, "on_results": on_results, "mappers": mappers}
    for name, given in each.items():
        if given is not None and not (isinstance(given, Mapping) and all(isinstance(net, str) for net in given)):
            raise UsageError(f"`{name}` is not a mapping from the names of nets to functions")
    return NetHooks(**{name: dict(given or {}) for name, given in each.items()})  # type: ignore[call-overload]


class CheckedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run once they are checked."""

    policies: tuple[Policy, ...]
    no_policy: bool
    hooks: NetHooks
    context: RunContext | None
    continuation: Continuation


def checked_options(function: str, options: RunOptions | StartOptions, takes: type) -> CheckedOptions:
    """The options that a function was called with; `takes` says which there are.

    Raises UsageError for one that there is not or that makes no sense, PolicyError for what is not a policy.
    """
    check_options(function, options, takes)
    policies, context = options.get("policies"), options.get("context")
    check_order("", context)
    return CheckedOptions(
        policies=policies_given(policies, options.get("policy")),
        no_policy=policies == (),
        hooks=hooks_given(*(options.get(name) for name in NetHooks.__struct_fields__)),
        context=context,
        continuation=options.get("continuation", "auto"),
    )


def check_options(function: str, options: Mapping[str, Any], takes: type, *others: str) -> None:
    """Raises UsageError for an option that is neither one of a typed dict nor one of the others."""
    names = [*takes.__annotations__, *others]
    for name in options:
        if name not in names:
            from proctor.policies.reading.schema import did_you_mean

            hint = did_you_mean(name, names) or f"it takes {', '.join(names)}"
            raise UsageError(f"`{function}` takes no `{name}`; {hint}")
