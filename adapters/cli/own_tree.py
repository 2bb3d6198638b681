"""Who asks: a person outside, or something that a supervised run has started.

This is a second line of defence: a process that clears its environment and leaves its parents is not seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping


def check_outside_runs(what: str) -> None:
    """Raises UsageError when this process, or one it descends from, belongs to a supervised run."""
    from proctor.adapters.kit.processes.process_tree import RUN_MARK
    from proctor.supervisor.errors import UsageError
    from proctor.supervisor.ports.processes import run_of

    for environment in _environments():
        if mark := environment.get(RUN_MARK):
            raise UsageError(
                f"`{what}` is for people: it does not work within a supervised run (this is `{run_of(mark)}`)"
            )


def _environments() -> Iterator[Mapping[str, str]]:
    import psutil

    yield os.environ
    try:
        parents = psutil.Process().parents()
    except psutil.Error:
        return
    for parent in parents:
        try:
            yield parent.environ()
        except psutil.Error:  # another user's, and so not ours
            continue
