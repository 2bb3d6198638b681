"""The HTTP API of a store with runs in other processes (docs: The page and the HTTP API)."""

import gc
import json
import threading
from typing import Any

import jsonschema
import pytest
import web_server

from proctor.adapters.evaluate.fold import Refold
from proctor.adapters.operations.service import Folds
from proctor.adapters.web.server import OPERATIONS
from proctor.policies import Monitor, PolicyError
from proctor.policies.events import MessageReceived, RunStarted
from proctor.supervisor import MemoryStore

POLICY = """\
name: org
limits: {max_tool_calls: 10, max_duration_ms: 3_600_000, max_total_tokens: {max: 1000, warn_at: 0.5}}
approval: {timeout_s: 60}
tool_rules:
  - {deny: [delete], action: deny, tell_model: Nothing is deleted here.}
nets: [require human-approval before write]
"""
SCRIPT = """\
tools: [bash, read, write, delete]
steps:
  - say: I begin.
  - usage: {input_tokens: 600, output_tokens: 10}
  - call: bash
    input: {command: "echo hello && ls -l | wc"}
  - call: delete
    input: {path: old}
"""
ASKS = """\
tools: [write]
steps:
  - call: write
    input: {path: notes.txt, content: "one\\ntwo"}
    if_denied: [{say: Then not.}]
"""


@pytest.fixture(scope="module")
def events(site: web_server.Site) -> list[dict[str, Any]]:
    """The events of an ended run."""
    context = ("--context", "tenant=acme", "--context", "labels.env=prod")
    return list(web_server.ran(site, SCRIPT, POLICY, *context)[:-1])


@pytest.fixture(scope="module")
def run_id(events: list[dict[str, Any]]) -> str:
    return str(events[0]["run_id"])


def test_runs_are_listed_filtered_and_paged(site: web_server.Site, run_id: str) -> None:
    """By status, tenant, label and words. A filter without matches gives an empty list."""
    (run,) = site.get("/api/runs")["runs"]

    assert (run["run_id"], run["status"], run["tenant"], run["labels"]) == (
        run_id, "completed", "acme", {"env": "prod"},
    )  # fmt: skip
    for query in (
        *("status=completed", "tenant=acme", "since=2026-01-01T00:00:00Z", "label=env=prod", "q=CLEAN"),
        "provider=scripted",
    ):
        assert [each["run_id"] for each in site.get(f"/api/runs?{query}")["runs"]] == [run_id], query
    for query in (
        "status=running",
        "tenant=other",
        "tenant=null",
        "label=env=dev",
        "until=2026-01-01T00:00:00Z",
        "q=nothing",
        f"before={run_id}",
    ):
        assert site.get(f"/api/runs?{query}")["runs"] == [], query
    one = site.get(f"/api/runs/{run_id}")
    assert {**one, "last_seq": None} == run
    assert (one["usage"]["input_tokens"], one["calls"], one["violations"]) == (600, 1, 1)


def test_events_are_paged(site: web_server.Site, run_id: str, events: list[dict[str, Any]]) -> None:
    """As they are stored; for a session, those of all its runs."""
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = site.get(f"/api/runs/{run_id}/events?after={after}&limit=4")
        found, after = found + page["events"], page["next"]

    assert [event["seq"] for event in found] == [event["seq"] for event in events]
    assert found == site.get(f"/api/sessions/{events[0]['session_id']}/events")["events"]


def test_a_stream_resumes_after_its_last_event(
    site: web_server.Site, run_id: str, events: list[dict[str, Any]]
) -> None:
    """`Last-Event-ID` is the cursor. Interrupted anywhere, the two parts have every event once."""
    path = f"/api/runs/{run_id}/stream"
    for cut in (1, 3, len(events)):
        with site.stream(path) as stream:
            read = [next(stream) for _ in range(cut)]
        with site.stream(path, last=int(read[-1][0])) as stream:
            read += list(stream)

        assert [int(id) for id, kind, _ in read if kind != "end"] == [event["seq"] for event in events]
        assert read[-1][1] == "end"
    assert site.ask("GET", path, headers={"Last-Event-ID": "later"}).status == 400
    session = f"/api/sessions/{events[0]['session_id']}/stream"
    for beyond in (path, session, f"/api/runs/{run_id}/timeline/stream"):
        rejected = site.ask("GET", f"{beyond}?after={len(events) + 1}")
        assert (rejected.status, rejected.data["message"].endswith(f"ends at {len(events)}")) == (400, True)
    for stream_path in (path, "/api/stream"):
        rejected = site.ask("GET", f"{stream_path}?types=tool_call_denied,run_complete")
        assert (rejected.status, rejected.data["message"].split("; ")[1]) == (400, "did you mean `run_completed`?")
    with site.stream(f"{path}?types=tool_call_denied") as stream:
        assert [kind for _, kind, _ in stream] == ["tool_call_denied", "end"]


