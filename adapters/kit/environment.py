"""A client's environment: a home directory, and the shell its commands run in."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def bash_for_commands(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that make a client run commands with bash, as `runs` reads them; empty where there is no bash."""
    bash = shutil.which("bash", path=env.get("PATH"))
    return {} if bash is None else {"SHELL": bash}


def shell_of(env: Mapping[str, str]) -> str | None:
    """The shell that a client runs commands with, where it is started with those variables."""
    return "bash" if bash_for_commands(env) else None


def home_of(env: Mapping[str, str]) -> str | None:
    """The absolute home directory of a process with this environment; None where that does not say."""
    home = env.get("HOME") or env.get("USERPROFILE")
    return home if home is not None and os.path.isabs(home) else None


_carried: dict[str, dict[str, str]] = {}


def carry_trace(run_id: str, carrier: Mapping[str, str]) -> None:
    """Give this trace context to the processes of a run from now on; an empty one ends that."""
    if carrier:
        _carried[run_id] = {name.upper(): value for name, value in carrier.items()}
    else:
        _carried.pop(run_id, None)


def trace_environment(run_id: str) -> Mapping[str, str]:
    """The variables (TRACEPARENT, TRACESTATE) that a run's processes get."""
    return _carried.get(run_id, {})
