"""Notifications of approval requests, and links that open them."""

import os
import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import loopback
import pytest
import web_server
from calling import called
from web_server import ANA, BEN, Site

from proctor.adapters.operations.service import OperatorService
from proctor.adapters.stores import MemoryStore, SQLiteStore
from proctor.adapters.web.webhook import begin, cursor_of
from proctor.policies.events import RunCancelled, RunStarted, ToolApprovalDenied, ToolApprovalRequested
from proctor.supervisor import RunInfo, prune
from proctor.supervisor.ports.processes import enter
from proctor.supervisor.testing.fakes import PATIENCE_S

pytest.importorskip("apprise", reason="pip install '.[notify]'")

POLICY = """\
name: team
approval: {timeout_s: 3000, scope: session}
tool_rules:
  - {deny: [{tool: bash, where: [{path: $.command, runs: [git push]}]}], action: request_approval, reason: release}
"""
SCRIPT = """\
tools: [bash]
steps:
  - call: bash
    input: {command: "git push https://ana:hunter2secret@git.example/x main"}
    if_denied: [{say: Then not.}]
"""
CONTEXT = ("--context", "tenant=acme", "--context", "user=zoe")


class Receiver:
    """Receives apprise's JSON posts; answers with the given statuses, then with 200."""

    def __init__(self) -> None:
        self.got: queue.Queue[dict[str, Any]] = queue.Queue()
        self.statuses: list[int] = []
        self.server = loopback.Server(self._take)

    def _take(self, exchange: loopback.Exchange) -> None:
        status = self.statuses.pop(0) if self.statuses else 200
        exchange.give(b"", status=status)
        self.got.put({"status": status, **exchange.body})

    def next(self) -> dict[str, Any]:
        """The next request."""
        return self.got.get(timeout=PATIENCE_S)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Until the test has ended."""
    found = Receiver()
    yield found
    found.server.close()


@contextmanager
def serving(folder: Path, receiver: Receiver) -> Iterator[Site]:
    """`proctor serve`, with a configuration file that names an address twice."""
    to = [f"json://{receiver.server.url.removeprefix('http://')}/proctor"] * 2
    web_server.private(folder / "config.yaml", f"notify: {{to: {to}}}\n")
    with web_server.serving(folder, "--config", "config.yaml") as site:
        yield site


@contextmanager
def waiting(site: Site) -> Iterator[dict[str, Any]]:
    """A run whose push is pending."""
    with web_server.going(site, SCRIPT, POLICY, *CONTEXT, prompt="Ship it") as run, web_server.waits(run) as event:
        yield event


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # because of apprise's imports
@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), ValueError("no")], ids=repr)
async def test_a_plugin_that_raises_ends_nothing(raised: BaseException) -> None:
    """Its message did not arrive, and is sent again. The page continues."""
    from apprise.decorators import notify as plug_in

    from proctor.adapters.web.notify import Recipient

    @plug_in(on="raising")  # type: ignore[no-untyped-call, untyped-decorator]
    def _raising(body: str, title: str, notify_type: str, *_: Any, **__: Any) -> bool:
        raise raised

    assert await Recipient("raising://here").send("t", "b") is False


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # as with `serve`
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # because of apprise's imports
async def test_a_service_whose_answer_does_not_end_delays_no_message_for_ever() -> None:
    """Each message has its time, and few of them a thread, until the service answers again."""
    from apprise.decorators import notify as plug_in

    from proctor.adapters.web.notify import _SENDING, Recipient

    answers = threading.Event()
    begun: list[str] = []

    @plug_in(on="endless")  # type: ignore[no-untyped-call, untyped-decorator]
    def _endless(body: str, title: str, notify_type: str, *_: Any, **__: Any) -> bool:
        begun.append(title)
        return answers.wait(PATIENCE_S)

    recipient = Recipient("endless://here", send_s=0.05)
    try:
        with anyio.fail_after(PATIENCE_S / 2):
            sent = [await recipient.send(f"t{n}", "b") for n in range(_SENDING + 2)]
    finally:
        answers.set()

    assert not any(sent)
    assert len(begun) <= _SENDING
    while not await recipient.send("again", "b"):
        await anyio.lowlevel.checkpoint()


async def asking_run(folder: Path, run_id: str = "run_1", *answers: type[ToolApprovalDenied]) -> int:
    """A run whose client asks its user itself, and the outcome of the request; returns its owner's epoch."""
    ids: dict[str, Any] = {"run_id": run_id, "session_id": run_id}
    run = RunInfo(**ids, provider="claude-code", spec={"asks": "claude-code"})
    ids["at"] = datetime.now(UTC)
    request = ToolApprovalRequested(
        **ids, approval_id=f"{run_id}.1", tool_call_id="c", tool_name="Bash",
        tool_input={"command": "git push"}, input_digest="d", held=True,
    )  # fmt: skip
    closed = [answer(**ids, approval_id=f"{run_id}.1", input_digest="d", by="ana") for answer in answers]
    async with SQLiteStore(folder / "runs.db") as store:
        owner = await store.register(enter(), lease_s=PATIENCE_S)
        await store.create_run(run, epoch=owner.epoch)
        await store.append([RunStarted(**ids), request, *closed], epoch=owner.epoch)
    return owner.epoch


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # as with `serve`
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # because of apprise's imports
async def test_a_request_that_is_pruned_before_it_arrives_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if its run's id is a prefix of another."""
    from apprise.decorators import notify as plug_in

    from proctor.adapters.web import notify

    tried: queue.Queue[str] = queue.Queue()
    pruned = threading.Event()

    @plug_in(on="failing")  # type: ignore[no-untyped-call, untyped-decorator]
    def _failing(body: str, title: str, notify_type: str, *_: Any, **__: Any) -> bool:
        tried.put(body.rpartition("/")[2])
        return not pruned.wait(PATIENCE_S)

    monkeypatch.setattr(notify, "FIRST_WAIT_S", 0.01)
    place = tmp_path / "runs.db"
    async with SQLiteStore(place) as store, anyio.create_task_group() as tasks:
        with cursor_of(place, "failing://here", "notify") as cursor:
            await begin(store, cursor)
            tasks.start_soon(notify.notify, store, notify.Recipient("failing://here"), "http://p", cursor)
            epoch = await asking_run(tmp_path, "job")
            first = await anyio.to_thread.run_sync(lambda: tried.get(timeout=PATIENCE_S))
            for run_id in ("job1", "job2"):
                await store.create_run(RunInfo(run_id=run_id, session_id=run_id))
            await store.append([RunCancelled(run_id="job", session_id="job", at=datetime.now(UTC))], epoch=epoch)
            report = await prune(store, older_than=timedelta(0), now=datetime.now(UTC) + timedelta(days=1))
            await asking_run(tmp_path, "later")
            pruned.set()
            later = await anyio.to_thread.run_sync(lambda: tried.get(timeout=PATIENCE_S))
            tasks.cancel_scope.cancel()

    assert (first, report.sessions, later) == ("job.1", 1, "later.1")


