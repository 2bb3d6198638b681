"""`eval`, `diff`, `narrow` and `explain`: the commands for recorded sessions."""

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from proctor.policies.events import (
    Event,
    RunStarted,
    ToolCallCompleted,
    ToolCallDenied,
    ToolCallRequested,
    ToolCallStarted,
    encode_event,
)
from tests.forked_programs import warm_proctor


def session(name: str, *tools: str) -> str:
    calls = [{"type": "tool_call", "id": f"c{n}", "name": tool, "input": {}} for n, tool in enumerate(tools)]
    results = [{"type": "tool_result", "id": call["id"], "output": "ok"} for call in calls]
    events = [event for pair in zip(calls, results, strict=True) for event in pair]
    return json.dumps({"id": name, "events": events}) + "\n"


@pytest.fixture
def traces(place: Path) -> Path:
    """Two sessions, one of which deletes."""
    path = place / "traces.jsonl"
    path.write_text(session("good", "read", "write") + session("bad", "read", "delete"))
    return path


def test_eval_reports_which_session_violated_which_rule(cli: Any, traces: Path, place: Path) -> None:
    """Exit code 1, each failure in full unless fewer are requested, and the totals; 0 without violations. JSON has
    one line a session, and there are JUnit and SARIF for continuous integration.
    """
    reports = ("--junit", "out.xml", "--sarif", "out.sarif")
    evaluated = cli("eval", "--policy", "org.yaml", traces, *reports)
    short = cli("eval", "--policy", "org.yaml", traces, "--failures", "0")
    kept = cli("eval", "--policy", "org.yaml", "-", stdin=session("good", "read"))
    good, bad = cli("eval", "--json", "--policy", "org.yaml", traces).lines

    assert (evaluated.code, kept.code) == (1, 0)
    assert "FAILED deny-1 (deny)" in evaluated.out
    assert "2 sessions: 1 passed, 1 failed (1 violation)" in evaluated.out
    assert ("FAILED" in short.out, "1 failed" in short.out) == (False, True)
    assert "1 session: 1 passed, 0 failed" in kept.out
    assert good == {"session": "good", "passed": True, "violations": [], "rules": {"deny-1": "held"}}
    assert (bad["session"], bad["passed"]) == ("bad", False)
    assert bad["violations"][0]["tool_call_id"] == "c1"
    assert ElementTree.parse(place / "out.xml").getroot().tag == "testsuites"
    assert json.loads((place / "out.sarif").read_text())["version"] == "2.1.0"


LONG = "the_order_is_looked_up_before_the_address_of_the_customer_is_changed_in_any_way_by_the_agent"
MISSPELT = f"""name: misspelt
on_violation: request_approval
tool_rules: [{{deny: [delete_custmer, delete_orders]}}]
rules:
  - {{id: {LONG}, type: before, first: find_customer, then: change_address, key: $.customerid}}
"""


def test_eval_names_what_only_the_policy_has_and_the_sessions_nearly(cli: Any, place: Path) -> None:
    """A denied tool with a letter wrong denies nothing, and says so nowhere else. A tool with another name is
    another tool.
    """
    called = ("delete_customer", "delete_order_lines", "find_customers", "change_address")
    text = session("s", *called).replace('"input": {}', '"input": {"customer_id": "7"}')
    place.joinpath("t.jsonl").write_text(text)
    place.joinpath("p.yaml").write_text(MISSPELT)
    evaluated = cli("eval", "--policy", "p.yaml", "t.jsonl")

    assert evaluated.err.splitlines() == [
        "warning misspelt/deny-1: no tool is called `delete_custmer`; did you mean `delete_customer`?",
        f"warning misspelt/{LONG}: no tool is called `find_customer`; did you mean `find_customers`?",
        f"warning misspelt/{LONG}: `change_address` has no input `customerid`; did you mean `customer_id`?",
    ]
    assert evaluated.out.endswith("\n1 session: 1 passed, 0 failed (1 violation)\n")
    assert [line.split()[1:] for line in evaluated.out.splitlines() if line.startswith(f"{LONG} ")] == [list("10001")]


