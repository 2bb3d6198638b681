"""The interactive Claude Code and Codex at a terminal: who is asked, where it is answered, and what ends the work."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import codex_bench
import pytest
import web_server
from hook_processes import end_daemons
from terminal import Terminal
from web_server import PROCTOR

from proctor.adapters.hooks.clients import codex_trust
from proctor.adapters.hooks.record import store_id
from proctor.adapters.hooks.settings import hooks, installed, settings_path
from proctor.policies import RunContext

ASKS = """
name: team
on_violation: deny
tool_rules:
  - {tell_model: Pushes are for people., deny: [{tool: bash, where: [{path: $.command, runs: git push}]}]}
  - action: request_approval
    tell_model: A deploy needs a yes.
    allow: [{tool: bash, where: [{path: $.command, runs: [cd, ls, git status, mkdir]}]}]
"""
WINDOW = (
    "\nbudgets: [{name: five-hours, max_tool_calls: 3, window: 5h, action: deny, tell_model: The window is used.}]\n"
)


class Claude:
    """Claude Code at a terminal, in a folder that its person trusts."""

    name, asks, ready = "claude", True, "manual mode on"

    def __init__(self, claude: Any) -> None:
        self.api, self.cwd = claude.api, claude.cwd
        self.home = Path(claude.env["HOME"])
        self.command, self.env = claude.at_a_terminal()
        self.settings = (self.cwd / ".claude" / "settings.local.json",)

    def says(self, *commands: str) -> None:
        """The model runs these, each in a response of its own."""
        self.api.say(*(self.api.reply(self.api.bash(command)) for command in commands))
        self.api.say(self.api.reply(self.api.text("all done")))

    def close(self) -> None:
        """Nothing of it is left."""


class Codex:
    """Codex at a terminal, in a folder that its person trusts, and with questions of its own about some commands."""

    name, asks, ready = "codex", False, "Ask Codex to do anything"

    def __init__(self, root: Path) -> None:
        self.api, self.cwd, self.home = codex_bench.ResponsesAPI(), root / "work", root / "home"
        folder = self.home / ".codex"
        (folder / "rules").mkdir(parents=True)
        self.cwd.mkdir()
        (folder / "rules" / "mine.rules").write_text(
            "".join(f'prefix_rule(pattern=["{word}"], decision="prompt")\n' for word in ("mkdir", "touch"))
        )
        (folder / "config.toml").write_text(
            f'model = "gpt-5.5"\nmodel_provider = "fake"\nsandbox_mode = "danger-full-access"\n'
            f'[model_providers.fake]\nname = "fake"\nbase_url = "{self.api.url}"\nwire_api = "responses"\n'
            f'[notice.model_migrations]\n"gpt-5.5" = "gpt-6-sol"\n[projects."{self.cwd}"]\ntrust_level = "trusted"\n'
        )
        program = codex_trust.program()
        assert program is not None
        quiet = ("-c", "features.enable_request_compression=false", "-c", "analytics.enabled=false")
        self.command = [program, *quiet, "--disable", "plugins"]
        places = {"HOME": str(self.home), "CODEX_HOME": str(folder)}
        self.env = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", **places}
        self.settings = (self.cwd / ".codex" / "hooks.json", folder / "config.toml")

    def says(self, *commands: str) -> None:
        """The model runs these, each in a response of its own."""
        for number, command in enumerate(commands):
            self.api.reply(self.api.shell(f"c{number}", command))
        self.api.reply(self.api.text("all done"))

    def close(self) -> None:
        """Its model is gone."""
        self.api.close()


class AtTheTerminal:
    """One of them, held to a policy by hooks, and a page on their store."""

    def __init__(self, client: Any, store: Path) -> None:
        self.client, self.store = client, store
        self.api, self.cwd = client.api, client.cwd
        self.terminal = Terminal(client.command, client.env, client.cwd, columns=120, rows=40)

    def prompts(self, *commands: str) -> None:
        """The person prompts, and the model runs these, each in a response of its own."""
        self.terminal.until(self.client.ready)
        self.client.says(*commands)
        self.terminal.press("go")
        self.terminal.until("go\n")
        self.terminal.press("\r")


PLACES = ["programs", "http"]
"""How the client reaches its hooks."""


@pytest.fixture(params=[False, True], ids=PLACES)
def at(claude: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[AtTheTerminal]:
    """Claude Code."""
    policy, store = tmp_path / "policy.yaml", tmp_path / "runs.db"
    policy.write_text(ASKS)
    given = {"home": claude.env["HOME"], "unmatched": "ask", "http": request.param}
    wanted = hooks([policy], store, store_id(store), RunContext(), **given)
    installed(settings_path(user=False, folder=claude.cwd), wanted)
    at = AtTheTerminal(Claude(claude), store)
    yield at
    at.terminal.close()
    end_daemons(store)


@pytest.fixture(params=[pytest.param("claude", marks=pytest.mark.claude), "codex"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Each client, not started yet."""
    if request.param == "codex" and codex_trust.program() is None:
        pytest.skip("needs Codex: pip install '.[codex]'")
    claude = request.getfixturevalue("claude") if request.param == "claude" else None
    made = Codex(tmp_path) if claude is None else Claude(claude)
    yield made
    made.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Any]:
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


