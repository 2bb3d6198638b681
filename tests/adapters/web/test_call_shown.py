"""The views of calls and events: an input is shown as a command or an edit, and no part of it is omitted."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.adapters.kit import client_tools
from proctor.adapters.operations.timeline import MOST_LINES, TimelineItems, call_shown
from proctor.adapters.operations.views import CallShown
from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall
from proctor.policies.events.run_context import Tool

PAGE = Path(__file__).parents[3] / "adapters" / "web" / "page"


def shown(name: str, input: dict[str, Any], tools: tuple[Tool, ...] = ()) -> CallShown:
    return call_shown(ToolCall(id="c", name=name, input=input), tools)


def lines(found: CallShown) -> list[str]:
    return [f"{line.mark}{line.text}" for edit in found.edits for line in edit.lines]


def test_a_command_line_is_split_into_commands() -> None:
    """As policies parse it: nested lines too, and the reason why a part is unresolvable. Codex sends a list, where a
    blank in a word does not split it.
    """
    nested = {"command": "bash -c 'rm -r x' && $TOOL y", "timeout": 5}
    (line,) = shown("Bash", nested, client_tools.CLAUDE_TOOLS).commands
    words = shown("shell", {"command": ["cat", "a b"], "workdir": "/w"}, client_tools.CODEX_TOOLS)

    assert [part.argv for part in line.parts][:2] == [("bash", "-c", "rm -r x"), ("rm", "-r", "x")]
    assert line.dynamic is not None
    assert words.commands[0].line == "cat 'a b'"
    assert words.rest == {"workdir": "/w"}


@pytest.mark.parametrize(("name", "input", "tools"), [
    ("Edit", {"file_path": "f", "old_string": "a\nb\n", "new_string": "a\nc\n"}, client_tools.CLAUDE_TOOLS),
    ("edit_file", {"path": "f", "old_str": "a\nb\n", "new_str": "a\nc\n"}, client_tools.AMP_TOOLS),
    ("edit", {"filePath": "f", "oldString": "a\nb\n", "newString": "a\nc\n"}, client_tools.ACP_TOOLS),
    ("edit", {"diffs": [{"path": "f", "old_text": "a\nb\n", "new_text": "a\nc\n"}]}, client_tools.ACP_TOOLS),
    ("MultiEdit", {"file_path": "f", "edits": [{"old_string": "a\nb\n", "new_string": "a\nc\n"}]},
        client_tools.CLAUDE_TOOLS),
])  # fmt: skip
def test_an_edit_of_every_client_is_shown_as_lines(name: str, input: dict[str, Any], tools: tuple[Tool, ...]) -> None:
    """Removed lines, added lines, and their context; together they show the whole input."""
    found = shown(name, input, tools)

    assert lines(found) == [" a", "-b", "+c"]
    assert [edit.path for edit in found.edits] == ["f"]
    assert found.rest == {}


def test_a_patch_and_a_new_file_are_shown_as_lines() -> None:
    """Codex's patches are shown unchanged; all lines of a new file are added ones, whatever they begin with."""
    patch = {"changes": [{"path": "f", "kind": "update", "diff": "@@\n-a\n+b"}]}
    found = shown("apply_patch", patch, client_tools.CODEX_TOOLS)
    new = shown("Write", {"file_path": "f", "content": "a\n\nb\n"}, client_tools.CLAUDE_TOOLS)
    added = {"changes": [{"path": "f", "kind": "add", "diff": "- a\n"}, {"path": "g", "kind": "delete", "diff": "b"}]}
    files = shown("apply_patch", added, client_tools.CODEX_TOOLS)

    assert lines(found) == ["@@@", "-a", "+b"]
    assert (found.edits[0].rest, found.rest) == ({"kind": "update"}, {})
    assert lines(new) == ["+a", "+", "+b"]
    assert lines(files) == ["+- a", "-b"]


