"""Runs over several processes and machines: a queue in the store, workers that claim runs from it, Ray to place them.

A run is queued as data (`RunSpec`), and any worker on the same store may claim it. Nothing here elects or schedules:
the store decides who owns a run, and Ray where workers live.
"""

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

if TYPE_CHECKING:
    from .fleet import Fleet, FleetHandle
    from .placement import WorkerStatus
    from .queue import RunSpec
    from .worker import Worker

__all__ = ["Fleet", "FleetHandle", "RunSpec", "Worker", "WorkerStatus"]
__getattr__, __dir__ = lazily(
    __name__, {"fleet": "Fleet FleetHandle", "placement": "WorkerStatus", "queue": "RunSpec", "worker": "Worker"}
)
ROOMS = ("fleet", "placement", "worker", "queue")
"""Top first: each imports only those below it."""
