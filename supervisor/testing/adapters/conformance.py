"""What every Adapter must do, as tests that an adapter's author can run.

Subclass it in a test module and provide agents that do what the tests need; with pytest:

    @pytest.mark.anyio
    class TestMyAdapter(AdapterConformance):
        @pytest.fixture(autouse=True)
        def place(self, tmp_path: Path) -> None:
            self.workspace = tmp_path

        def making(self, *files: str, together: bool = False) -> Agent:
            return Agent(MyAdapter(cwd=self.workspace), prompt=f"make {files}")

Nothing here needs pytest. Each `test_` method raises AssertionError if it fails; call it on a new instance with
an empty workspace, on asyncio and on trio.
"""

from __future__ import annotations

from .cancelling import CancellingChecks
from .checks import Agent
from .compiling import CompilingChecks
from .crashing import CrashingChecks
from .gating import GatingChecks
from .refusing import RefusingChecks
from .showing import ShowingChecks
from .supervising import SupervisingChecks

__all__ = ["AdapterConformance", "Agent"]


class AdapterConformance(
    GatingChecks,
    RefusingChecks,
    CancellingChecks,
    CrashingChecks,
    ShowingChecks,
    CompilingChecks,
    SupervisingChecks,
):
    """All the tests. A test whose agent is not provided (None) is shown as skipped, unless `without` names the
    agent. It fails if only that agent could show what the adapter declares.
    """