@pytest.mark.parametrize("command", ["eval --json", "narrow"])
def test_events_of_unknown_types_are_reported(cli: Any, place: Path, command: str) -> None:
    """They may be calls under another name. Known events are evaluated."""
    events = [
        {"type": kind, "id": "c", "name": "read"} for kind in ("tool_use", "tool_use", "th\x1bought", "tool_call")
    ]
    place.joinpath("t.jsonl").write_text(json.dumps({"id": "s", "events": events}))
    answer = cli(*command.split(), "--policy", "org.yaml", "t.jsonl")

    assert (answer.code, "3 events of unknown type passed over: `tool_use`, `th\\x1bought`; " in answer.err) == (
        0,
        True,
    )


def test_diff_shows_calls_that_a_new_policy_denies(cli: Any, traces: Path, place: Path) -> None:
    """Exit code 1 if a passing session fails now. Ids are never wrapped, however long."""
    name = "ses_" + "0123456789abcdef" * 2
    place.joinpath("own.jsonl").write_text(recorded(name, "delete", tenant="a-tenant-with-a-long-name", user="ana"))
    place.joinpath("open.yaml").write_text("name: open\n")
    stricter = cli("diff", "open.yaml", "org.yaml", traces)
    looser = cli("diff", "org.yaml", "open.yaml", traces)

    assert name in cli("diff", "open.yaml", "org.yaml", "own.jsonl").out
    assert (stricter.code, looser.code) == (1, 0)
    assert "newly refused: 1" in stricter.out
    assert "newly allowed: 1" in looser.out
    assert [line["session"] for line in cli("diff", "--json", "open.yaml", "org.yaml", traces).lines] == [
        "good",
        "bad",
    ]


def test_diff_compares_the_stacks_of_two_folders(cli: Any, traces: Path, place: Path) -> None:
    """In the order of their names: a later limit replaces an earlier one."""
    for folder, team in (("old", "{max_tool_calls: 9}"), ("new", "{max_tool_calls: 1}")):
        (place / folder).mkdir()
        (place / folder / "1-org.yaml").write_text("name: org\nlimits: {max_tool_calls: 5}\n")
        (place / folder / "2-team.yaml").write_text(f"name: team\nlimits: {team}\n")

    assert "newly refused: 2" in cli("diff", "old", "new", traces).out


def test_narrow_hides_tools_that_could_not_be_called(cli: Any, place: Path) -> None:
    """After the trace, under the policy."""
    place.joinpath("order.yaml").write_text(
        "name: o\nrules: [{type: before, first: read, then: write, action: deny}]\n"
    )
    fresh = cli("narrow", "--policy", "order.yaml", "-", "--tools", "read,write", stdin=session("s", "look"))
    after = cli(
        "narrow", "--json", "--policy", "order.yaml", "-", "--tools", "read,write", stdin=session("s", "read")
    )

    assert fresh.out == "s: read\n"
    assert after.lines == [{"session": "s", "tools": ["read", "write"], "hidden": []}]
    assert cli("narrow", "--policy", "order.yaml", "-", "--tools", ",", stdin=session("s")).code == 2


def test_narrow_uses_the_sessions_tools_by_default(cli: Any, ran: Any, place: Path) -> None:
    """Those listed at the run's start, or else the tools it called."""
    place.joinpath("run.jsonl").write_text(cli("show", "--json", "last").out)
    offered = cli("narrow", "--json", "--policy", "org.yaml", "run.jsonl").lines
    called = cli("narrow", "--json", "--policy", "org.yaml", "-", stdin=session("s", "read", "delete", "read")).lines

    assert [(line["tools"], line["hidden"]) for line in offered] == [
        (["bash", "read", "write", "deploy"], ["delete"])
    ]
    assert called == [{"session": "s", "tools": ["read"], "hidden": ["delete"]}]


