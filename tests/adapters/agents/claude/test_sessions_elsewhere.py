"""A session that the real client resumes, lacks, or has only in part, and what is replayed to it."""

from pathlib import Path
from typing import Any

import pytest

from tests.continued_sessions import ContinuedSessions


def replaced(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.claude
@pytest.mark.anyio
class TestClaude(ContinuedSessions):
    """Each machine has its own home directory."""

    damages = (*ContinuedSessions.damages, replaced)
    conversation = "messages"

    def say(self, text: str, *, command: str = "", used: int = 100) -> None:
        api = self.bench.api
        calls = [api.bash(command)] if command else []
        api.say(api.reply(api.text(text), *calls, input_tokens=used))

    def stay(self, command: str, *, in_background: bool) -> None:
        api = self.bench.api
        api.say(api.reply(api.bash(command, run_in_background=in_background)))

    def adapter(self, *, elsewhere: bool) -> Any:
        folder = self.bench.cwd.with_name("elsewhere" if elsewhere else "home")
        return self.bench.adapter(env={"HOME": str(folder), "CLAUDE_CONFIG_DIR": str(folder / "claude")})

    def kept(self) -> Path:
        found = [path for path in self.bench.cwd.with_name("home").rglob("*.jsonl") if path.is_file()]
        latest: Path = max(found, key=lambda path: path.stat().st_mtime_ns)
        return latest

    def left(self, run_id: str) -> list[int]:
        found: list[int] = self.bench.marked(run_id)
        return found
