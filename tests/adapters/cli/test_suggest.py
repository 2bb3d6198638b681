"""`suggest`: a policy learnt from sessions, with its evidence and its tests."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from terminal import Terminal

from proctor.policies import Before, ToolWhere, load_policies
from proctor.policies.events import Event, RunStarted, ToolCallCompleted, ToolCallStarted, encode_event

CLAUDE = Path(__file__).parents[1] / "traces" / "data" / "claude"
Call = tuple[str, dict[str, Any], Any]


def session(id: str, user: str, *calls: Call) -> dict[str, Any]:
    events: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": user}]
    for n, (name, given, output) in enumerate(calls, 1):
        events.append({"type": "tool_call", "id": f"c{n}", "name": name, "input": given, "turn": n})
        events.append({"type": "tool_result", "id": f"c{n}", "output": output, "turn": n})
    return {"id": id, "events": events}


def payment(n: int) -> dict[str, Any]:
    """An amount that grows, and a command line of two programs."""
    return session(
        f"p{n}",
        "go",
        ("pay", {"amount": 10 + n}, "done"),
        ("bash", {"command": f"git status && pytest tests/test_{n}.py"}, "passed"),
    )


def refund(n: int) -> dict[str, Any]:
    """A legitimate session: the order is the user's, the customer the lookup's, the amount small."""
    return session(
        f"s{n}",
        f"Please refund order A{n:03}",
        ("find_order", {"order": f"A{n:03}"}, {"customer": f"user-{n}"}),
        ("refund", {"order": f"A{n:03}", "customer": f"user-{n}", "amount": 10 + n}, "done"),
        ("bash", {"command": f"cd app && git status && pytest tests/test_{n}.py"}, "passed"),
        ("read", {"path": f"src/orders/o{n}.py"}, "text"),
        ("fetch", {"url": f"https://docs.python.org/3/page{n}"}, "text"),
    )


ODD = session("odd", "clean up", ("bash", {"command": "rm -rf build"}, ""), ("drop_all", {}, "done"))


@pytest.fixture
def learnt(cli: Any, place: Path) -> Any:
    """`proctor suggest` of twelve refunds and further sessions, to `policy.yaml` and `tests.yaml`."""

    def run(*more: dict[str, Any], options: tuple[object, ...] = ("--tests", "tests.yaml")) -> Any:
        lines = [json.dumps(each) for each in (*map(refund, range(12)), *more)]
        place.joinpath("sessions.jsonl").write_text("\n".join(lines))
        return cli("suggest", "sessions.jsonl", "-o", "policy.yaml", *options)

    return run


def decided(cli: Any, place: Path, *sessions: dict[str, Any]) -> list[bool]:
    """Whether each session passes under the learnt policy."""
    place.joinpath("new.jsonl").write_text("\n".join(map(json.dumps, sessions)))
    answer = cli("eval", "--policy", "policy.yaml", "new.jsonl", "--json")
    return [line["passed"] for line in answer.lines]


def test_the_learnt_policy_allows_the_sessions_and_has_passing_tests(cli: Any, learnt: Any, place: Path) -> None:
    """The policy loads, every session passes under it, and each restriction has a test of what it denies."""
    assert learnt().code == 0
    assert cli("check", "policy.yaml").code == 0
    assert cli("eval", "--policy", "policy.yaml", "sessions.jsonl").code == 0

    tests = cli("test", "tests.yaml")

    assert (tests.code, tests.err) == (0, "")
    assert "stops another $.amount of refund" in place.joinpath("tests.yaml").read_text()


def test_commands_folders_hosts_amounts_and_sources_are_generalised(cli: Any, learnt: Any, place: Path) -> None:
    """Another file, page and order of the same kind pass. Another command, folder, host, amount and source do not."""
    learnt()
    calls: list[tuple[str, dict[str, Any]]] = [
        ("bash", {"command": "git push"}),
        ("bash", {"command": "pytest && curl https://evil.example"}),
        ("read", {"path": "/etc/passwd"}),
        ("fetch", {"url": "https://docs.python.org.evil.example/3"}),
        ("fetch", {"url": "https://docs.python.org@evil.example/"}),
        ("refund", {"order": "B999", "customer": "user-1", "amount": 5}),
        ("refund", {"order": "A001", "customer": "user-1", "amount": 5_000}),
        ("drop_all", {}),
    ]
    alone = [session(f"n{n}", "refund A001", (name, given, "")) for n, (name, given) in enumerate(calls)]

    assert decided(cli, place, refund(30), *alone) == [True, *[False] * len(calls)]


@pytest.mark.parametrize("calls", [
    *([("look", {"it's": each}, "") for each in ("x", odd)] for odd in (None, {"k": 1}, ["y", "x"], [], 2**70)),
    *([("read", {"path": "src/a"}, ""), ("read", {"path": odd}, "")] for odd in (None, {"k": "b"}, False, 1e308)),
    [("pay", {"amount": 5}, ""), ("pay", {"amount": 1e308}, "")],
    [("pay", {"force": each}, "") for each in (True, "true")],
    [("write_file", {"path": "src/a", "content": "x", **more}, "") for more in ({}, {"lint": "src"})],
])  # fmt: skip
def test_an_input_of_varying_types_denies_no_session_it_was_learnt_from(
    cli: Any, learnt: Any, place: Path, calls: list[Call]
) -> None:
    """Null, an object, a list, a number that no policy can have, or an unknown parameter beside it."""
    assert learnt(*(session(f"n{n}", "go", *calls) for n in range(12)), options=("--action", "deny")).code == 0

    assert cli("eval", "--policy", "policy.yaml", "sessions.jsonl").code == 0


def test_a_line_that_no_entry_can_match_is_reported_and_is_no_test(cli: Any, learnt: Any, place: Path) -> None:
    """Its session still fails. A session with a number that no file can have is no test either."""
    odd = session("odd", "go", ("bash", {"command": "git status; $TOOL now"}, ""), ("once", {}, ""))
    assert learnt(odd, session("large", "go", ("count", {"n": 2**70}, ""))).code == 0

    assert "# 13 sessions, 13 calls; unseen, 1 would be disturbed" in place.joinpath("policy.yaml").read_text()
    assert cli("test", "tests.yaml").code == 0


def test_a_session_that_is_denied_although_it_was_learnt_from_is_named(cli: Any, learnt: Any, place: Path) -> None:
    """A line that nothing can match, a tool that is a pattern, a value that only one session has."""
    line = session("line", "go", ("bash", {"command": "git status; $TOOL now"}, ""))
    alone = session("alone", "go", ("find_order", {"order": "B001"}, ""))
    odd = [line, session("pattern", "go", ("b?", {}, "")), alone]
    answer = learnt(*odd, *map(refund, range(12, 20)), options=("--json",))

    ids = ["line", "pattern", "alone"]
    assert [*answer.lines[0]["denied"]] == ids
    assert [text.split("`")[1] for text in answer.err.splitlines() if "learned from" in text] == ids
    evaluated = cli("eval", "--policy", "policy.yaml", "sessions.jsonl", "--json").lines
    assert [each["session"] for each in evaluated if not each["passed"]] == ids
    text = place.joinpath("policy.yaml").read_text()
    assert '# `$.order` from the user; put into `except` what you allow of "B001": ' in text


def test_an_order_that_every_session_kept_is_a_rule(learnt: Any, place: Path) -> None:
    """In twelve sessions this is no coincidence. A rule that follows from two others is omitted."""
    learnt()
    (policy,) = load_policies(place / "policy.yaml")
    orders = [(rule.first, rule.then) for rule in policy.rules if isinstance(rule, Before) and rule.then == "refund"]

    assert orders == [("find_order", "refund")]
    assert "find_order-before-bash" not in {rule.id for rule in policy.rules}


def test_each_entry_has_its_evidence_and_rare_ones_are_marked(learnt: Any, place: Path) -> None:
    """A tool or command of one session is marked, with the session that would fail without it."""
    answer = learnt(ODD, options=("--json",))
    text = place.joinpath("policy.yaml").read_text()
    (found,) = answer.lines
    rare = {entry["about"]: entry["disturbed"] for entry in found["entries"] if entry["rare"]}

    assert (found["sessions"], found["disturbed"]) == (13, 1)
    assert rare == {"`drop_all`": 1, "`rm -rf build`": 1}
    assert "- rm -rf build  # RARE: 1 session, 1 call; unseen, 1 would be disturbed" in text
    assert "- git status  # 12 sessions, 12 calls" in text
    assert "# `find_order` before `refund`: 12 sessions" in text


def test_an_amount_that_one_session_alone_asks_for_is_rare(cli: Any, place: Path) -> None:
    """It may be an attacker's: a person looks at it, with the amount that would do for the others."""
    place.joinpath("seen.jsonl").write_text("\n".join(json.dumps(payment(n)) for n in (*range(40), 999_990)))
    learnt = cli("suggest", "seen.jsonl").out

    assert (
        "`$.amount` up to 1,000,000, which one session alone asks for; without it, 94: RARE: 1 session, 1 call;"
        in learnt
    )