def test_explain_says_why_a_stored_call_was_denied_and_how_the_run_ended(cli: Any, ran: Any) -> None:
    """Under the policies stored with the run. `--refused` omits allowed calls; the end is always shown, except in
    JSON. A number selects one event; an event without a decision is an error.
    """
    whole, short = cli("explain", ran.lines[-1]["run_id"]), cli("explain", "last", "--refused")
    seq = next(line["seq"] for line in ran.lines if line.get("tool_name") == "delete")

    assert whole.code == 0
    assert "bash (call-1): allow" in whole.out
    assert "(call-1)" not in short.out
    assert all("delete (call-2): deny" in each.out for each in (whole, short))
    assert "deny-1: deny, " in whole.out
    assert whole.out.splitlines()[-1] == short.out.splitlines()[-1]
    assert re.fullmatch(r"event \d+  completed .*", short.out.splitlines()[-1])
    assert len(cli("explain", "last", "--refused", "--json").lines) == 1
    assert [line["decision"]["action"] for line in cli("explain", "--json", "last", seq).lines] == ["deny"]
    assert cli("explain", "last", "1").code == 2


def test_explain_says_who_cancelled_a_run(cli: Any, place: Path) -> None:
    """By name, with the given reason."""
    place.joinpath("waits.yaml").write_text("name: agent\nsteps: [{silence: forever}]\n")
    words = ("run", "--adapter", "scripted", "--set", "script=waits.yaml", "x")
    with subprocess.Popen([warm_proctor(), *words], stdout=subprocess.DEVNULL) as run:
        while not cli("runs", "--status", "running", "--json").out:
            assert run.poll() is None
            time.sleep(0.05)
        cli("kill", "--all", "--by", "ana", "--reason", "too late in the night")

    ended = "too late in the night (by ana)"
    assert cli("explain", "last").out.endswith(f"cancelled {ended}\n")
    assert ended in cli("show", "last").out


@pytest.mark.parametrize("words", [("eval", "--policy", "org.yaml"), ("diff", "org.yaml", "org.yaml")])
def test_a_store_given_as_a_trace_is_an_error_with_the_export_command(
    cli: Any, ran: Any, words: tuple[str, ...]
) -> None:
    store = json.loads(cli("store", "--json").out)["path"]
    answer = cli(*words, store)

    assert answer.code == 2
    assert f"this is a database, not a trace; `proctor export --store {store} -o FILE`" in answer.err


def test_explain_of_a_run_includes_the_earlier_runs_of_its_session(cli: Any, place: Path) -> None:
    """The first run satisfied the rule. Only decisions of the second are explained."""
    place.joinpath("order.yaml").write_text(
        "name: o\nrules: [{type: before, first: bash, then: write, action: deny}]\n"
    )
    place.joinpath("one.yaml").write_text("steps:\n  - call: bash\n    input: {command: 'true'}\n")
    place.joinpath("two.yaml").write_text("steps:\n  - call: write\n    input: {path: a, content: b}\n")
    run = ("run", "--json", "--adapter", "scripted", "--policy", "order.yaml")
    session_id = cli(*run, "--set", "script=one.yaml", "x").lines[-1]["session_id"]
    cli(*run, "--set", "script=two.yaml", "--session", session_id, "x")

    assert [
        (line["decision"]["tool_name"], line["decision"]["action"]) for line in cli("explain", "--json", "last").lines
    ] == [("write", "allow")]


