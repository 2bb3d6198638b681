"""A thread that the real client resumes, lacks, or can't read, and what is replayed to it."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from proctor.supervisor import ProviderError, UnknownSessionError
from tests.continued_sessions import ContinuedSessions


@pytest.mark.codex
@pytest.mark.anyio
class TestCodex(ContinuedSessions):
    """Another machine has the same folder and another home directory."""

    conversation = "input"

    @pytest.fixture(autouse=True)
    def homes(self, bench: Any, used_home: Path) -> None:
        """The home directories of both machines."""
        self.here, self.used = bench.home, used_home

    def say(self, text: str, *, command: str = "", used: int = 100) -> None:
        api = self.bench.api
        calls = [api.shell("c1", command)] if command else []
        api.reply(api.text(text), *calls, used=(used, 5))

    def stay(self, command: str, *, in_background: bool) -> None:
        soon = {"yield_time_ms": 250} if in_background else {}
        self.bench.api.reply(self.bench.api.shell("c2", command, **soon))

    def adapter(self, *, elsewhere: bool) -> Any:
        self.bench.home = self.here.with_name("elsewhere") if elsewhere else self.here
        if not self.bench.home.exists():
            shutil.copytree(self.used, self.bench.home)
        return self.bench.adapter()

    def kept(self) -> Path:
        latest: Path = max(self.here.rglob("rollout-*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
        return latest

    def left(self, run_id: str) -> list[int]:
        self.bench.run_ids.append(run_id)
        found: list[int] = self.bench.survivors()
        return found

    async def test_a_client_that_its_api_rejects_has_the_thread_and_is_not_restarted(self) -> None:
        """This is a different failure."""
        await self.begin()
        for _ in range(4):
            self.bench.api.reply(status=500)
        with pytest.raises(ProviderError) as caught:
            await self.run("and?")

        assert not isinstance(caught.value, UnknownSessionError)