def test_a_request_is_sent_once_with_everything_needed(tmp_path: Path, receiver: Receiver) -> None:
    """The command, the reason, whose run, a link; no secret. A failed delivery is retried. A restart sends nothing
    again, and a request answered meanwhile is not sent. A request of a client that asks itself says where to answer
    it, and its card has no buttons.
    """
    receiver.statuses = [500]
    with serving(tmp_path, receiver) as site, waiting(site) as event:
        first, again = receiver.next(), receiver.next()
        body = {"answer": "deny", "input_digest": event["input_digest"]}
        answered = site.ask("POST", f"/api/approvals/{event['approval_id']}/answer", body=body, token=BEN)
    anyio.run(asking_run, tmp_path, "run_0", ToolApprovalDenied)
    with serving(tmp_path, receiver) as site:
        with waiting(site) as later:
            third = receiver.next()
        anyio.run(asking_run, tmp_path)
        message = receiver.next()
        approval = site.get("/api/approvals/run_1.1")
        body = {"answer": "grant", "input_digest": approval["input_digest"]}
        rejected = site.ask("POST", "/api/approvals/run_1.1/answer", body=body)

    assert (first["status"], again["status"]) == (500, 200)
    assert first["message"] == again["message"]
    assert first["title"] == "bash waits for a person"
    lines = first["message"].splitlines()
    assert lines[0].startswith("$ git push https://")
    assert "hunter2secret" not in first["message"]
    assert any(line.startswith("Why: ") and "git" in line for line in lines)
    assert "Run: Ship it (agent scripted, tenant acme, started by zoe)" in lines
    assert lines[-1].endswith(f"/#/approvals/{event['approval_id']}")
    assert answered.data["answer"] == "denied"
    assert third["message"].splitlines()[-1].endswith(f"/#/approvals/{later['approval_id']}")
    assert "Answer it in the agent's terminal." in message["message"].splitlines()
    assert approval["asks_itself"]
    assert rejected.status == 409
    assert receiver.got.empty()


@pytest.mark.anyio
async def test_a_large_request_keeps_its_reason_its_run_and_its_link() -> None:
    """Of the call and of the prompt, the beginning is enough to know which card to open."""
    from proctor.adapters.web.notify import message

    event = ToolApprovalRequested(
        run_id="run_1", session_id="s", approval_id="run_1.1", tool_name="write", held=True, input_digest="d",
        tool_input={"path": "a.txt", "content": "line\n" * 5000}, reason="releases need a person",
    )  # fmt: skip
    store = MemoryStore()
    await store.create_run(
        RunInfo(run_id="run_1", session_id="s", provider="scripted", spec={"prompt": "long " * 99 + "\nx" * 99})
    )
    await store.append([event])
    title, body = message(await OperatorService(store).approval("run_1.1"), "https://page")
    lines = body.splitlines()

    assert title == "write waits for a person"
    assert "… 4976 more lines on the page" in lines
    assert "Why: releases need a person" in lines
    assert [line.endswith("… (agent scripted)") for line in lines if line.startswith("Run: long long")] == [True]
    assert lines[-1] == "https://page/#/approvals/run_1.1"
    assert len(lines) < 40


