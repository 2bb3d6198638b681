"""Facts about the program on the pages are current."""

import json
import re
from inspect import signature
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from page_blocks import ROOT, blocks, name_of
from page_facts import pages, written
from page_facts.errors import MEANINGS
from page_facts.followed import shortest

from proctor.adapters.agents.catalog import ADAPTERS
from proctor.adapters.agents.claude.translation import ANSWER_S
from proctor.adapters.evaluate import proofs
from proctor.adapters.fleet import Fleet, RunSpec, Worker, WorkerStatus, worker
from proctor.adapters.hooks.clients import CLIENTS, copilot
from proctor.adapters.hooks.clients.claude import LOWEST
from proctor.adapters.hooks.daemon import DECIDE_S, IDLE_S
from proctor.adapters.hooks.messages import MOST_HELD_S
from proctor.adapters.kit.subprocesses import OUTPUT_LIMIT
from proctor.adapters.mcp_proxy.relay import HANDSHAKE_S
from proctor.adapters.operations import views
from proctor.adapters.stores import PostgresStore
from proctor.adapters.stores.postgres import store as postgres
from proctor.adapters.stores.sqlite import store as sqlite
from proctor.adapters.suggest.entries import CHANCE
from proctor.adapters.telemetry import attributes, observer
from proctor.adapters.web import auth, notify, server, webhook
from proctor.adapters.web.api_control import StopCommand
from proctor.policies import Approval, Picture, decode_event
from proctor.policies.events import EVENT_TYPES
from proctor.policies.events.calls import MOST_PARTS
from proctor.policies.language.facts import BOUND
from proctor.policies.monitor.call_table import FINISHED_KEPT
from proctor.policies.reading import tree
from proctor.policies.rules.count import BEHIND
from proctor.policies.rules.memory import USER_TEXT_BOUND
from proctor.policies.rules.prior_calls import PER_KEY
from proctor.policies.stack.merge import MAX_RULES
from proctor.policies.values import json_values, regexes
from proctor.supervisor import Supervisor
from proctor.supervisor.arguments import BOUNDS, RecordOptions
from proctor.supervisor.errors import ApprovalError, ApprovalErrorKind, StoreErrorKind
from proctor.supervisor.launch.history import TRANSCRIPT_BYTES
from proctor.supervisor.machine import run_state
from proctor.supervisor.run import journal
from proctor.supervisor.run.callbacks import CHECK_TIMEOUT_S
from proctor.supervisor.run.recovery import LEASE_S
from proctor.supervisor.watch.watchdog import BLOCKED_S

DOCS = ROOT / "docs"
AGENTS = {"function": "loop", "replay": "scripted"}
"""Pages whose names differ from those of their adapters."""