def test_the_stream_of_all_events_resumes_after_its_cursor(site: web_server.Site, run_id: str) -> None:
    """From the start, from a cursor on a new connection, and for a tenant; runs of all processes are
    streamed live.
    """
    with site.stream("/api/stream?after=start") as stream:
        cursor, event = next((id, event) for id, kind, event in stream if kind == "run_completed")
    assert event["run_id"] == run_id
    with site.stream("/api/stream", last=cursor) as stream, site.stream("/api/stream?tenant=other") as others:
        later = web_server.ran(site, "steps: [{say: Hello.}]\n", POLICY, "--context", "tenant=other")
        for read in (stream, others):
            assert [next(read)[2]["seq"] for _ in later[:-1]] == [each["seq"] for each in later[:-1]]


def test_a_run_has_its_decisions_limits_and_policies(site: web_server.Site, run_id: str) -> None:
    """As in `proctor explain`, with the usage of each limit, and the graph as text and as a diagram."""
    found = site.get(f"/api/runs/{run_id}/decisions")["decisions"]
    allowed, denied = (each["decision"] for each in found)
    limits = {each["limit"]: each for each in site.get(f"/api/runs/{run_id}/limits")["limits"]}
    policies = site.get(f"/api/runs/{run_id}/policies")

    assert (allowed["action"], denied["action"]) == ("allow", "deny")
    assert denied["violations"][0]["rule"] == "deny-1"
    assert any("deny-1: deny" in step for step in denied["steps"])
    assert denied["tell_model"] == "Nothing is deleted here."
    assert (limits["max_tool_calls"]["used"], limits["max_tool_calls"]["max"]) == (1, 10)
    assert [limits[f"max_{each}"]["title"] for each in ("tool_calls", "duration_ms")] == ["tool calls", "time"]
    assert (limits["max_total_tokens"]["used"], limits["max_total_tokens"]["warn_at"]) == (610, 0.5)
    assert [each["name"] for each in policies["policies"]] == ["org"]
    assert policies["svg"].startswith("<svg")
    assert "human-approval" in policies["mermaid"]


