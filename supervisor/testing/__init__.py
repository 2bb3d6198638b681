"""What tests and authors of adapters and stores use: in-memory twins of the ports, and conformance suites.

steps                what a fake agent does
fake_adapter         an agent in memory
twins                an approver and a publisher in memory
faulty_store         a store that fails on purpose
"""

from .fake_adapter import FakeAdapter, FakeProvider
from .faulty_store import FaultyStore
from .steps import Ask, Crash, Pause, Step, Stop, Together
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