def test_explain_covers_each_call_of_a_reused_id(cli: Any, place: Path) -> None:
    """The id of a finished call names a new one."""
    record: list[Event] = [
        RunStarted(),
        ToolCallRequested(tool_call_id="c", tool_name="bash"),
        ToolCallStarted(tool_call_id="c", tool_name="bash"),
        ToolCallCompleted(tool_call_id="c", tool_name="bash"),
        ToolCallRequested(tool_call_id="c", tool_name="rm"),
        ToolCallDenied(tool_call_id="c", tool_name="rm"),
        ToolCallRequested(tool_call_id="c", tool_name="bash"),
    ]
    numbered = (replace(event, run_id="r", seq=n) for n, event in enumerate(record, 1))
    place.joinpath("used.jsonl").write_bytes(b"\n".join(map(encode_event, numbered)))
    place.joinpath("rm.yaml").write_text("name: p\ntool_rules: [{deny: [rm], action: deny}]\n")
    answers = cli("explain", "used.jsonl", "--policy", "rm.yaml", "--json").lines
    assert [line["decision"]["action"] for line in answers] == ["allow", "deny", "allow"]


def test_explain_accepts_a_file_of_events(cli: Any, ran: Any, place: Path) -> None:
    """From `run --json` or `show --json`. Policies may be given, and are required if the file has none."""
    place.joinpath("run.jsonl").write_text(cli("show", "--json", "last").out)
    place.joinpath("other.yaml").write_text("name: other\ntool_rules: [{deny: [bash]}]\n")

    assert "delete (call-2): deny" in cli("explain", "run.jsonl").out
    assert "bash (call-1): cancel" in cli("explain", "run.jsonl", "--policy", "other.yaml").out
    lacking = cli("explain", "-", stdin=session("s", "read"))
    assert (lacking.code, "name the files with `--policy`" in lacking.err) == (2, True)
    assert cli("explain", "gone.jsonl").err == "error: gone.jsonl: no such file or directory\n"
    for named, file in (
        ("gone.log", "there is no file `gone.log`, and "),
        ("./a", "there is no file `./a`, and "),
        ("a", ""),
    ):
        assert cli("explain", named, "--store", "no.db").err.startswith(f"error: {file}there is no store at `no.db`")
    for odd in ({"context": 7}, *({"policies": each} for each in (7, [7], [{"rules": 7}], [{"rules": [7]}]))):
        start = {"type": "run_started", "run_id": "r", "session_id": "s", "metadata": odd}
        assert cli("explain", "-", stdin=json.dumps(start)).code == 2, odd


@pytest.mark.parametrize(
    ("action", "codes"),
    [("warn", [0, 0, 1, 0]), ("request_approval", [0, 0, 1, 0]), ("deny", [1, 0, 1, 0]), ("cancel", [1, 0, 1, 1])],
)
def test_eval_fails_from_the_given_action_on(cli: Any, traces: Path, place: Path, action: str, codes: Any) -> None:
    """By default from `deny`. Weaker actions are not reported as failures."""
    place.joinpath("one.yaml").write_text(f"name: one\ntool_rules: [{{deny: [delete], action: {action}}}]\n")
    given = [(), ("--fail-on", "never"), ("--fail-on", "warn"), ("--fail-on", "cancel")]
    answers = [cli("eval", "--policy", "one.yaml", traces, *options) for options in given]

    assert [answer.code for answer in answers] == codes
    for answer in answers:
        assert ("FAILED" in answer.out) is (answer.code == 1)
        assert ("WARNED" in answer.out) is (answer.code == 0)
        assert ("0 failed" in answer.out) is (answer.code == 0)


def recorded(name: str, tool: str, **context: Any) -> str:
    """One session of proctor's own events, with its run's context."""
    stamps = {"session_id": name, "run_id": f"run-{name}"}
    call = {"tool_call_id": "c1", "tool_name": tool}
    events: list[dict[str, Any]] = [
        {"type": "run_started", "metadata": {"context": context}},
        {"type": "tool_call_requested", **call},
        {"type": "tool_call_started", **call},
        {"type": "tool_call_completed", **call},
        {"type": "run_completed"},
    ]
    return "".join(json.dumps({**event, **stamps, "seq": seq}) + "\n" for seq, event in enumerate(events, 1))