@pytest.mark.claude
@pytest.mark.parametrize(("at", "answer"), [(False, "grant"), (True, "deny")], ids=PLACES, indirect=["at"])
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


@pytest.mark.skipif(not Path(web_server.CHROMIUM).exists(), reason="apt-get install chromium")
def test_a_day_under_a_pack(client: Any, site: Any) -> None:
    """One command puts it in force. What it lists asks nobody, a push is refused with the reason, a deploy is
    answered on a phone, a window that is used ends the work, and in the end the settings are as they were.
    """
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install '.[dev]'")
    for path in client.settings:
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            path.write_text('{ "model" : "sonnet" }' if client.asks else "{\n\n}")
    before = {path: path.read_bytes() for path in client.settings}
    env = {**client.env, "PROCTOR_STORE": str(site.store)}

    def proctor(*words: str) -> None:
        subprocess.run([*PROCTOR, *words], cwd=client.cwd, env=env, check=True, capture_output=True)

    proctor("init", "--pack", "coding-agent", "--agent", client.name, "--hook")
    with (client.cwd / "coding-agent.yaml").open("a") as file:
        file.write(WINDOW)
    at = AtTheTerminal(client, site.store)
    at.prompts("mkdir a && cd . && ls a", "git push origin main", "touch deployed", "echo more", "mkdir never")
    link = f"{site.url}/#/approvals/{waiting(site)['approval_id']}"
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=web_server.CHROMIUM, args=web_server.QUIET)
        phone = chromium.new_context(viewport={"width": 390, "height": 760}, has_touch=True, is_mobile=True)
        page = phone.new_page()
        page.goto(link)
        page.get_by_label("Token").fill(web_server.ANA)
        page.get_by_role("button", name="Sign in").tap()
        sync_api.expect(page.get_by_role("article")).to_contain_text("touch deployed", timeout=20_000)
        page.get_by_role("button", name="Approve", exact=True).tap()
        sync_api.expect(page.get_by_text("is granted by ana")).to_be_visible(timeout=20_000)
        chromium.close()
    at.terminal.until("all done")
    at.terminal.close()
    end_daemons(site.store)
    proctor("hook", "uninstall", "--agent", client.name)
    results = json.dumps(at.api.requests[-1])
    approvals = sqlite3.connect(site.store).execute("SELECT 1 FROM events WHERE type = 'tool_approval_requested'")

    assert (client.cwd / "a").is_dir()
    assert "a person pushes" in results
    assert (client.cwd / "deployed").exists()
    assert "The window is used." in results
    assert not (client.cwd / "never").exists()
    assert len(approvals.fetchall()) == 1
    after = {path: path.read_bytes() for path in client.settings}
    if client.name == "codex":  # it has added tables of its own, about its screen
        after[path], _, _ = after[path].partition(b"\n[tui]")
    assert after == before


@pytest.mark.claude
@pytest.mark.parametrize(("at", "key"), [(False, "2"), (True, "1")], ids=PLACES, indirect=["at"])
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