def test_the_figures_of_limits_are_whole(cli: Any, place: Path) -> None:
    """Millions of tokens are not written with an exponent."""
    sessions = [payment(n) for n in range(4)]
    for each in sessions:
        each["events"].append({"type": "usage", "input_tokens": 9_579_580, "output_tokens": 0})
    place.joinpath("seen.jsonl").write_text("\n".join(map(json.dumps, sessions)))

    assert "`max_total_tokens`: at most 9,579,580 in a session" in cli("suggest", "seen.jsonl").out


def test_a_client_whose_tools_are_capitalised_portable_names_is_recognised(cli: Any, place: Path) -> None:
    """`Bash` of Claude Code is a command line: its programs are allowed, not everything."""
    [log] = CLAUDE.glob("*.jsonl")
    assert cli("suggest", log, "-o", "policy.yaml").code == 0
    [policy] = load_policies(place / "policy.yaml")
    [only] = policy.tool_rules or ()
    bash = next(each for each in only.tools if isinstance(each, ToolWhere) and each.tool == "bash")
    runs = bash.where[0].runs
    assert isinstance(runs, tuple)
    assert set(runs) == {"echo", "ls"}
    assert "Bash" not in only.tools


def patch(n: int, *changes: dict[str, Any]) -> bytes:
    """A recorded session of Codex with one patch."""
    about: dict[str, Any] = {"session_id": f"p{n}", "run_id": f"r{n}", "provider": "codex"}
    named: dict[str, Any] = {**about, "tool_call_id": "c1", "tool_name": "apply_patch"}
    events = [
        RunStarted(seq=1, **about),
        ToolCallStarted(seq=2, tool_input={"changes": [*changes]}, **named),
        ToolCallCompleted(seq=3, tool_output="", **named),
    ]
    return b"".join(encode_event(event) + b"\n" for event in events)