KIB = 1024
MIB = 1024 * KIB
SPELT: dict[float, str] = {1: "a second", 3: "three seconds", 10: "ten seconds", 60: "a minute", 120: "two minutes"}
SPELT |= {24 * 3600: "a day"}
RECEIVER = webhook.Target(url="", key=b"")
IN_SENTENCES = [
    ("agents/claude.md", f"hasn't reported within {ANSWER_S:g} seconds"),
    ("agents/interactive.md", f"versions before {copilot._LOWEST} run calls whose hook fails"),
    ("agents/interactive.md", f"(default 0, at most {MOST_HELD_S}; `init --hook` sets {MOST_HELD_S})"),
    ("agents/mcp.md", f"doesn't answer `initialize` within {HANDSHAKE_S:g} seconds"),
    ("agents/scripted.md", f"proctor keeps {OUTPUT_LIMIT // KIB} KiB of each output"),
    ("agents/shell.md", f"proctor keeps {OUTPUT_LIMIT // KIB} KiB of each output"),
    (
        "concepts/approvals.md",
        f"timeout_s: {Approval().timeout_s}             # seconds (default {Approval().timeout_s})",
    ),
    ("how-to/apps.md", f"(default {signature(Supervisor).parameters['max_running'].default})"),
    ("how-to/learn-a-policy.md", f"would disturb more than {CHANCE * 100:g} % of future sessions"),
    ("how-to/phone.md", f"takes over {SPELT[notify.SEND_S]}, proctor tries again"),
    ("how-to/prove.md", f"share {proofs.LONGEST_S} seconds"),
    ("operate/dashboard.md", f"- More than {auth.AT_MOST} wrong tokens a minute"),
    ("operate/dashboard.md", f"after {server.REQUEST_S} seconds, bodies over {auth.MAX_BODY // KIB} KiB"),
    ("operate/dashboard.md", f"- More than {server.MAX_CONNECTIONS:,} connections"),
    ("operate/event-log.md", f"| one event | about {run_state.MOST_BYTES // MIB} MiB;"),
    ("operate/event-log.md", f"| {BOUNDS.max_messages:,} and about {BOUNDS.max_message_bytes // MIB} MiB each for"),
    ("operate/event-log.md", f"| {BOUNDS.max_events:,} and about {BOUNDS.max_event_bytes // MIB} MiB (`max_events`"),
    ("operate/event-log.md", f"| the latest {journal.MOST:,} or {journal.MOST_BYTES // MIB} MiB; `events_before`"),
    ("operate/event-log.md", f"| {journal.CAPACITY:,} or {journal.CAPACITY_BYTES // MIB} MiB; then proctor reads"),
    ("operate/event-log.md", f"| a replayed conversation | the latest {TRANSCRIPT_BYTES // MIB} MiB |"),
    ("operate/fleet.md", f"(default {signature(Worker).parameters['max_running'].default})"),
    ("operate/fleet.md", f"`max_waiting` runs (default {signature(Fleet).parameters['max_waiting'].default:,})"),
    ("operate/fleet.md", f"After {worker.ATTEMPTS} attempts, the run fails"),
    ("operate/fleet.md", f"is continued (default {RunSpec(adapter='', prompt='').take_overs}; 0: never)"),
    ("operate/hooks.md", f"Hooks need Claude Code {LOWEST} or newer"),
    ("operate/hooks.md", f"on Linux, `{CLIENTS['claude'].settings.managed}`"),
    ("operate/hooks.md", f"doesn't decide within {DECIDE_S:g} seconds"),
    ("operate/hooks.md", f"It ends after {IDLE_S / 60:g} minutes"),
    ("operate/postgresql.md", f"(default {signature(PostgresStore).parameters['patience_s'].default:g})"),
    (
        "operate/postgresql.md",
        f"at the latest within {SPELT[postgres._POLL_S]} (SQLite: within {sqlite._POLL_S * 1000:g} ms)",
    ),
    ("operate/postgresql.md", f"answer a query within {SPELT[postgres._FOUND_S]}"),
    ("operate/runs.md", f"others after {LEASE_S:g} seconds without a heartbeat"),
    ("operate/telemetry.md", f"cut at {attributes.CONTENT_CHARS:,} characters"),
    ("operate/telemetry.md", f"the command ends {SPELT[observer.END_S]} later"),
    ("operate/telemetry.md", f"blocked the event loop for {SPELT[BLOCKED_S]}"),
    ("policies/index.md", f"| {regexes.WORK:,} bytes examined"),
    ("policies/index.md", f"matches longer than {regexes.VIEW:,} bytes"),
    ("policies/index.md", f"| {tree.MAX_TEXT:,} characters, {tree.MAX_VALUES:,} values, {tree.MAX_DEPTH} levels;"),
    ("policies/index.md", f"stand for {tree.MAX_BORROWED:,} values; regular expressions of {regexes.MOST_STEPS:,}"),
    ("policies/index.md", f"| {MAX_RULES:,} rules, nets and budgets |"),
    ("policies/index.md", f"| {BOUND:,} keys, ids or values; {PER_KEY} earlier calls"),
    ("policies/index.md", f"{USER_TEXT_BOUND:,} characters of user messages |"),
    ("policies/index.md", f"{BEHIND} turns before the window |"),
    ("policies/index.md", f"| {MOST_PARTS:,} parts |"),
    ("policies/index.md", f"| {json_values.DEPTH} levels;"),
    ("policies/index.md", f"| {FINISHED_KEPT:,}; an older id"),
    ("policies/rules.md", f"check takes more than {CHECK_TIMEOUT_S:g} seconds"),
    ("reference/http.md", f"seconds to wait for the ends (default {StopCommand().wait_s})"),
    ("reference/http.md", f"for {SPELT[RECEIVER.oldest_s]}, with pauses of at most {SPELT[RECEIVER.longest_wait_s]}"),
    ("reference/http.md", f"`PROCTOR_WEBHOOK_SECRET`, at least {webhook.SHORTEST} characters"),
    ("reference/http.md", f"after {RECEIVER.refusals} redirects"),
    ("tutorials/claude-code.md", f"Claude Code {LOWEST} or newer"),
]
"""Figures in a sentence of a page, with their values in the code."""


@pytest.mark.parametrize(("page", "sentence"), IN_SENTENCES)
def test_a_figure_in_a_sentence_is_that_of_the_code(page: str, sentence: str) -> None:
    """If the value changes, so does the page."""
    assert sentence in (DOCS / page).read_text(encoding="utf-8")


def test_the_documented_defaults_of_options_are_those_of_the_record() -> None:
    """The docstring of the options, where callers read them."""
    described = " ".join((RecordOptions.__doc__ or "").split())
    figures = re.findall(r"`?(max_\w+): .*?[Bb]y default ([\d,]+)( MiB)?\.", described)

    assert {name: int(figure.replace(",", "")) * (MIB if unit else 1) for name, figure, unit in figures} == {
        name: getattr(BOUNDS, name) for name in BOUNDS.__struct_fields__
    }


