"""The commands' `--json` equals the HTTP API's responses, and a terminal shows the dashboard's timeline."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest
import web_server
from supervised import around
from web_server import Site

from proctor.adapters.cli.board_view import budget_lines
from proctor.adapters.operations.service import OperatorService
from proctor.policies.limits import BUDGETS, LIMITS
from proctor.supervisor.ports.budget_ledger import BudgetInfo
from proctor.supervisor.ports.stored_types import APPROVAL_WORDS, ApprovalState, RunStatus

PAGE = Path(__file__).parents[3] / "adapters" / "web" / "page"
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


def test_read_commands_equal_the_api(cli: Any, site: Site) -> None:
    """Runs, events, decisions, approvals, budgets, the dashboard: every value."""
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


def test_the_results_of_actions_equal_the_api(cli: Any, site: Site) -> None:
    """An answer, a kill, a lifted freeze."""
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
    b = {"value": "b", "effect": "no run of tenant `b` starts"}
    assert {**lifted["lifted"], "at": 0, **b} == {**released["lifted"][0], "at": 0}


def alike(outcome: dict[str, Any]) -> dict[str, Any]:
    """An outcome without its ids."""
    return {name: value for name, value in outcome.items() if name not in ("run_id", "session_id")}


def test_the_dashboard_has_no_texts_of_its_own_for_statuses_limits_budgets_and_answers() -> None:
    """The names and units come from the server; what is drawn in the colour of a status has its name in the style."""
    texts = {path.name: path.read_text() for path in PAGE.glob("*.js")}
    states = {state for state in get_args(ApprovalState) if APPROVAL_WORDS[state] != state} - {"requested"}
    counts = {kind.counts for kind in (*LIMITS.values(), *BUDGETS.values())} - {"running"}
    statuses = {f'"{status}"' for status in get_args(RunStatus)} - {'"lost"', '"running"'}
    words = {*LIMITS, *BUDGETS, *(f"\\b{each}:" for each in counts), *(f"\\b{each}:" for each in states), *statuses}
    own = {(name, word) for name, text in texts.items() for word in words if re.search(word, text)}

    assert own == set()


def test_running_runs_count_as_used_in_every_view() -> None:
    """Of `max_running`. They reserve nothing else, and a large amount is written in full."""
    places = BudgetInfo(budget="p/places", counts="running", max=3, reserved=1, runs=1)
    tokens = BudgetInfo(budget="p/t", counts="total_tokens", max=20_000_000, used=1, reserved=2, runs=1)
    store = around(budgets=lambda _: answered((places, tokens)))
    shown = anyio.run(OperatorService(store).budgets).budgets

    assert [(each.unit, each.in_use, each.ahead) for each in shown] == [("runs at once", 1, 0), ("tokens", 1, 2)]
    assert [budget_lines(each).plain.split("] ")[1] for each in shown] == [
        "1 of 3 runs at once used, 2 left",
        "1 of 20,000,000 tokens used, 2 reserved by 1 run, 19,999,997 left",
    ]


async def answered(value: Any) -> Any:
    return value


def test_a_terminal_shows_the_items_of_the_dashboard(cli: Any, site: Site) -> None:
    """With labels and texts, in the same order. A call's request opens its card and has no line."""
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