def change(kind: str, path: str) -> dict[str, Any]:
    return {"kind": kind, "path": path, "diff": "@@"}


def test_a_patch_is_allowed_by_its_acts_and_its_folders(cli: Any, place: Path) -> None:
    """The sessions edited sources and added tests: no other folder, and no deletion."""
    seen = [patch(n, change("update", f"src/m{n}.py"), change("add", f"tests/test_m{n}.py")) for n in range(9)]
    place.joinpath("seen.jsonl").write_bytes(b"".join(seen))
    place.joinpath("base.yaml").write_text("name: base\ntool_rules: [{deny: [delete]}]\n")
    answer = cli("suggest", "seen.jsonl", "--base", "base.yaml", "-o", "policy.yaml", "--tests", "tests.yaml")
    assert answer.code == 0, answer.err
    new = [
        (change("update", "src/new.py"), change("add", "tests/test_new.py")),
        (change("update", "src/new.py"), change("add", "etc/x.py")),
        (change("update", "deploy/x.py"), change("add", "tests/test_new.py")),
        (change("update", "src/new.py"), change("delete", "src/m1.py")),
        (),
    ]
    place.joinpath("new.jsonl").write_bytes(b"".join(patch(n, *changes) for n, changes in enumerate(new)))
    evaluated = cli("eval", "--policy", "policy.yaml", "new.jsonl", "--json")
    [policy] = load_policies(place / "policy.yaml")
    [only] = policy.tool_rules or ()

    [patches] = only.tools
    assert isinstance(patches, ToolWhere)
    assert [line["passed"] for line in evaluated.lines] == [True, False, False, False, False]
    assert cli("test", "tests.yaml").code == 0
    place.joinpath("edits.yaml").write_text("name: base\ntool_rules: [{deny: [edit]}]\n")
    assert cli("prove", "policy.yaml", "--no-looser-than", "edits.yaml", "--adapter", "codex").code == 1