def test_inputs_that_an_edit_does_not_show_are_listed_beside_it() -> None:
    """An unknown argument, a removed line break, another file, an edit of several, lines beyond the bound."""
    found = shown(
        "Edit",
        {"file_path": "f", "old_string": "a\n", "new_string": "a", "replace_all": True},
        client_tools.CLAUDE_TOOLS,
    )
    mixed = {"file_path": "f", "edits": [{"old_string": "a", "new_string": "b", "replace_all": True}]}
    elsewhere = {"file_path": "f", "edits": [{"path": "g", "old_string": "a", "new_string": "b"}]}
    unclear = {"file_path": "f", "edits": [{"old_string": "a", "new_string": "b"}, {"other": "c"}]}
    long = shown("write", {"path": "f", "content": "x\n" * (MOST_LINES + 5)})

    assert found.rest == {"replace_all": True}
    assert lines(found) == [" a", "+(no line break at the end)"]
    assert shown("MultiEdit", mixed, client_tools.CLAUDE_TOOLS).edits[0].rest == {"replace_all": True}
    assert shown("MultiEdit", elsewhere, client_tools.CLAUDE_TOOLS).rest == {"file_path": "f"}
    assert shown("MultiEdit", unclear, client_tools.CLAUDE_TOOLS).rest == unclear
    assert (len(long.edits[0].lines), long.edits[0].cut) == (MOST_LINES, 5)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda v: st.lists(v) | st.dictionaries(st.text(), v),
    max_leaves=8,
)
_TEXTS = ("command", "path", "content", "file_path", "old_string", "new_string")
_NAMES = st.sampled_from([*_TEXTS, "edits", "changes", "diffs", "diff", "other"])


@given(
    st.sampled_from(["bash", "write", "edit", "other", "Bash", "Edit", "apply_patch"]),
    st.dictionaries(_NAMES, _VALUES | st.lists(st.dictionaries(_NAMES, st.text()), max_size=3)),
    st.sampled_from([(), client_tools.CLAUDE_TOOLS, client_tools.CODEX_TOOLS, client_tools.ACP_TOOLS]),
)
def test_no_part_of_any_input_is_omitted(name: str, input: dict[str, Any], tools: tuple[Tool, ...]) -> None:
    """Parts outside `rest` are shown by a command, or by an edit's lines and path: every line of every text."""
    found = shown(name, input, tools)
    texts_shown = {line.text for edit in found.edits for line in edit.lines}
    texts_shown |= {line for edit in found.edits for text in texts(edit.rest) for line in text.split("\n")}
    texts_shown |= {line for edit in found.edits for line in (edit.path or "").split("\n")}
    commands = {line.line for line in found.commands}

    for key, value in input.items():
        if key not in found.rest and key != "command":
            for text in texts(value):
                assert set(text.removesuffix("\n").split("\n")) <= texts_shown | {""} or in_context(text, input), (
                    key,
                    text,
                )
        if key == "command" and key not in found.rest:
            assert commands


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in inner for text in texts(each)]


def in_context(text: str, input: dict[str, Any]) -> bool:
    """Whether a text is the same before and after, and so unchanged."""
    return texts(input).count(text) > 1 or len(text.split("\n")) > 7


CALL: dict[str, Any] = {"tool_call_id": "c", "tool_name": "Bash", "tool_input": {"command": "ls"}}
FOUND = {
    **{"policy": "p", "stack": "p", "rule": "r", "kind": "deny", "message": "it is asked about"},
    **{"action": "request_approval", "enforcement": "prevented"},
}


ANSWERS = (ev.ToolApprovalGranted, ev.ToolApprovalDenied)


@pytest.mark.parametrize(("how", "label", "answerable", "why"), [
    ({"held": True, "input_digest": "d"}, "pending", True, ("p/r: it is asked about",)),
    ({"held": False, "input_digest": "d"}, "approval", True, ()),
    ({"held": False}, "approval", False, ()),
    ({"held": True, "input_digest": "d", "ran": True}, "approval", False, ()),
    ({"held": True, "input_digest": "d", "violations": ({"x": 1},)}, "pending", True, ()),
    ({"held": True, "input_digest": "d", "violations": (), "started_by": "bo"}, "pending", True, ()),
    ({"held": True, "input_digest": "d", "violations": (), "started_by": ""}, "pending", True,
        ("nobody may answer: who started the run is not known; give its context a `user`",)),
], ids=[
    *("held", "for a later run", "of no call", "of a call that ran", "of another version", "not by one person"),
    "by nobody",
])  # fmt: skip
def test_an_approval_can_be_answered_only_while_the_answer_counts(
    how: dict[str, Any], label: str, answerable: bool, why: tuple[str, ...]
) -> None:
    """Not once the call ran. A pending call is listed with the rules that ask."""
    item = TimelineItems().of(ev.ToolApprovalRequested(**CALL, **{"approval_id": "a", "violations": (FOUND,), **how}))

    assert item is not None
    assert (item.label, item.approval_id, item.why) == (label, "a" if answerable else None, why)
    assert (item.waits, item.closed) == (label == "pending", None)


