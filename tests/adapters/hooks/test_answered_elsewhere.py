"""A call that the interactive Claude Code asks about, answered at the terminal or on the page, whoever is first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import web_server
from hook_processes import end_daemons
from terminal import Terminal

from proctor.adapters.hooks.record import store_id
from proctor.adapters.hooks.settings import hooks, installed, settings_path
from proctor.policies import RunContext

pytestmark = pytest.mark.claude
ASKS = """
name: team
on_violation: deny
tool_rules:
  - {tell_model: Pushes are for people., deny: [{tool: bash, where: [{path: $.command, runs: git push}]}]}
  - action: request_approval
    tell_model: A deploy needs a yes.
    allow: [{tool: bash, where: [{path: $.command, runs: [cd, ls, git status, mkdir]}]}]
"""


class AtTheTerminal:
    """The client at a terminal, in a folder whose hooks hold it to a policy, and a page on their store."""

    def __init__(self, claude: Any, folder: Path, *, http: bool) -> None:
        self.api, self.cwd = claude.api, claude.cwd
        self.store = folder / "runs.db"
        policy = folder / "policy.yaml"
        policy.write_text(ASKS)
        home = claude.env["HOME"]
        wanted = hooks([policy], self.store, store_id(self.store), RunContext(), home, unmatched="ask", http=http)
        installed(settings_path(user=False, folder=claude.cwd), wanted)
        command, env = claude.at_a_terminal()
        self.terminal = Terminal(command, env, claude.cwd, columns=120, rows=40)

    def prompts(self, *commands: str) -> None:
        """The person prompts, and the model runs these, each in a response of its own."""
        self.terminal.until("manual mode on")
        self.api.say(*(self.api.reply(self.api.bash(command)) for command in commands))
        self.api.say(self.api.reply(self.api.text("all done")))
        self.terminal.press("go")
        self.terminal.until("go\n")
        self.terminal.press("\r")


@pytest.fixture(params=[False, True], ids=["programs", "http"])
def at(claude: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[AtTheTerminal]:
    """The client at a terminal."""
    at = AtTheTerminal(claude, tmp_path, http=request.param)
    yield at
    at.terminal.close()
    end_daemons(at.store)


@pytest.fixture
def site(at: AtTheTerminal, tmp_path: Path) -> Iterator[Any]:
    """The page on the same store."""
    with web_server.site(tmp_path) as site:
        yield site


def waiting(site: Any) -> dict[str, Any]:
    """The approval that waits, once the page has one."""
    approvals = site.until("/api/approvals", lambda found: found["approvals"])["approvals"]
    found: dict[str, Any] = approvals[0]
    return found


def answered(site: Any, approval: dict[str, Any], answer: str) -> Any:
    """Answer it as the page does."""
    body = {"answer": answer, "input_digest": approval["input_digest"]}
    return site.ask("POST", f"/api/approvals/{approval['approval_id']}/answer", body=body)


def state(site: Any, approval: dict[str, Any]) -> dict[str, Any]:
    """The approval, once it is answered."""
    found: dict[str, Any] = site.until(
        f"/api/approvals/{approval['approval_id']}", lambda found: found["state"] != "requested"
    )
    return found


@pytest.mark.parametrize("answer", ["grant", "deny"])
def test_the_page_answers_and_the_terminals_question_goes(at: AtTheTerminal, site: Any, answer: str) -> None:
    """The person at the terminal need not: the call runs, or is refused with the reason."""
    at.prompts("touch deployed")
    at.terminal.until("Do you want to proceed?")
    approval = waiting(site)
    response = answered(site, approval, answer)
    at.terminal.until("Do you want to proceed?", gone=True)
    at.terminal.until("all done")

    assert not approval["asks_itself"]
    assert response.status == 200
    assert state(site, approval)["answered_by"] == "ana"
    assert (at.cwd / "deployed").exists() is (answer == "grant")


@pytest.mark.parametrize("at", [True], ids=["http"], indirect=True)
@pytest.mark.skipif(not Path(web_server.CHROMIUM).exists(), reason="apt-get install chromium")
def test_a_deploy_is_approved_on_a_phone(at: AtTheTerminal, site: Any) -> None:
    """At the width of a phone, in Chromium; the terminal goes on by itself."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install '.[dev]'")
    at.prompts("touch deployed")
    at.terminal.until("Do you want to proceed?")
    link = f"{site.url}/#/approvals/{waiting(site)['approval_id']}"
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=web_server.CHROMIUM, args=web_server.QUIET)
        phone = chromium.new_context(viewport={"width": 390, "height": 760}, has_touch=True, is_mobile=True)
        page = phone.new_page()
        page.goto(link)
        page.get_by_label("Token").fill(web_server.ANA)
        page.get_by_role("button", name="Go on").tap()
        card = page.get_by_role("article")
        sync_api.expect(card).to_contain_text("touch deployed", timeout=20_000)
        page.get_by_role("button", name="Approve", exact=True).tap()
        sync_api.expect(page.get_by_text("is granted by ana")).to_be_visible(timeout=20_000)
        chromium.close()
    at.terminal.until("all done")

    assert (at.cwd / "deployed").exists()


@pytest.mark.parametrize("key", ["1", "2"])
def test_the_terminal_answers_and_the_page_sees_it(at: AtTheTerminal, site: Any, key: str) -> None:
    """Who comes later is told who was first. A yes is seen once the call has ended."""
    at.prompts("touch deployed")
    at.terminal.until("Do you want to proceed?")
    approval = waiting(site)
    at.terminal.press(key)
    found = state(site, approval)
    late = answered(site, approval, "deny")

    assert (found["state"], found["answered_by"]) == ("granted" if key == "1" else "denied", "claude-code")
    assert late.status == 409


def test_allowed_lines_ask_nobody_and_a_push_is_refused_with_its_reason(at: AtTheTerminal) -> None:
    """What a person has of it: no question, and the model knows why."""
    at.prompts("mkdir a && cd a && ls", "git push origin main")
    at.terminal.until("all done")

    assert (at.cwd / "a").is_dir()
    assert "Pushes are for people." in json.dumps(at.api.requests[-1])
