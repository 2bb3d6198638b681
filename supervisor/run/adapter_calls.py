"""Asks an adapter about itself, so that whatever it raises is an error of that adapter."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.policies.events.run_context import Capabilities
from proctor.policies.policy import Policy
from proctor.policies.values.foreign_code import isolated

from ..errors import UsageError
from ..ports.adapter import Adapter, LaunchOptions, Provider, Remains, Rung


def capabilities_of(adapter: Adapter) -> Capabilities:
    """The capabilities of an adapter. Raises what it raises, as an Exception, and UsageError for anything else."""
    given: object = isolated(getattr, adapter, "capabilities")
    if not isinstance(given, Capabilities):
        raise UsageError(f"the adapter's `capabilities` are a `{type(given).__name__}`, not `Capabilities`")
    return given


def name_of(adapter: Adapter) -> str:
    """The name of an adapter. Raises what it raises, as an Exception, and UsageError if it is not text."""
    given: object = isolated(getattr, adapter, "name", None)
    if not isinstance(given, str):
        raise UsageError(f"the adapter's `name` is a `{type(given).__name__}`, not text")
    return given


def remains_of(adapter: Adapter) -> Remains | None:
    """End the remains of an adapter's runs, if it can. Raises what it raises, as an Exception."""
    found: Remains | None = isolated(getattr, adapter, "end_remains", None)
    return found


def launch_options(adapter: Adapter, policy: Policy) -> LaunchOptions:
    """A policy as an adapter's launch options. Raises what it raises, as an Exception, and UsageError for anything
    else.
    """
    given: object = isolated(adapter.compile, policy)
    if not isinstance(given, LaunchOptions):
        raise UsageError(f"the adapter's `compile` gave a `{type(given).__name__}`, not `LaunchOptions`")
    return given


def ladder_of(provider: Provider) -> Sequence[Rung]:
    """The steps that end a provider. Raises what it raises, as an Exception."""
    return isolated(lambda: tuple(provider.ladder()))