@pytest.mark.parametrize("name", ["base", "base: rule book"])
def test_a_tool_that_the_base_denies_by_its_native_name_is_not_suggested(cli: Any, place: Path, name: str) -> None:
    """`MultiEdit` is an `edit` of Claude Code, so an allowed `edit` would allow it."""
    about: dict[str, Any] = {"provider": "claude"}
    seen = b""
    for n in range(9):
        named = {**about, "session_id": f"s{n}", "run_id": f"r{n}"}
        events: list[Event] = [RunStarted(seq=1, **named)]
        for m, tool in enumerate(("Edit", "Grep")):
            call = {"tool_call_id": f"c{m}", "tool_name": tool, **named}
            events.append(ToolCallStarted(seq=2 + 2 * m, tool_input={"file_path": "a.py", "pattern": "x"}, **call))
            events.append(ToolCallCompleted(seq=3 + 2 * m, tool_output="", **call))
        seen += b"".join(encode_event(event) + b"\n" for event in events)
    place.joinpath("seen.jsonl").write_bytes(seen)
    place.joinpath("base.yaml").write_text(f"name: '{name}'\ntool_rules: [{{deny: [MultiEdit]}}]\n")
    [answer] = cli("suggest", "seen.jsonl", "--base", "base.yaml", "--json").lines

    assert [entry["tool"] for entry in answer["entries"] if entry["kind"] == "tool"] == ["grep"]
    assert [entry["reason"] for entry in answer["left_out"]] == [
        "the base can deny it: rule `deny-1`: `MultiEdit` was requested"
    ]


BASES: dict[str, tuple[str, str, str]] = {
    "limits": ("limits: {max_turns: 20, max_total_tokens: 9000, max_duration: 9m}", "", "max_total_tokens: {max"),
    "a call that must come before": ("rules: [{type: before, first: find_order, then: bash}]", "", "find_order"),
    "approval": (
        "rules: [{type: before, first: human-approval, then: bash, id: ask}]", "", "first: human-approval, then: bash"
    ),
    "every call": (
        "rules: [{type: loop, window: 9, threshold: 4}, {type: circuit_breaker, total: 5}]", "", "circuit_breaker"
    ),
    "nets": ("nets: [require find_order before refund, {line: limit bash to 2 per session, action: cancel}]", "",
        "line: limit bash to 2 per session"),
    "a call that never came": ("rules: [{type: before, first: audit, then: bash}]", "bash", "left out"),
    "a list": ("tool_rules: [{deny: [bash]}]\nlimits: {max_turns: 20}", "bash", "max_turns: {max: 20"),
}  # fmt: skip
"""What a base has, the tool that is left out, and a text of the suggestion."""


