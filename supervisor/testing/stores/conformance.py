"""What every Store must do, as tests that a store's author can run.

Subclass it in a test module and define how the store of one test is opened; with pytest:

    @pytest.mark.anyio
    class TestMyStore(StoreConformance):
        durable = True

        @pytest.fixture(autouse=True)
        def place(self, tmp_path: Path) -> None:
            self.path = tmp_path / "store"

        def open_store(self) -> AbstractAsyncContextManager[Store]:
            return MyStore(self.path)

Nothing here needs pytest. Each `test_` method is a coroutine function that raises AssertionError if it fails;
call it on a new instance, on asyncio and on trio.
"""

from __future__ import annotations

from .admitting import AdmittingChecks
from .answering import AnsweringChecks
from .appending import AppendingChecks
from .budgeting import BudgetingChecks
from .claiming import ClaimingChecks
from .fidelity import FidelityChecks
from .finding import FindingChecks
from .lifetime import LifetimeChecks
from .listing import ListingChecks
from .logged import LogChecks
from .pruning import PruningChecks


class StoreConformance(
    AppendingChecks,
    AdmittingChecks,
    FindingChecks,
    ListingChecks,
    LogChecks,
    PruningChecks,
    FidelityChecks,
    ClaimingChecks,
    BudgetingChecks,
    AnsweringChecks,
    LifetimeChecks,
):
    """All the tests. Set `durable` if a store that is opened again holds what the first one acknowledged, and two
    may be open at once.
    """
