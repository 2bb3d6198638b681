"""The arguments of the public functions: the options of a run, and their checks before anything starts."""

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

import msgspec

from proctor.policies.errors import PolicyError, wrong_type
from proctor.policies.events.calls import UNREADABLE
from proctor.policies.events.run_context import RunContext
from proctor.policies.policy import Policy
from proctor.policies.rules.petri_net import Mappers, OnResults, Validators
from proctor.policies.values.foreign_code import isolated
from proctor.policies.values.json_values import is_finite, json_words

from .errors import ProviderError, UsageError
from .ports.stored_types import ApprovalAnswer

T = TypeVar("T")
Continuation: TypeAlias = Literal["auto", "native", "replay", "none"]


class RunOptions(TypedDict, total=False):
    """The options that every run has.

    Attributes:
        policies: The policies, merged left to right; `()` for no policy.
        policy: One policy, instead of `policies`.
        context: The user, tenant and labels of the run; rules read them in `when`.
        continuation: How to continue a session: `native` (the agent's own resume), `replay` (the conversation so
            far), `none`; `auto` resumes if it can, else replays.
        validators: Callables that evaluate calls under a net, by the net's name.
        on_results: Callables that receive the results of such calls, by the net's name.
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
        max_messages: How many messages, the users' counted separately; later ones are replaced by one
            `error_occurred`, and the run continues. By default 50,000.
        max_message_bytes: About how many bytes they may have; by default 32 MiB.
        max_events: How many other events; one more is recorded as an `error_occurred` with the code `record_full`,
            and the run fails. By default 100,000.
        max_event_bytes: About how many bytes they may have; by default 256 MiB.
    """

    max_messages: int
    max_message_bytes: int
    max_events: int
    max_event_bytes: int


class OnceOptions(StartOptions, RecordOptions, total=False):
    """The options of a single new run."""


class ExecuteOptions(RunOptions, RecordOptions, total=False):
    """The options of a single run that was created before."""


class RecordBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a run is recorded; its attributes are described by `RecordOptions`."""

    max_messages: int = 50_000
    max_message_bytes: int = 32 * 1024 * 1024
    max_events: int = 100_000
    max_event_bytes: int = 256 * 1024 * 1024


BOUNDS = RecordBounds()


def record_bounds(given: Mapping[str, Any]) -> RecordBounds:
    """The bounds in these options. Raises UsageError."""
    for name, most in given.items():
        check_count(name, most)
    return RecordBounds(**given)


def parted(options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Split options into those of the run and those of its record."""
    bounds = {name: value for name, value in options.items() if name in RecordOptions.__annotations__}
    return {name: value for name, value in options.items() if name not in bounds}, bounds


NO_POLICY = Policy(name="no policy")
"""What stands for no policy: it denies nothing."""


def policies_given(policies: object, policy: object) -> tuple[Policy, ...]:
    """The policies of a caller's two arguments; none for `policies=()`, which is no policy on purpose.

    Raises UsageError if neither or both are given, PolicyError for anything that is not a policy.
    """
    if policies is None and policy is None:
        raise UsageError("no policy was given; use `policies=[...]`, or `policies=()` for a run under no policy")
    if policies is not None and policy is not None:
        raise UsageError("both `policies` and `policy` were given; put all of them into `policies=[...]`")
    if policies == () and isinstance(policies, tuple):
        return ()
    given: Any = policies if policies is not None else [policy]
    if isinstance(given, Policy):
        raise PolicyError("`policies` is one policy; use `policies=[policy]` or `policy=policy`")
    if isinstance(given, (str, bytes, dict)) or not isinstance(given, Sequence):
        raise PolicyError(
            f"`policies` is a value of type `{type(given).__name__}`, not a list of policies{_hint(given)}"
        )
    if not given:
        raise PolicyError("`policies` is an empty list; write `policies=()` where a run under no policy is meant")
    for n, item in enumerate(given):
        if not isinstance(item, Policy):
            name = f"policies[{n}]" if policies is not None else "policy"
            raise PolicyError(f"`{name}` is a value of type `{type(item).__name__}`, not a policy{_hint(item)}")
    return tuple(given)


