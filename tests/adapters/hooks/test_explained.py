"""Runs that the hook has judged, told by the commands like any other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proctor.adapters.cli import main

POLICY = """
name: mine
on_violation: deny
limits: {max_tool_calls: {max: 2, scope: session}}
tool_rules: [{deny: [WebFetch], tell_model: Use the files.}]
"""


def output_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command prints; it ends well."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code in (0, None), capsys.readouterr().err
    return capsys.readouterr().out


@pytest.fixture
def judged(session: Any) -> Any:
    """Two prompts: a call is refused in the first by a rule, in the second by what both have used."""
    session.policy.write_text(POLICY)
    session.prompt("p1", "tidy up")
    assert session.pre("c1", "WebFetch", url="https://x").verdict == "deny"
    assert session.pre("c2", command="ls").verdict == "allow"
    session.post("c2", command="ls")
    session.hook("Stop", last_assistant_message="done")
    session.prompt("p2", "and now")
    assert session.pre("c3", command="ls").verdict == "allow"
    session.post("c3", command="ls")
    assert session.pre("c4", command="ls").verdict == "deny"
    session.hook("Stop", last_assistant_message="done")
    return session


def test_each_prompt_is_a_run_whose_decisions_are_explained(judged: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """By the rule that refused, and by the state in which the prompts before had left the session."""
    runs = [json.loads(line) for line in output_of(capsys, "runs", "--json", "--store", judged.store).splitlines()]
    first, second = sorted(run["run_id"] for run in runs)
    explained = [output_of(capsys, "explain", run, "--refused", "--store", judged.store) for run in (first, second)]

    assert [run["status"] for run in runs] == ["completed", "completed"]
    assert ("WebFetch" in explained[0], "max_tool_calls" in explained[0]) == (True, False)
    assert ("WebFetch" in explained[1], "max_tool_calls" in explained[1]) == (False, True)


def test_what_is_explained_is_what_was_answered(judged: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Judged again on the record, each call has the decision that the client was told."""
    actions: dict[str, str] = {}
    for run in ("s-1", "s-2"):
        for line in output_of(capsys, "explain", run, "--json", "--store", judged.store).splitlines():
            if decision := json.loads(line).get("decision"):
                actions[decision["tool_call_id"]] = decision["action"]

    assert actions == {"c1": "deny", "c2": "allow", "c3": "allow", "c4": "deny"}
