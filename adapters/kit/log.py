"""Where adapters log: the supervisor's logger, with the ids of the run and never with what the run holds."""

from __future__ import annotations

import traceback
from typing import Any

from proctor.supervisor.log import logger
from proctor.supervisor.ports.adapters import Launch


def run_logger(launch: Launch) -> Any:
    """A logger bound to a run and its session; silent until the program asks for logs."""
    return logger(run_id=launch.run_id, session_id=launch.session_id)


def trace_of(error: BaseException) -> str:
    """An exception with where it came from, as text.

    Log this in place of the exception: a program's own log format may print the local variables of every frame, and
    those are tool inputs and secrets.
    """
    return "".join(traceback.format_exception(error))
