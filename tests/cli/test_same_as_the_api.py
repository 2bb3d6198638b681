"""The `--json` of the commands is what the HTTP API answers, and a terminal shows the page's timeline."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import web_server
from web_server import Site

POLICY = """\
name: team
limits: {max_tool_calls: 10}
budgets: [{name: calls, max_tool_calls: 100, per: $.tenant, window: day}]
approval: {timeout_s: 3000}
tool_rules: [{deny: [delete], action: deny, tell_model: Nothing is deleted here.}]
nets: [require human-approval before deploy]
"""
SCRIPT = """\
name: agent
tools: [bash, delete, deploy]
steps:
  - say: I begin.
  - usage: {input_tokens: 100, output_tokens: 10, cost_usd: 0.01}
  - {call: bash, input: {command: echo hello}}
  - {call: delete, input: {path: old}, if_denied: [{say: Then not.}]}
  - {call: deploy, input: {to: production}}
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with web_server.site(tmp_path) as found:
        yield found


@contextmanager
def waiting(site: Site, tenant: str = "acme") -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    with (
        web_server.going(site, SCRIPT, POLICY, "--context", f"tenant={tenant}") as run,
        web_server.waits(run) as event,
    ):
        yield run, event


def test_what_is_read_is_the_same(cli: Any, site: Site) -> None:
    """Runs, events, decisions, approvals, budgets, the board: value for value."""
    web_server.ran(site, "steps: [{say: Done.}]\n", POLICY, "--context", "tenant=umbrella")
    with waiting(site) as (_, event):
        run = event["run_id"]
        store = ("--store", site.store, "--json")
        pairs = [
            (cli("runs", *store).lines, site.get("/api/runs")["runs"]),
            (cli("runs", "--status", "waiting", *store).lines, site.get("/api/runs?status=waiting")["runs"]),
            (cli("show", run, *store).lines, site.get(f"/api/runs/{run}/events")["events"]),
            (cli("explain", run, *store).lines, site.get(f"/api/runs/{run}/decisions")["decisions"]),
            (cli("approvals", *store).lines, site.get("/api/approvals")["approvals"]),
            (cli("budgets", *store).lines, site.get("/api/budgets")["budgets"]),
            (cli("watch", *store).lines, [site.get("/api/board")]),
        ]

    for printed, answered in pairs:
        assert printed
        assert printed == answered


def test_what_is_done_is_told_the_same(cli: Any, site: Site) -> None:
    """An answer, an end of runs, a block that is lifted."""
    store = ("--store", site.store, "--json")
    with waiting(site) as (_, first), waiting(site) as (_, second):
        [by_command] = cli("approve", first["approval_id"], "--by", "ana", *store).lines
        body = {"answer": "grant", "input_digest": second["input_digest"]}
        by_api = site.ask("POST", f"/api/approvals/{second['approval_id']}/answer", body=body).data
    with waiting(site, "a") as (one, _):
        killed = cli("kill", "--tenant", "a", "--no-new-starts", "--by", "ana", "--reason", "x", *store).lines
        assert one.wait() is not None
    [lifted] = cli("kill", "--lift", "--by", "ana", *store).lines
    with waiting(site, "b") as (other, _):
        stopped = site.ask("POST", "/api/switch", body={"tenant": "b", "reason": "x"}).data
        assert other.wait() is not None
    released = site.ask("POST", "/api/switch/lift", body={"everything": True}).data

    assert {**by_command, "approval_id": 0} == {**by_api, "approval_id": 0}
    assert [alike(one) for one in killed] == [alike(one) for one in stopped["outcomes"]]
    assert {**lifted["lifted"], "at": 0, "value": "b"} == {**released["lifted"][0], "at": 0}


def alike(outcome: dict[str, Any]) -> dict[str, Any]:
    """An outcome without its ids."""
    return {name: value for name, value in outcome.items() if name not in ("run_id", "session_id")}


def test_a_terminal_shows_the_items_of_the_page(cli: Any, site: Site) -> None:
    """Each with its label and its text, in the same order; a request of a call opens its card and has no line."""
    with waiting(site) as (_, event):
        lines = iter(cli("show", event["run_id"], "--store", site.store).out.splitlines())
        items = site.get(f"/api/runs/{event['run_id']}/timeline")["items"]
        with site.stream(f"/api/runs/{event['run_id']}/timeline/stream") as streamed:
            sent = [next(streamed) for _ in items]

    assert [data for _, _, data in sent] == items
    assert {item["kind"] for item in items} >= {
        *("run", "message", "request", "call", "result", "violation", "approval")
    }
    for item in items:
        if item["kind"] != "request":
            line = next(lines)
            assert item["label"] in line
            assert " ".join(item["text"].split()) in " ".join(line.split())
