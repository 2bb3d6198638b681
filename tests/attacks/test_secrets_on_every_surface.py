"""Secrets in ended, pending and created runs: no page, stream, message, span or log line shows one."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
import web_server

pytest.importorskip("opentelemetry.sdk", reason="pip install '.[otel]'")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from proctor.adapters.cli import main
from proctor.adapters.stores import SQLiteStore
from proctor.adapters.telemetry import OpenTelemetry
from proctor.adapters.web.webhook import enveloped, message_id
from proctor.policies import RunContext, parse_policies
from proctor.policies.events import EVENT_TYPES, TERMINAL, Event, encode_event
from proctor.supervisor import KillSwitch, Publisher, Supervisor, cancel_for_approval, create_run, run_once
from proctor.supervisor.testing.fakes import PATIENCE_S, Ask, FakeAdapter, Pause, Step
from tests.supervisor.redaction.secrets import HEARTS, SECRETS
from tests.supervisor.redaction.test_redaction_surfaces import ALL, planted, secrets_in

PROCTOR = (sys.executable, "-m", "proctor")
PLANTED = [planted(kind) for kind in EVENT_TYPES.values() if kind not in TERMINAL]
POLICIES = parse_policies(
    json.dumps(
        {
            "name": "asking",
            "description": ALL,
            "approval": {"timeout_s": 600},
            "tool_rules": [
                {"deny": ["deploy"], "action": "request_approval", "reason": ALL},
                {"deny": ["delete"], "action": "deny", "tell_model": ALL, "reason": ALL},
            ],
            "limits": {"max_tool_calls": 1000},
        }
    )
)
ABOUT = {"tool_name": "deploy", "tool_call_id": "c", "tool_input": {"to": ALL, "command": ALL}}


class Planted:
    """A store with secrets in every text, and the telemetry of its runs."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "runs.db"
        self.spans = InMemorySpanExporter()
        self.events: list[Event] = []
        anyio.run(self._fill)

    async def _fill(self) -> None:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        telemetry = OpenTelemetry(tracer_provider=provider, content=True)
        context = RunContext(labels={"token": ALL}, user=ALL)
        given: Any = {"metadata": {"note": ALL}, "context": context}
        steps: list[Step] = [*PLANTED, Ask(name="delete", input={"path": ALL})]
        async with SQLiteStore(self.path) as store:
            adapter = FakeAdapter(steps, output={"said": ALL})
            publishers: list[Publisher] = [telemetry, lambda event: self.events.append(event)]
            await run_once(
                adapter, ALL, policies=POLICIES, store=store, publishers=publishers, run_id="ended", **given
            )
            async with Supervisor(store, publishers=publishers) as supervisor:
                handle = await supervisor.start(
                    FakeAdapter([Pause()]), ALL, policies=POLICIES, run_id="waits", session_id="s", **given
                )
                await cancel_for_approval(store, handle, handle.run_id, ABOUT)
            await create_run(store, ALL, run_id="created", **given)
            await KillSwitch(store).block_starts(by=ALL, reason=ALL, tenant="t")

    async def ask_again(self) -> None:
        """One more call needs approval."""
        async with SQLiteStore(self.path) as store, Supervisor(store) as supervisor:
            handle = await supervisor.start(FakeAdapter([Pause()]), ALL, policies=POLICIES)
            await cancel_for_approval(store, handle, handle.run_id, {**ABOUT, "tool_call_id": "asked-again"})


