"""People who open the dashboard in a real browser: `from tests.dashboard import Person`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import web_server
from web_server import ANA, Site, going

sync_api = pytest.importorskip("playwright.sync_api", reason="pip install '.[browser]'")
expect = sync_api.expect
expect.set_options(timeout=20_000)

needs_browser = pytest.mark.skipif(not Path(web_server.CHROMIUM).exists(), reason="apt-get install chromium")

POLICY = """\
name: team
limits: {max_tool_calls: 10}
approval: {timeout_s: 120}
nets: [require human-approval before write]
"""
ASKS = """\
tools: [write]
steps:
  - say: I write it down.
  - call: write
    input: {path: notes.txt, content: "first\\nsecond\\n"}
    if_denied: [{say: Then not.}]
    if_completed: [{say: It is written.}]
"""


class Person:
    """Opens tabs with a token; any error in one fails the test."""

    def __init__(self, browser: Any, site: Site) -> None:
        self._site = site
        self._context = browser.new_context()
        self._context.set_default_timeout(20_000)
        self.wrong: list[str] = []

    def opens(self, path: str = "#/", token: str = ANA) -> Any:
        tab = self._context.new_page()
        tab.on("pageerror", lambda error: self.wrong.append(str(error)))
        tab.on("dialog", lambda dialog: self.wrong.append(dialog.message))
        tab.on("console", lambda line: self.wrong.append(line.text) if line.type == "error" else None)
        tab.goto(f"{self._site.url}/#token={token}")
        expect(tab.get_by_role("heading", level=1)).to_be_visible()
        if path != "#/":
            tab.evaluate("path => { location.hash = path }", path)
        return tab

    def close(self) -> None:
        self._context.close()


@contextmanager
def waiting(site: Site, script: str = ASKS, prompt: str = "Clean up") -> Iterator[str]:
    """A run with a pending call; its id."""
    with going(site, script, POLICY, prompt=prompt) as process, web_server.waits(process) as event:
        yield str(event["run_id"])


def ends(site: Site, run_id: str) -> list[dict[str, Any]]:
    """The events of a run once it has ended."""
    site.until(f"/api/runs/{run_id}", lambda run: run["status"] not in ("created", "running"))
    return list(site.get(f"/api/runs/{run_id}/events")["events"])