def test_every_kind_of_an_error_is_explained() -> None:
    """And no other: a store's on the page of errors, an approval's at its class."""
    of_approvals = re.findall(r"`(\w+)`\s(?:\(|or\s)", ApprovalError.__doc__ or "")

    assert set(MEANINGS) == set(get_args(StoreErrorKind))
    assert sorted(of_approvals) == sorted(get_args(ApprovalErrorKind))


CODES = re.compile(r"""ErrorOccurred\(\s*code=(?:"(\w+)"|([A-Z_]+\b))""")


def test_every_code_of_an_error_in_the_event_log_is_explained() -> None:
    """Those that this package gives its errors, as literals or by the constants of a module."""
    sources = [
        path.read_text()
        for folder in ("supervisor", "adapters", "policies")
        for path in (ROOT / folder).rglob("*.py")
    ]
    text = "\n".join(sources)
    given = {literal or re.findall(rf'^{name}.* = "(\w+)"', text, re.M)[0] for literal, name in CODES.findall(text)}
    page = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8").partition("## Codes in the event log")[2]

    assert len(given) > 6
    assert sorted(given - set(re.findall(r"`(\w+)`", page))) == []


def test_every_request_of_the_http_api_is_on_its_page() -> None:
    """And no other."""
    page = (DOCS / "reference" / "http.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(GET|POST) (\S+)`((?:, `\S+`)*) \|", page, re.M)
    listed = [(method, path) for method, first, more in rows for path in (first, *re.findall(r"`(\S+)`", more))]

    assert sorted(listed) == sorted((each.method, re.sub(r"{\w+}", "ID", each.path)) for each in server.OPERATIONS)


PRINTED: dict[str, type[msgspec.Struct]] = {
    "approve": views.Answered,
    "budgets": views.BudgetView,
    "fleet": WorkerStatus,
    "graph": Picture,
    "kill": views.OutcomeView,
    "watch": views.Board,
}
"""The record that a command prints with `--json`."""


@pytest.mark.parametrize("command", PRINTED)
def test_the_fields_that_a_command_prints_are_on_the_page(command: str) -> None:
    """And no other, but for `lifted` of `kill --lift` and the `limits` within the runs of `watch`."""
    page = (DOCS / "reference" / "json.md").read_text(encoding="utf-8").partition("## The others")[2]
    (line,) = re.findall(rf"^- `{command}`[^:]*: (.+)$", page, re.M)
    named = re.findall(r"`([a-z_]+)`", line)

    assert {*named} - {"lifted", "limits"} == {*PRINTED[command].__struct_fields__}


INTERNAL = {"PROCTOR_CALL", "PROCTOR_HOOK", "PROCTOR_RUN"}
"""Variables that proctor sets for the processes that it starts."""


def test_every_variable_that_is_read_is_on_the_page_of_settings() -> None:
    """And no other."""
    sources = (path.read_text() for folder in ("supervisor", "adapters") for path in (ROOT / folder).rglob("*.py"))
    read = {name for source in sources for name in re.findall(r"""["'](PROCTOR_[A-Z_]+)["']""", source)}
    page = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^- `(PROCTOR_\w+)`", page, re.M)) == read - INTERNAL


@pytest.mark.parametrize("page", list(pages()), ids=name_of)
def test_the_facts_of_a_page_are_current(page: Path) -> None:
    """If not: python -m docs.page_facts."""
    assert page.read_text(encoding="utf-8") == written(page)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_adapter_has_a_page_with_its_facts(adapter: str) -> None:
    """Its options; the matrix has its capabilities."""
    page = (DOCS / "agents" / f"{AGENTS.get(adapter, adapter)}.md").read_text()

    assert f"<!-- facts: options {adapter} -->" in page


def test_every_event_has_a_section_with_an_example() -> None:
    """Of several types with the same fields, one has an example; each example is decoded as its type."""
    page = DOCS / "reference" / "events.md"
    sections = [re.findall(r"`(\w+)`", line) for line in page.read_text().splitlines() if line.startswith("## `")]
    examples = [block.text for block in blocks(page) if block.kind == "json"]

    assert [tag for section in sections for tag in section] == list(EVENT_TYPES)
    for text, section in zip(examples, sections, strict=True):
        assert decode_event(text).type == json.loads(text)["type"]
        assert decode_event(text).type in section


def test_every_field_of_an_event_is_explained() -> None:
    """With a meaning that is not empty."""
    rows = [line for line in (DOCS / "reference" / "events.md").read_text().splitlines() if line.startswith("- `")]

    assert [row for row in rows if not row.endswith((".", "`"))] == []


def test_a_call_and_an_event_can_be_followed() -> None:
    """Through at most 20 files and 60 calls between files, and at most 12 files for an event."""
    call, event = shortest().values()

    assert len(call.files) <= 20
    assert call.hops <= 60
    assert len(event.files) <= 12
