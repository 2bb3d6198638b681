"""What tests and authors of adapters and stores use: in-memory twins of the ports, and conformance suites."""

from .fake_adapter import FakeAdapter, FakeProvider
from .steps import Ask, Crash, Pause, Step, Stop, Together
from .stores.faulty import FaultyStore
from .twins import FakeApprover, FakePublisher

__all__ = [
    "Ask",
    "Crash",
    "FakeAdapter",
    "FakeApprover",
    "FakeProvider",
    "FakePublisher",
    "FaultyStore",
    "Pause",
    "Step",
    "Stop",
    "Together",
]

ROOMS = (
    "adapters",  # the conformance suite of adapters
    "fake_adapter",  # an agent in memory
    "steps",  # what a fake agent does
    "stores",  # the conformance suite of stores
    "patience",  # how long a test waits before it counts as hanging
    "twins",  # an approver and a publisher in memory
    "damaged_output",  # garbles or cuts what a client writes
)