def test_what_is_drawn_is_a_copy_that_no_other_request_changes(
    site: web_server.Site, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is copied before the drawing begins in another thread: a run that goes on would change there."""
    site.get(f"/api/runs/{run_id}/limits")
    copied: list[str] = []
    copy = Refold.copy

    def noted(refold: Refold) -> Monitor:
        copied.append(threading.current_thread().name)
        return copy(refold)

    monkeypatch.setattr(Refold, "copy", noted)
    site.get(f"/api/runs/{run_id}/policies")

    assert len(copied) == 1
    assert "worker" not in copied[0]


@pytest.mark.anyio
async def test_events_that_cannot_be_evaluated_again_are_not_left_open() -> None:
    """The policies are of another version. Reading stops at the first of many events, and is closed."""
    later = {"policies": [{"name": "p", "rules": [{"type": "of a later version"}]}]}
    start = RunStarted(session_id="s", run_id="r", metadata=later)
    async with MemoryStore() as store:
        await store.append([start, *(MessageReceived(session_id="s", run_id="r", content="x") for _ in range(600))])
        run = await store.run("r")
        assert run is not None
        with pytest.raises(PolicyError):
            await Folds(store).of(run)
        gc.collect()


def test_a_wrong_method_is_answered_with_the_allowed_ones(site: web_server.Site) -> None:
    """Even if several operations share a path."""
    rejected = site.ask("PUT", "/api/switch")

    assert rejected.status == 405
    assert set(rejected.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}


def test_budgets_have_their_usage_and_their_balance(site: web_server.Site) -> None:
    """Of all runs that share them."""
    policy = "name: shared\nbudgets: [{name: calls, max_tool_calls: 4, per: $.tenant, window: day}]\n"
    for _ in range(2):
        web_server.ran(
            site, "tools: [a]\nsteps: [{call: bash, input: {command: 'true'}}]", policy, "--context", "tenant=t"
        )
    (budget,) = [each for each in site.get("/api/budgets")["budgets"] if each["budget"] == "shared/calls"]

    assert (budget["key"], budget["counts"], budget["window"]) == ('$.tenant="t"', "tool_calls", "day")
    assert (budget["used"], budget["reserved"], budget["left"], budget["max"]) == (2, 0, 2, 4)
    assert (budget["unit"], budget["in_use"], budget["ahead"]) == ("tool calls", 2, 0)
    assert budget["resets_at"].endswith("Z")


def test_a_pending_call_is_shown_and_answered(site: web_server.Site) -> None:
    """In the name of the token's holder. The model gets its text; a second answer is too late."""
    with web_server.going(site, ASKS, POLICY) as process:
        (waiting,) = site.until("/api/approvals", lambda found: found["total"] == 1)["approvals"]
        assert waiting["shown"]["edits"] == [
            {
                "path": "notes.txt",
                "lines": [{"mark": "+", "text": "one"}, {"mark": "+", "text": "two"}],
                "cut": 0,
                "rest": {},
            }
        ]
        assert site.get(f"/api/runs/{waiting['run_id']}/approvals")["approvals"] == [waiting]
        one = f"/api/approvals/{waiting['approval_id']}"
        assert site.get(one)["input_digest"] == waiting["input_digest"]
        answer = {"answer": "deny", "input_digest": waiting["input_digest"], "tell_model": "Ask ops first."}
        other = site.ask("POST", f"{one}/answer", token=web_server.BEN, body=answer | {"input_digest": "f" * 64})
        accepted = site.ask("POST", f"{one}/answer", token=web_server.BEN, body=answer)
        assert process.stdout is not None
        printed = [json.loads(line) for line in process.stdout]
        late = site.ask("POST", f"{one}/answer", body=answer)
        closed = site.get(one)

    assert (closed["state"], closed["outcome"], closed["answered_by"]) == ("denied", "declined", "ben")
    assert (accepted.data["answer"], accepted.data["outcome"]) == ("denied", "declined")
    assert "is closed: declined by `ben`" in late.data["message"]
    assert (other.status, accepted.status, late.status) == (409, 200, 409)
    (denied,) = [event for event in printed if event["type"] == "tool_call_denied"]
    (by,) = [event["by"] for event in printed if event["type"] == "tool_approval_denied"]
    assert (denied["tell_model"], by) == ("Ask ops first.", "ben")


def test_an_approval_may_cover_the_rest_of_the_run_and_needs_an_approver(site: web_server.Site) -> None:
    """In a scope that the policy allows. The author is the token's name, with the groups in its line."""
    policy = POLICY.replace("timeout_s: 60", "timeout_s: 60, approvers: ['@leads'], scope: run")
    call = "  - {call: write, input: {path: a.txt, content: one}}\n"
    with web_server.going(site, f"tools: [write]\nsteps:\n{call}{call}", policy) as process:
        (waiting,) = site.until("/api/approvals", lambda found: found["total"] == 1)["approvals"]
        path = f"/api/approvals/{waiting['approval_id']}/answer"
        answer = {"answer": "grant", "input_digest": waiting["input_digest"], "scope": "run"}
        stranger = site.ask("POST", path, token=web_server.BEN, body=answer)
        wider = site.ask("POST", path, body={**answer, "scope": "session"})
        accepted = site.ask("POST", path, body=answer)
        assert process.stdout is not None
        types = [json.loads(line)["type"] for line in process.stdout]

    assert (waiting["approvers"], waiting["scopes"]) == (["@leads"], ["once", "run"])
    assert (stranger.status, wider.status, accepted.status) == (403, 403, 200)
    assert types.count("tool_call_completed") == 2  # the second call asked nobody


def _elapsed(limits: dict[str, Any]) -> float:
    return next(float(each["used"]) for each in limits["limits"] if each["limit"] == "max_duration_ms")


def test_a_run_is_cancelled(site: web_server.Site) -> None:
    """In order, with the person and the reason; its clock is shown as of now. An ended run can't be cancelled. A run
    whose owner is lost is ended at once.
    """
    with web_server.going(site, "steps: [{silence: forever}]\n", POLICY) as process:
        (run,) = site.until("/api/runs?status=running", lambda found: found["runs"])["runs"]
        path = f"/api/runs/{run['run_id']}/cancel"
        elapsed = [_elapsed(site.get(f"/api/runs/{run['run_id']}/limits")) for _ in range(2)]
        accepted = site.ask("POST", path, body={"reason": "enough"})
        assert process.stdout is not None
        printed = [json.loads(line) for line in process.stdout]
        late = site.ask("POST", path, body={})

    assert (accepted.status, late.status) == (202, 409)
    assert [event["reason"] for event in printed if event["type"] == "run_cancelled"] == ["enough"]
    assert 0 < elapsed[0] < elapsed[1]
    with web_server.going(site, "steps: [{silence: forever}]\n", POLICY):
        (run,) = site.until("/api/runs?status=running", lambda found: found["runs"])["runs"]
    path = f"/api/runs/{run['run_id']}"
    site.until(path, lambda found: found["status"] == "lost")
    assert site.ask("POST", f"{path}/cancel", body={}).status == 202
    assert site.get(path)["status"] == "failed"


def test_the_kill_switch_ends_runs_and_freezes_starts_until_it_is_lifted(site: web_server.Site) -> None:
    """Each outcome is reported. Everyone sees the person and the reason, and so does each rejected start."""
    with web_server.going(site, "steps: [{silence: forever}]\n", POLICY, "--context", "tenant=stopped"):
        (run,) = site.until("/api/runs?status=running&tenant=stopped", lambda found: found["runs"])["runs"]
        stopped = site.ask("POST", "/api/switch", body={"tenant": "stopped", "reason": "an incident"}).data
    (block,) = stopped["blocks"]
    refused = web_server.ran(site, "steps: [{say: Hello.}]\n", POLICY, "--context", "tenant=stopped")
    others = web_server.ran(site, "steps: [{say: Hello.}]\n", POLICY, "--context", "tenant=free")
    lifted = site.ask("POST", "/api/switch/lift", body={"tenant": "stopped"}).data
    again = web_server.ran(site, "steps: [{say: Hello.}]\n", POLICY, "--context", "tenant=stopped")

    assert [(each["run_id"], each["status"], each["ended"]) for each in stopped["outcomes"]] == [
        (run["run_id"], "cancelled", True)
    ]
    assert (block["scope"], block["value"], block["by"], block["reason"]) == (
        "tenant", "stopped", "ana", "an incident",
    )  # fmt: skip
    assert [event["type"] for event in refused if event["type"] == "run_started"] == []
    assert lifted == {"lifted": [block], "blocks": []}
    assert site.get("/api/switch") == {"blocks": []}
    assert all(any(event["type"] == "run_completed" for event in events) for events in (others, again))


def test_every_operation_matches_its_description(site: web_server.Site, run_id: str) -> None:
    """The document at /openapi.json has every route with its parameters, and responses match its schemas."""
    document = site.get("/openapi.json", token=None)
    session_id = site.get(f"/api/runs/{run_id}")["session_id"]

    assert set(document["paths"]) == {op.path for op in OPERATIONS}
    for op in OPERATIONS:
        described = document["paths"][op.path][op.method.lower()]
        queried = [each for each in described["parameters"] if each["in"] == "query"]
        assert [each["name"] for each in queried] == list(op.query.__struct_fields__)
        for each in queried:
            jsonschema.Draft202012Validator.check_schema(each["schema"])
        path = op.path.format(run_id=run_id, session_id=session_id, approval_id=f"{run_id}.9")
        if op.media != "application/json":
            continue
        answer = site.ask(op.method, path, body={} if op.body else None)
        schema = described["responses"][str(answer.status)]["content"]["application/json"]["schema"]
        jsonschema.validate(answer.data, {**schema, "components": document["components"]})


@pytest.mark.parametrize(("method", "path", "body", "status"), [
    ("GET", "/api/runs/nothing", None, 404),
    ("GET", "/api/sessions/nothing/events", None, 404),
    ("GET", "/api/sessions/nothing/stream", None, 404),
    ("GET", "/api/approvals/run_x.1", None, 404),
    ("GET", "/api/runs/nothing/approvals", None, 404),
    ("GET", "/api/runs?limit=0", None, 400),
    ("GET", "/api/runs?limit=many", None, 400),
    ("GET", "/api/runs?status=odd", None, 400),
    ("GET", "/api/runs?status=null", None, 400),
    ("GET", "/api/runs?label=env", None, 400),
    ("GET", "/api/runs?since=soon", None, 400),
    ("GET", "/api/stream?after=nowhere", None, 400),
    ("GET", "/api/runs?before=nothing", None, 400),
    ("GET", "/api/runs?limit=1&limit=2", None, 400),
    ("GET", "/api/nothing", None, 404),
    ("POST", "/api/runs", {}, 405),
    ("POST", "/api/approvals/run_x.1/answer", {"answer": "maybe", "input_digest": ""}, 400),
    ("POST", "/api/approvals/run_x.1/answer", {"answer": "grant"}, 400),
    ("POST", "/api/approvals/run_x.1/answer", {"answer": "grant", "input_digest": ""}, 404),
    ("POST", "/api/switch", {}, 400),
    ("POST", "/api/switch", {"tenant": "a", "everything": True}, 400),
    ("POST", "/api/switch", {"label": "env"}, 400),
    ("POST", "/api/switch", {"tenant": ""}, 400),
    ("POST", "/api/switch", {"everything": True, "wait_s": 1e9}, 400),
    ("POST", "/api/switch/lift", {}, 400),
    ("POST", "/api/runs/nothing/cancel", b"{", 400),
    ("POST", "/api/runs/nothing/cancel", {}, 404),
])  # fmt: skip
def test_an_invalid_request_is_one_error(
    site: web_server.Site, method: str, path: str, body: Any, status: int
) -> None:
    """With a code for programs and a sentence for people."""
    answer = site.ask(method, path, body=body)

    assert answer.status == status
    assert set(answer.data) == {"code", "message"}


def test_an_unknown_parameter_or_value_is_an_error_with_the_known_ones(site: web_server.Site) -> None:
    answers = [
        site.ask("GET", "/api/runs?status=complete"),
        site.ask("POST", "/api/approvals/run_x.1/answer", body={"answer": "approve", "input_digest": "x"}),
        site.ask(
            "POST", "/api/approvals/run_x.1/answer", body={"answer": "deny", "input_digest": "", "scope": "all"}
        ),
        site.ask("GET", "/api/runs?stauts=running"),
        site.ask("GET", "/api/me?x=1"),
        site.ask("POST", "/api/approvals/run_x.1/answer", body={"granted": True}),
    ]

    assert [(answer.status, answer.data["message"]) for answer in answers] == [
        (400, "unknown value `complete` at `$.status`; did you mean `completed`?"),
        (400, "unknown value `approve` at `$.answer`; there are `grant`, `deny`"),
        (400, "unknown value `all` at `$.scope`; there are `once`, `run`, `session`"),
        (400, "unknown key `stauts`; did you mean `status`?"),
        (400, "unknown key `x`; there are none"),
        (400, "unknown key `granted`; there are `answer`, `input_digest`, `reason`, `tell_model`, `scope`, `like`"),
    ]


ASKS_TO_PUSH = """\
name: team
approval: {timeout_s: 120, scope: session}
tool_rules: [{deny: [bash], action: request_approval}]
"""
PUSHES = """\
tools: [bash]
steps:
  - {call: bash, input: {command: git push origin main}}
  - {call: bash, input: {command: git push origin release}}
  - {call: bash, input: OTHER}
"""


@pytest.mark.parametrize("other", [
    {"command": "git push origin main && rm -rf build"},
    {"command": "git push origin main", "run_in_background": True},
], ids=["more in the line", "an input more"])  # fmt: skip
def test_an_approval_for_similar_calls_covers_those_and_no_others(
    site: web_server.Site, other: dict[str, Any]
) -> None:
    """The approval says what is similar. A later push is not asked about; one with anything more is."""
    script = PUSHES.replace("OTHER", json.dumps(other))
    with web_server.going(site, script, ASKS_TO_PUSH, prompt="Push") as run:
        with web_server.waits(run) as event:
            path = f"/api/approvals/{event['approval_id']}"
            view = site.get(path)
            order = {"answer": "grant", "input_digest": view["input_digest"], "like": True}
            alone = site.ask("POST", f"{path}/answer", body=order)
            accepted = site.ask("POST", f"{path}/answer", body={**order, "scope": "session"})
        with web_server.waits(run) as next_one:
            events = site.get(f"/api/runs/{event['run_id']}/events")["events"]
    granted = [each for each in events if each["type"] == "tool_approval_granted"]

    assert view["like"]["about"] == "`bash` `git push`"
    assert alone.status == 400
    assert accepted.status == 200
    assert next_one["tool_input"] == other
    assert [each.get("covered_by") for each in granted] == [None, event["approval_id"]]
    assert granted[0]["like"] == view["like"]["entry"]