def test_the_page_gets_the_texts_of_a_call_in_separate_fields() -> None:
    """The text for the model, and how an approval was closed; the page parses no text."""
    denied = TimelineItems().of(ev.ToolCallDenied(tool_call_id="c", tell_model="no; the model is told: yes"))
    items = [TimelineItems().of(event(**CALL, approval_id="a", by="ana", reason="r")) for event in ANSWERS]
    expired = TimelineItems().of(ev.ToolApprovalExpired(**CALL, approval_id="a"))

    assert denied is not None
    assert denied.why == ("the model is told: no; the model is told: yes",)
    assert [item and item.closed for item in items] == ["approved by ana: r", "declined by ana: r"]
    assert expired is not None
    assert expired.closed == "expired: nobody answered in time"
    assert not re.search(r"\.(text|label)(\.(slice|split|replace)| [!=]==)", (PAGE / "timeline.js").read_text())


def test_a_call_that_ran_despite_its_denial_is_not_shown_as_allowed() -> None:
    """Another call with the same id is."""
    items = TimelineItems()
    wanted, started = ev.ToolCallRequested(**CALL), ev.ToolCallStarted(**CALL)
    events = (wanted, ev.ToolCallDenied(tool_call_id="c"), started, wanted, started)

    assert [item.label for item in map(items.of, events) if item] == ["asked", "denied", "ran", "asked", "allowed"]


def test_an_input_is_shown_with_a_call_whenever_it_is_new() -> None:
    """With the request, and again if another one ran."""
    items = TimelineItems()
    other = {**CALL, "tool_input": {"command": "rm"}}
    events = (ev.ToolCallRequested(**CALL), ev.ToolCallStarted(**CALL), ev.ToolCallStarted(**other))

    assert [item.tool_input for item in map(items.of, events) if item] == [{"command": "ls"}, None, {"command": "rm"}]


@pytest.mark.parametrize(("event", "tone", "text"), [
    (ev.PolicyViolated(policy="p", rule="r", message="m", enforcement="observed"), "care", "(observed)"),
    (ev.PolicyViolated(policy="p", rule="r", message="m", enforcement="prevented"), "bad", "(prevented)"),
    (ev.PolicyViolated(message="m", details={"sequence_length": "x"}), "bad", "m"),
    (ev.BudgetReserved(budget="b", counts="tool_calls", max=9, reserved=2, granted=True), "soft", "2 reserved"),
    (ev.BudgetReserved(budget="b", counts="tool_calls", max=9, granted=False), "care", "nothing can be reserved"),
    (ev.TokenUsageUpdated(input_tokens=5, scope="cumulative"), "soft", "5 in, 0 out so far"),
    (ev.TokenUsageUpdated(input_tokens=5), "soft", "+ 5 in, 0 out"),
    (ev.ToolApprovalExpired(**CALL, approval_id="a"), "care", "expired Bash: nobody answered in time"),
    (ev.ToolApprovalExpired(**CALL, approval_id="a", withdrawn=True, reason="m"), "care", "withdrawn Bash: m"),
])  # fmt: skip
def test_denied_calls_and_exhausted_limits_are_highlighted(event: ev.Event, tone: str, text: str) -> None:
    """An observed violation is no denial. A total differs from its increment."""
    item = TimelineItems().of(event)

    assert item is not None
    assert item.tone == tone
    assert text in f"{item.label} {item.text}"
