"""What hooks in the real Claude Code are seen to do, for their row of the matrix."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.hook.settings import hooks, installed, settings_path
from proctor.adapters.matrix.hooked import HOOKED
from proctor.policies import RunContext
from proctor.supervisor.testing.evidence import Evidence

POLICY = (
    "{name: p, on_violation: deny, tool_rules: [{deny: [{tool: Bash, where: [{path: $.command, regex: never}]}]}]}"
)


@pytest.mark.claude
class TestHooks(Evidence):
    """In the settings of a project."""

    row = "hook"

    def test_a_denied_call_has_no_effect_and_the_turn_goes_on(self, claude: Any, tmp_path: Path) -> None:
        """Every call is asked about before it runs; tokens are recorded with each response."""
        policy, store = tmp_path / "policy.yaml", tmp_path / "store.db"
        policy.write_text(POLICY)
        installed(settings_path(user=False, folder=claude.cwd), hooks([policy], store, RunContext()))
        api, never, done = claude.api, claude.cwd / "never", claude.cwd / "done"
        api.say(
            api.reply(api.bash(f"touch {never}")), api.reply(api.bash(f"touch {done}")), api.reply(api.text("end"))
        )

        claude.run("--allowedTools", "Bash")

        types = [name for (name,) in sqlite3.connect(store).execute("SELECT type FROM events ORDER BY seq")]
        assert not never.exists()
        assert types.count("tool_call_requested") == types.count("tool_call_started") + 1 == 2
        counted = types.count("token_usage_updated")
        self.saw(
            HOOKED,
            gate="all",
            deny_ends_turn=not done.exists(),
            usage="per_turn" if counted > 1 else "at_end" if counted else "none",
        )