@pytest.fixture(scope="module")
def planted_store(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Filled once."""
    return Planted(tmp_path_factory.mktemp("planted"))


def test_spans_with_content_have_no_secret(planted_store: Planted) -> None:
    """Prompts, inputs, outputs, reasons and labels are there, redacted."""
    text = " ".join(span.to_json() for span in planted_store.spans.get_finished_spans())
    assert "[redacted:" in text
    assert secrets_in(text.replace("\\n", "\n")) == []


def test_webhook_messages_have_no_secret(planted_store: Planted) -> None:
    """Every event of the store in its envelope."""

    async def sent() -> list[bytes]:
        async with SQLiteStore(planted_store.path) as store:
            return [
                enveloped(event, message_id(event), "id")
                for run in await store.runs()
                async for event in store.read(run.session_id)
            ]

    bodies = anyio.run(sent)
    assert len(bodies) > len(PLANTED)
    assert found_in_json(*(body.decode() for body in bodies)) == []


PATHS = [
    "/api/runs",
    *(f"/api/runs/{run}{part}" for run in ("ended", "waits", "created") for part in ("", "/events")),
    *(
        f"/api/runs/{run}/{part}"
        for run in ("ended", "waits")
        for part in ("approvals", "decisions", "limits", "policies")
    ),
    *("/api/approvals", "/api/approvals?state=all", "/api/switch", "/api/sessions/s/events", "/", "/openapi.json"),
]


def test_the_web_api_and_its_streams_have_no_secret(planted_store: Planted) -> None:
    """Every readable URL, whatever its status."""
    with web_server.site(planted_store.path.parent) as site:
        answers = {path: site.ask("GET", path) for path in PATHS}
        waiting = answers["/api/approvals"].data["approvals"]
        shown = site.ask("GET", f"/api/approvals/{waiting[0]['approval_id']}")
        with site.stream("/api/runs/ended/stream") as events:
            streamed = [json.dumps(data) for _, name, data in events if name != "end"]
    assert {path: found for path, a in answers.items() if (found := found_in_json(a.body.decode()))} == {}
    assert sum(answer.status == 200 for answer in answers.values()) > 12
    assert found_in_json(shown.body.decode(), *streamed) == []
    assert len(streamed) > len(PLANTED)


COMMANDS = [
    *([name, *more] for name in ("runs", "watch", "approvals", "tail") for more in ((), ("--json",))),
    *([name, run, *more] for name in ("show", "explain") for run in ("ended", "waits", "created") for more in ((),
        ("--json",))),
    *(["tail", "-f", "--run", "ended", "-n", "999", *more] for more in ((), ("--json",))),
    ["export"],
    ["store"],
]  # fmt: skip


def test_commands_have_no_secret(planted_store: Planted, capfd: pytest.CaptureFixture[str]) -> None:
    """On either output."""
    redacted = 0
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([*command, "--store", str(planted_store.path)])
        shown = capfd.readouterr()
        assert found_in_json(shown.out, shown.err) == [], command
        redacted += "[redacted:" in shown.out

    assert redacted >= 14


@pytest.mark.parametrize("command", [("tail", "-f", "-n", "999", "--json"), ("approvals", "--watch", "--json")])
def test_live_output_has_no_secret(planted_store: Planted, command: tuple[str, ...]) -> None:
    """Until it is interrupted: earlier events and new ones."""
    process = subprocess.Popen(
        [*PROCTOR, *command, "--store", str(planted_store.path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        anyio.run(planted_store.ask_again)
        came = [first]
        for line in process.stdout:
            came.append(line)
            if "asked-again" in line:
                break
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert "[redacted:" in came[-1]
    assert found_in_json(*came, *rest) == []


def test_evaluating_an_exported_run_shows_no_secret(
    planted_store: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`eval` on the store's export, and its reports in files."""
    monkeypatch.chdir(tmp_path)
    Path("p.json").write_text(json.dumps({"name": "p", "tool_rules": [{"deny": ["delete"], "reason": ALL}]}))
    lines = [encode_event(event).decode() for event in planted_store.events if event.run_id == "ended"]
    exact = {"type": "tool_call", "id": "c", "name": "delete", "arguments": {"path": ALL}}
    Path("own.jsonl").write_text("\n".join(lines) + "\n")
    message = {"type": "message", "role": "user", "content": ALL}
    Path("other.jsonl").write_text(json.dumps({"id": "s", "events": [message, exact, exact]}) + "\n")
    for trace, format in (("own.jsonl", "events"), ("other.jsonl", "sessions")):
        for more in ((), ("--json",)):
            options = ["--policy", "p.json", "--format", format, *more, "--junit", "j.xml", "--sarif", "s.json"]
            with pytest.raises(SystemExit) as raised:
                main(["eval", *options, trace])
            shown = capfd.readouterr()
            assert raised.value.code == 1, shown.err
            assert "delete" in shown.out
            written = [Path(name).read_text() for name in ("j.xml", "s.json")]
            assert found_in_json(shown.out, shown.err, *written) == []


def test_a_search_of_runs_does_not_match_redacted_text(planted_store: Planted) -> None:
    """Otherwise a secret could be guessed letter by letter."""
    with web_server.site(planted_store.path.parent) as site:
        for words in (SECRETS["github-token"], SECRETS["github-token"][:14]):
            assert site.get(f"/api/runs?q={words}")["runs"] == []


def found_in_json(*texts: str) -> list[str]:
    """The planted secrets that appear in these texts, literally or as JSON."""
    return [
        name for name, heart in HEARTS.items() for text in texts if heart in text or json.dumps(heart)[1:-1] in text
    ]