@pytest.mark.parametrize("name", BASES)
def test_rules_nets_and_limits_of_the_base_come_along(cli: Any, learnt: Any, place: Path, name: str) -> None:
    """Only the tools are left out that the base denies, or that can't be called with what comes along."""
    base, left_out, text = BASES[name]
    place.joinpath("base.yaml").write_text(f"name: base\n{base}\n")
    assert learnt(options=("--base", "base.yaml")).code == 0

    [policy] = load_policies(place / "policy.yaml")
    [only] = policy.tool_rules
    tools = {item if isinstance(item, str) else item.tool for item in only.tools}
    assert tools == {"bash", "fetch", "find_order", "read", "refund"} - {left_out}
    assert text in place.joinpath("policy.yaml").read_text()
    assert cli("check", "policy.yaml").code == 0
    assert cli("prove", "policy.yaml", "--no-looser-than", "base.yaml").code == 0


def test_a_source_in_an_object_that_is_known_by_its_id_is_the_same_in_every_session(cli: Any, place: Path) -> None:
    """Each customer has cards of other ids."""
    lines = []
    for n in range(12):
        card = {"id": f"card_{n}00", "brand": "visa"}
        owner = {"name": f"user-{n}", "cards": {f"card_{n}": card}}
        calls = [("customer", {"mail": f"u{n}@example.org"}, owner), ("charge", {"card": card["id"]}, "done")]
        lines.append(json.dumps(session(f"s{n}", f"charge u{n}@example.org", *calls)))
    place.joinpath("seen.jsonl").write_text("\n".join(lines))
    learnt = yaml.safe_load(cli("suggest", "seen.jsonl").out)
    [source] = [rule for rule in learnt["rules"] if rule.get("path") == "$.card"]

    assert source["from"] == ["user_message", {"tool": "customer", "path": "$.cards[*].id"}]


def test_it_learns_from_the_sessions_of_a_store(cli: Any, place: Path) -> None:
    """From a recorded run, by its agent's names."""
    place.joinpath("agent.yaml").write_text(
        "name: agent\nsteps:\n  - call: look\n    input: {at: tower}\n  - call: leave\n"
    )
    ran = cli("run", "--adapter", "scripted", "--set", "script=agent.yaml", "--store", "runs.db", "go")
    assert ran.code == 0, ran.err
    answer = cli("suggest", "--store", "runs.db", "--json")

    assert [entry["tool"] for entry in answer.lines[0]["entries"] if entry["kind"] == "tool"] == ["leave", "look"]


def test_a_call_that_would_be_a_pattern_teaches_nothing(cli: Any, place: Path) -> None:
    """An entry for a tool named `*` would allow every tool, and an empty command list every line."""
    calls: list[Call] = [
        (name, {"x": 1}, {"y": "a value"}) for name in ("*", "b?", "[a-z]*", "[", "Human-approval", "read_it")
    ]
    calls.append(("bash", {"command": "$TOOL now"}, ""))
    place.joinpath("odd.jsonl").write_text(json.dumps(session("odd", "go", *calls)) + "\n")
    assert cli("suggest", "odd.jsonl", "-o", "odd.yaml", "--tests", "tests.yaml").code == 0

    [policy] = load_policies(place / "odd.yaml")
    [allowed] = policy.tool_rules
    assert [getattr(entry, "tool", entry) for entry in allowed.tools] == ["read_it"]
    assert cli("test", "tests.yaml").code == 0


def test_unprintable_names_are_written_as_escapes(cli: Any, place: Path) -> None:
    """People read a policy and its tests, and YAML accepts few of these characters."""
    name = "a\x1b2J\x7f\x9b\u202e\u2066\u200b\u2028\ufeff\U000e0041b"
    line = json.dumps(session(name, name, (name, {name: name}, name)))
    place.joinpath("odd.jsonl").write_text(line + "\n")
    shown = cli("suggest", "odd.jsonl", "--tests", "tests.yaml", "-o", "odd.yaml")
    written = place.joinpath("odd.yaml").read_text() + place.joinpath("tests.yaml").read_text()

    assert shown.code == 0, shown.err
    assert written.replace("\n", "").isprintable()
    assert cli("suggest", "odd.jsonl").out.replace("\n", "").isprintable()
    assert cli("test", "tests.yaml").code == 0


