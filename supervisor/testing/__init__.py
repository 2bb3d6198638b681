"""What tests and authors of adapters and stores use: in-memory twins of the ports, and conformance suites.

steps                what a fake agent does
fake_adapter         an agent in memory
twins                an approver and a publisher in memory
faulty_store         a store that fails on purpose
store_checks         what the tests of the Store port share
store_appending      tests of storing events
store_finding        tests of finding what is stored
store_fidelity       tests of events coming back as they were
store_lifetime       tests of waiting, closing, opening again
store_conformance    all of them: the suite to run against a Store
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
