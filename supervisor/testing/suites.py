"""Tests of every Adapter and every Store that their authors can run.

Subclass a suite in a test module; with pytest, an adapter's:

    @pytest.mark.anyio
    class TestMyAdapter(AdapterConformance):
        @pytest.fixture(autouse=True)
        def place(self, tmp_path: Path) -> None:
            self.workspace = tmp_path

        def making(self, *files: str, together: bool = False) -> Agent:
            return Agent(MyAdapter(cwd=self.workspace), prompt=f"make {files}")

and a store's:

    @pytest.mark.anyio
    class TestMyStore(StoreConformance):
        durable = True

        @pytest.fixture(autouse=True)
        def place(self, tmp_path: Path) -> None:
            self.path = tmp_path / "store"

        def open_store(self) -> AbstractAsyncContextManager[Store]:
            return MyStore(self.path)

Nothing here needs pytest. Each `test_` method raises AssertionError if it fails; call it on a new instance, an
adapter's with an empty workspace, on asyncio and on trio.
"""

from .adapter_fixture import Agent
from .adapter_gate import CompilingChecks, GatingChecks, RefusingChecks, ShowingChecks, SupervisingChecks
from .adapter_lifecycle import CancellingChecks, CrashingChecks
from .store_approvals import AnsweringChecks, BudgetingChecks
from .store_events import AppendingChecks, FidelityChecks, LogChecks
from .store_lifetime import AdmittingChecks, LifetimeChecks, PruningChecks
from .store_runs import ClaimingChecks, FindingChecks, ListingChecks

__all__ = ["AdapterConformance", "Agent", "StoreConformance"]


class AdapterConformance(
    GatingChecks, RefusingChecks, CancellingChecks, CrashingChecks, ShowingChecks, CompilingChecks, SupervisingChecks
):
    """All the tests. A test whose agent is not provided (None) is shown as skipped, unless `without` names the
    agent. It fails if only that agent could show what the adapter declares.
    """


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