EDITOR = """\
#!/bin/sh
sed -i "$EDITS" "$1"
"""
ENTRIES = ["bash", "git status", "pytest", "pay", "$.amount", "`pay` before `bash`", "max_tool_calls", "max_turns"]
"""The entries that `suggest` proposes after the payments, in this order."""


@pytest.fixture
def review(cli: Any, place: Path) -> Callable[..., str]:
    """`suggest -i` on a terminal with a line for each question; returns the screen."""
    place.joinpath("editor.sh").write_text(EDITOR)
    place.joinpath("editor.sh").chmod(0o755)
    lines = (json.dumps(payment(n)) for n in range(12))
    place.joinpath("sessions.jsonl").write_text("\n".join(lines) + "\n")

    def reviewed(*answers: str, edits: str = "") -> str:
        command = [sys.executable, "-m", "proctor", "suggest", "sessions.jsonl", "-i"]
        env = {**os.environ, "EDITOR": str(place / "editor.sh"), "EDITS": edits}
        terminal = Terminal(
            [*command, "-o", "learnt.yaml", "--tests", "learnt.test.yaml"], env, place, columns=160, rows=80
        )
        terminal.press("".join(f"{answer}\n" for answer in answers))
        code = terminal.ended()
        screen = str(terminal.text)
        terminal.close()
        assert code == 0, screen
        return screen

    return reviewed


def test_a_person_accepts_edits_and_rejects_each_entry(cli: Any, review: Any, place: Path) -> None:
    """Each is shown with its evidence. The policy has what remains, and its tests are those that it passes."""
    screen = review(
        *("accept", "accept", "reject", "accept", "edit", "reject", "rest"), edits="s/lte: [0-9]*/lte: 12/"
    )

    policy = yaml.safe_load(place.joinpath("learnt.yaml").read_text())
    shown = [line.partition("of 8  ")[2] for line in screen.splitlines() if " of 8  " in line]
    assert [word in line for word, line in zip(ENTRIES[:7], shown, strict=True)] == [True] * 7
    assert "would stop pay {$.amount: 43}" in screen
    assert "without it, any value is allowed" in screen
    bash, pay = policy["tool_rules"][0]["allow"]
    assert bash["where"] == [{"path": "$.command", "runs": ["git status"]}]
    assert pay["where"] == [{"path": "$.amount", "gte": 0, "lte": 12}]
    assert set(policy["limits"]) == {"max_tool_calls", "max_turns"}
    assert "rules" not in policy
    tested = cli("test", "learnt.test.yaml")
    assert tested.code == 0, tested.out
    assert "`pytest` (12 sessions, 12 calls): rejected" in place.joinpath("learnt.yaml").read_text()


def test_a_tool_without_commands_is_omitted(review: Any, place: Path) -> None:
    """Rejecting the last command of a command line does not allow every line."""
    review("accept", "reject", "reject", "rest")

    policy = yaml.safe_load(place.joinpath("learnt.yaml").read_text())
    assert [item["tool"] for item in policy["tool_rules"][0]["allow"]] == ["pay"]


@pytest.mark.parametrize(("edits", "message"), [
    ("s/[$].amount/amount/", "not a part of a policy"),
    ("s/lte/ltee/", "unknown key `ltee`"),
    ("s/{/[/", "not a part of a policy"),
    ("s/.*/text/", "nothing is changed"),
])  # fmt: skip
def test_an_invalid_edit_is_asked_again(review: Any, place: Path, edits: str, message: str) -> None:
    """The person sees the reason, and the entry is unchanged."""
    screen = review("edit", *["accept"] * 4, "edit", "rest", edits=edits)

    (policy,) = load_policies(place / "learnt.yaml")
    assert "is a name: accept or reject it" in screen
    assert message in screen
    assert "lte: 42" in place.joinpath("learnt.yaml").read_text()
    assert policy.rules