def _hint(given: object) -> str:
    """What makes policies of a value that is none, after a semicolon."""
    match given:
        case str():
            return "; `load_policies(path)` reads a file, `parse_policies(text)` a text"
        case bytes() | dict():
            return "; `parse_policies` reads it"
        case [Policy(), *_]:
            return "; put its policies into the list: `[*policies, ...]`"
    return ""


class NetHooks(msgspec.Struct, frozen=True):
    """Callables attached to nets, by the nets' names."""

    validators: Validators = {}
    on_results: OnResults = {}
    mappers: Mappers = {}

    def ids(self) -> tuple[object, ...]:
        """A key that is equal for the same functions on the same nets."""
        of_each = (self.validators, self.on_results, self.mappers)
        return tuple((n, name, id(hooks[name])) for n, hooks in enumerate(of_each) for name in sorted(hooks))


def hooks_given(validators: object, on_results: object, mappers: object) -> NetHooks:
    """The hooks of a caller's arguments. Raises UsageError for anything that is not a mapping from names."""
    each = {"validators": validators, "on_results": on_results, "mappers": mappers}
    for name, given in each.items():
        if given is not None and not (isinstance(given, Mapping) and all(isinstance(net, str) for net in given)):
            raise UsageError(f"`{name}` is not a mapping from the names of nets to functions")
    return NetHooks(**{name: dict(given or {}) for name, given in each.items()})  # type: ignore[call-overload]


class CheckedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The checked options of a run; `policies` is empty if its caller gave `policies=()`."""

    policies: tuple[Policy, ...]
    hooks: NetHooks
    context: RunContext | None
    continuation: Continuation


def checked_options(function: str, options: RunOptions | StartOptions, takes: type) -> CheckedOptions:
    """Check the options of a function's call against the typed dict `takes`.

    Raises UsageError for an unknown or invalid one, PolicyError for anything that is not a policy.
    """
    check_options(function, options, takes)
    context = options.get("context")
    check_order("", context)
    return CheckedOptions(
        policies=policies_given(options.get("policies"), options.get("policy")),
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


def check_store(store: object) -> None:
    """Raises UsageError for anything that is not a store."""
    if isinstance(store, type) or not hasattr(store, "create_run"):
        raise UsageError(f"`store` is {_named(store)}, not a store; for example `SQLiteStore(path)`")


def isolated_member(member: str, call: Callable[[], T]) -> T:
    """Call a member of an adapter. Raises the Exception that it raises, and for anything else (SystemExit,
    GeneratorExit, a cancel of its own) a ProviderError that names the member.
    """
    try:
        return isolated(call)
    except RuntimeError as error:
        if isinstance(error.__cause__, Exception | None):
            raise
        message = f"the adapter's `{member}` failed: {error}; an adapter reports an error by an `Exception`"
        raise ProviderError(message) from error.__cause__


def check_adapter(adapter: object) -> None:
    """Raises UsageError for anything that is not an adapter."""
    if isinstance(adapter, type) or not isolated_member("capabilities", lambda: hasattr(adapter, "capabilities")):
        wanted = "not an adapter; for example `ShellAdapter()`, or `PydanticAIAdapter(agent)`"
        raise UsageError(f"`adapter` is {_named(adapter)}, {wanted}")
    check_methods("the adapter", adapter, "prepare", "compile", "open")


def check_methods(what: str, given: object, *members: str) -> None:
    """Raises UsageError if something of an adapter lacks a method; it may be a proxy that only gives them."""
    for member in members:
        if not callable(isolated_member(member, partial(getattr, given, member, None))):
            raise UsageError(f"{what} `{type(given).__name__}` has no method `{member}`")


def check_text(**given: object) -> None:
    """Raises UsageError, naming the argument, for anything that is not text, or that no record can hold."""
    for name, value in given.items():
        if not isinstance(value, str):
            raise UsageError(f"`{name}` is {_named(value)}, not text")
        try:
            msgspec.json.encode(value)
        except UnicodeEncodeError:
            raise UsageError(f"`{name}` is not UTF-8 text") from None
        except TypeError:  # of a class of its own, as numpy has
            raise UsageError(f"`{name}` is {_named(value)}; use the plain text, `str(...)`") from None


def check_path(**given: object) -> None:
    """Raises UsageError, naming the argument, for anything that is not a path."""
    for name, value in given.items():
        if not isinstance(value, str | os.PathLike):
            raise UsageError(f"`{name}` is {_named(value)}, not a path")


def check_count(name: str, given: object) -> None:
    """Raises UsageError for anything that is not a whole number from 1."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise UsageError(f"{name} is {given!r}; it must be a whole number from 1")


