"""Tools for tests and for authors of adapters and stores: in-memory twins of the ports, and conformance suites."""

from .fakes import Ask, Crash, FakeAdapter, FakeApprover, FakeProvider, FakePublisher, Pause, Step, Stop, Together
from .store_fixture import FaultyStore

__all__ = ["Ask", "Crash", "FakeAdapter", "FakeApprover", "FakeProvider", "FakePublisher", "FaultyStore", "Pause"]
__all__ += ["Step", "Stop", "Together"]

ROOMS = (
    "damaged_output",
    "suites",
    "adapter_gate",
    "adapter_lifecycle",
    "store_events",
    "store_lifetime",
    "adapter_fixture",
    "store_approvals",
    "store_runs",
    "store_fixture",
    "fakes",
)
"""Top first: each imports only those below it."""