WHEN = "{name: by-tenant, tool_rules: [{deny: [send], when: [{path: $.tenant, equals: acme}]}]}"


def test_sessions_are_evaluated_in_the_context_of_their_run(cli: Any, place: Path) -> None:
    """As in `explain`. The command line's context overrides it."""
    place.joinpath("when.yaml").write_text(WHEN)
    place.joinpath("own.jsonl").write_text(
        recorded("one", "send", tenant="acme", user="ana") + recorded("two", "send", tenant="other", user="bo")
    )
    evaluated = cli("eval", "--policy", "when.yaml", "--json", "own.jsonl")
    given = cli("eval", "--policy", "when.yaml", "--json", "--context", "tenant=acme", "own.jsonl")
    differing = cli("diff", "org.yaml", "when.yaml", "--json", "own.jsonl")

    assert [line["passed"] for line in evaluated.lines] == [False, True]
    assert [line["passed"] for line in given.lines] == [False, False]
    assert [line["new_passed"] for line in differing.lines if line["session"] == "two"] in ([], [True])


def test_the_runs_with_violations_are_named_with_their_context(cli: Any, place: Path) -> None:
    """User, role, tenant and labels of the run, as recorded. `diff` shows them too, so the people can be told
    beforehand.
    """
    place.joinpath("when.yaml").write_text(WHEN)
    place.joinpath("before.yaml").write_text(WHEN.replace("deny: [send]", "deny: [send], action: warn"))
    place.joinpath("own.jsonl").write_text(recorded("one", "send", tenant="acme", user="ana", labels={"job": "mail"}))
    for words in (("eval", "--policy", "when.yaml", "own.jsonl"), ("diff", "before.yaml", "when.yaml", "own.jsonl")):
        (line,) = cli(*words, "--json").lines

        assert "user=ana tenant=acme labels.job=mail\n" in cli(*words).out
        assert line["whose"] == {"user": "ana", "tenant": "acme", "labels": {"job": "mail"}}


def test_eval_writes_the_promised_fields(cli: Any, place: Path) -> None:
    """One line a session; programs read these names."""
    events: list[dict[str, Any]] = [
        {"type": "tool_call_requested", "tool_call_id": "c", "tool_name": "delete", "tool_input": {}},
        {"type": "tool_call_denied", "tool_call_id": "c", "tool_name": "delete"},
    ]
    lines = [json.dumps({"session_id": "s", "run_id": "r", "seq": n, **event}) for n, event in enumerate(events, 1)]
    place.joinpath("own.jsonl").write_text("\n".join(lines))
    (line,) = cli("eval", "--policy", "org.yaml", "own.jsonl", "--json").lines
    (violation,), (decision,) = line["violations"], line["decisions"]

    assert line.keys() == {"session", "passed", "violations", "rules", "decisions"}
    assert set(violation) == {
        *("rule", "policy", "kind", "action", "seq", "tool_call_id", "tool_name", "message", "details")
    }
    assert decision == {"tool_call_id": "c", "action": "deny", "violations": ["deny-1"]}
    assert (line["session"], line["passed"], line["rules"]["deny-1"]) == ("s", False, "violated")


def test_an_exported_log_can_be_evaluated(cli: Any, place: Path) -> None:
    """As `proctor export` writes it: a head, runs, and events."""
    place.joinpath("when.yaml").write_text(WHEN)
    events = recorded("one", "send", tenant="acme", user="ana").splitlines()
    lines = ['{"format":"proctor record 1","store":"x.1"}', '{"run":{"run_id":"run-one"}}']
    place.joinpath("record.jsonl").write_text(
        "\n".join([*lines, *(f'{{"event":{event}}}' for event in events)]) + "\n"
    )
    (line,) = cli("eval", "--policy", "when.yaml", "--json", "record.jsonl").lines

    assert (line["session"], line["passed"], line["whose"]) == ("one", False, {"user": "ana", "tenant": "acme"})