def test_the_link_opens_the_card_on_a_phone(tmp_path: Path, receiver: Receiver) -> None:
    """At a phone's width, with a token that stays on it: one thumb answers, and a second phone sees the author."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install '.[browser]'")
    if not Path(web_server.CHROMIUM).exists():
        pytest.skip("apt-get install chromium")
    expect = sync_api.expect
    with serving(tmp_path, receiver) as site, waiting(site) as event, sync_api.sync_playwright() as playwright:
        link = receiver.next()["message"].splitlines()[-1]
        chromium = playwright.chromium.launch(executable_path=web_server.CHROMIUM, args=web_server.QUIET)
        phone = chromium.new_context(viewport={"width": 390, "height": 760}, has_touch=True, is_mobile=True)
        phone.set_default_timeout(20_000)
        page = phone.new_page()
        page.goto(link)
        page.get_by_label("Token").fill(ANA)
        page.get_by_label("Stay signed in on this device").check()
        page.get_by_role("button", name="Sign in").tap()
        card = page.get_by_role("article")
        expect(card).to_be_focused(timeout=20_000)
        expect(card).to_contain_text("Tenantacme")
        expect(card).to_contain_text("Started byzoe")
        later = phone.new_page()
        later.goto(link)
        button = later.get_by_role("button", name="Approve", exact=True)
        expect(button).to_be_visible(timeout=20_000)
        box = button.bounding_box()
        assert box is not None
        assert box["height"] >= 48
        button.tap()
        expect(later.get_by_text("was approved by ana")).to_be_visible(timeout=20_000)
        expect(page.get_by_text("was approved by ana")).to_be_visible(timeout=20_000)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        chromium.close()
        run = site.until(f"/api/runs/{event['run_id']}", lambda run: run["status"] == "completed")
        assert run["waiting"] == 0


@pytest.mark.parametrize(("text", "mode", "why"), [
    ("notify: {to: ['nonsense://x']}\n", 0o600, "an address that apprise does not know: `nonsense://...`"),
    ("notify: {to: ['json://[::1']}\n", 0o600, "an address that apprise does not know: `json://...`"),
    ("notify: {to: []}\n", 0o600, "`notify.to` names nobody"),
    ("notify: {too: []}\n", 0o600, "unknown key `too`"),
    ("notify: {to: ['json://localhost'], page: ops}\n", 0o600, "`notify.page ops` is not an origin"),
    ("notify: {to: ['json://ana:hunter2@localhost']}\n", 0o644, "chmod 600"),
    ("notify: [", 0o600, "is not YAML"),
    ("notify: {page: 2026-13-45}", 0o600, "month must be in 1"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # because of apprise's imports
def test_a_wrong_file_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, mode: int, why: str
) -> None:
    """Without its secrets."""
    file = tmp_path / "config.yaml"
    file.write_text(text)
    file.chmod(mode)
    errors = start_error(capsys, "--config", str(file), "--store", str(tmp_path / "runs.db"))

    assert why in errors
    assert "hunter2" not in errors


def start_error(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Why `proctor serve` does not start."""
    answer = called(capsys, "serve", "--listen", "127.0.0.1:0", *words)
    assert answer.code == 2
    return str(answer.err)


def test_a_phone_needs_tls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise the code would send a token over an unencrypted network."""
    for more in ((), ("--origin", "http://ops.example")):
        errors = start_error(capsys, "--phone", "--store", str(tmp_path / "runs.db"), *more)
        assert "`--phone` needs the address that your phone reaches, with TLS" in errors


def test_the_code_opens_the_page_with_its_token(tmp_path: Path) -> None:
    """The terminal shows the code of the origin with the token, which the page stores on the phone."""
    segno = pytest.importorskip("segno", reason="pip install '.[web]'")
    words = ("serve", "--listen", "127.0.0.1:0", "--phone", "--origin", "https://ops.example")
    with subprocess.Popen(
        [*web_server.PROCTOR, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "PROCTOR_STORE": ""},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        process.terminate()
        shown = process.communicate()[1]
    token = url.partition("#token=")[2]
    expected = tmp_path / "code.txt"
    with expected.open("w", encoding="utf-8") as file:
        segno.make(f"https://ops.example/#phone={token}", error="l").terminal(file, compact=True, border=2)

    assert token
    assert expected.read_text(encoding="utf-8") in shown
    assert token not in shown
