"""Runs over several processes and machines: a queue in the store, workers that take from it, Ray to place them.

A run is put down as data (`RunSpec`). Any worker on the same store may take it; the store lets one. Nothing here
elects or schedules: the store says who owns what, and Ray where workers live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor.lazily import lazily

if TYPE_CHECKING:
    from .fleet import Fleet
    from .handle import FleetHandle
    from .placing import WorkerStatus
    from .run_spec import RunSpec
    from .worker import Worker

__all__ = ["Fleet", "FleetHandle", "RunSpec", "Worker", "WorkerStatus"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "fleet": "Fleet",
        "handle": "FleetHandle",
        "placing": "WorkerStatus",
        "run_spec": "RunSpec",
        "worker": "Worker",
    },
)

ROOMS = (
    "fleet",  # what callers ask of runs that workers execute, and of the workers
    "placing",  # workers on a Ray cluster
    "hosted",  # a worker in a thread of a Ray actor
    "handle",  # one such run, as whoever put it down holds it
    "worker",  # takes runs from the queue and supervises them
    "starts",  # how a worker starts one
    "outcome",  # how a run ended, from its record
    "queue",  # runs that wait in the store for a worker
    "run_spec",  # a run as data
)
"""Top first: each imports only those below it."""