def check_seconds(*, endless: bool = True, **given: object) -> None:
    """Raises UsageError for anything that is not a number of seconds; infinity is one if it may be `endless`."""
    for name, value in given.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and value == value
        if not is_number or (not endless and value in (math.inf, -math.inf)):
            raise UsageError(f"`{name}` is {value!r}; it is a number of seconds")


def moment_before(now: datetime | None, older_than: object) -> datetime:
    """The moment so long before now. Raises UsageError for anything that is not a length of time."""
    if not isinstance(older_than, timedelta) or older_than < timedelta(0):
        raise UsageError("`older_than` is a time, for example `timedelta(days=90)`")
    now = now or datetime.now(UTC)
    return now - min(older_than, now - datetime.min.replace(tzinfo=UTC))


def check_named(**given: object) -> None:
    """Raises UsageError for anything but text, and for an empty name; None stands for no name."""
    for name, value in given.items():
        if value is not None:
            check_text(**{name: value})
        if value == "":
            raise UsageError(f"`{name}` is empty; leave it out, or name one")


def check_observers(approver: object, publishers: object) -> None:
    """Raises UsageError for anything that cannot be called."""
    if approver is not None and not callable(approver):
        raise UsageError(f"`approver` is {_named(approver)}, not a function")
    for publisher in publishers if isinstance(publishers, list | tuple) else [None]:
        if not callable(publisher):
            raise UsageError("`publishers` is a list of functions that are called with each event")
        if any(map(inspect.iscoroutinefunction, (publisher, getattr(publisher, "__call__", None)))):  # noqa: B004
            raise UsageError("a publisher is called, not awaited: give a plain function, not an `async def`")


def check_order(prompt: object, context: object, metadata: object = None) -> None:
    """Raises UsageError for a prompt that is no text, a context no RunContext, metadata no mapping."""
    check_text(prompt=prompt)
    if metadata is not None and not isinstance(metadata, Mapping):
        raise UsageError(f"`metadata` is {_named(metadata)}, not a mapping")
    if context is None:
        return
    if not isinstance(context, RunContext):
        raise UsageError(f"`context` is {_named(context)}, not a `RunContext`")
    recordable("context", context, RunContext)


def recordable(name: str, given: object, kind: Any = Any) -> Any:
    """The argument, encoded as JSON and decoded again. Raises UsageError if no record can hold it, or that gives back
    something else than this kind.
    """
    try:
        line = msgspec.json.encode(given)
        if b"null" in line and not is_finite(given):
            raise ValueError("a number in it is not finite")
        return msgspec.json.decode(line, type=kind)
    except UNREADABLE as error:
        raise UsageError(f"`{name}` cannot be recorded: {json_words(error)}") from None


def checked_answer(given: object) -> ApprovalAnswer:
    """The answer to an approval, as the record gives it back. Raises UsageError for anything else, and for one with a
    field of another type: one that says `"no"` is not a yes.
    """
    if not isinstance(given, ApprovalAnswer):
        raise UsageError(wrong_type("an `ApprovalAnswer`", given))
    answer: ApprovalAnswer = recordable("answer", given, ApprovalAnswer)
    return answer


def check_cursor(after: object) -> None:
    """Raises UsageError for anything that is not a position in a session."""
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < 2**63:
        shown = f"`{after}`" if isinstance(after, int | str) else _named(after)
        raise UsageError(f"`after` is {shown}; it is the `seq` of the last event seen, a whole number from 0")


def _named(value: object) -> str:
    if value is None:
        return "None"
    return f"the class `{value.__name__}`" if isinstance(value, type) else f"a value of type `{type(value).__name__}`"
