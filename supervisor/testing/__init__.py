"""What tests and authors of adapters and stores use: in-memory twins of the ports, and conformance suites.

patience             how long a test waits before it counts as hanging
steps                what a fake agent does
fake_adapter         an agent in memory
twins                an approver and a publisher in memory
faulty_store         a store that fails on purpose
driving              runs an adapter by hand
evidence             what was seen of an adapter, beside what it declares
wire                 garbles or cuts what a client writes
adapter_checks       what the tests of the Adapter port share
adapter_gating       tests of order, completeness, the gate before the effect
adapter_refusing     tests of refusal, pairing, another input
adapter_cancelling   tests of ending an agent, whatever it is doing
adapter_crashing     tests of a client that is killed, or writes what is no message
adapter_showing      tests of usage, resuming, narrowing
adapter_compiling    tests of policies as launch options
adapter_supervising  tests of one policy over every adapter
adapter_conformance  all of them: the suite to run against an Adapter
store_checks         what the tests of the Store port share
store_appending      tests of storing events
store_finding        tests of finding what is stored
store_fidelity       tests of events coming back as they were
store_lifetime       tests of waiting, closing, opening again
store_conformance    all of them: the suite to run against a Store
"""

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
