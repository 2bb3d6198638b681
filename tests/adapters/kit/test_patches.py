"""Patches as text: what is read of them, and which are read for certain."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.adapters.agents.acp.translation import tool_input, tool_name
from proctor.adapters.kit.client_tools import CLIENTS, certain_changes_of
from proctor.policies import RunContext, ToolCall, compile_policy, merge_policies, parse_policies

ADDS = "*** Begin Patch\n*** Add File: new/a.txt\n+secret\n*** End Patch"
EDITS = "*** Begin Patch\n*** Update File: a\n@@ def f\n x\n-y\n+z\n\n*** End of File\n*** End Patch\n"
MOVES = "*** Begin Patch\r\n*** Update File: a\r\n*** Move to: ../b\r\n*** End Patch\r\n"
DELETES = "*** Begin Patch\n*** Delete File: /etc/a\n*** Update File: c\n@@\n-x\n*** End Patch"
INSIDE = {"not": [{"path": "$.path", "within": "."}]}


def action(rules: dict[str, Any], patch: str) -> str:
    """What becomes of opencode's call with this patch, as it is when opencode has asked about it."""
    question = {"filepath": "a, b", "diff": "x", "files": [{"filePath": "/w/a", "type": "add"}]}
    fields = {"title": "apply_patch", "kind": "edit", "rawInput": {"patchText": patch, **question}}
    written = {"version": 1, "name": "p", "on_violation": "deny", **rules}
    compiled = compile_policy(merge_policies(parse_policies(written)), tools=CLIENTS["opencode"])
    call = ToolCall(id="c", name=tool_name(fields), input=tool_input(fields))
    return compiled.monitor(RunContext(workspace="/w")).propose(call).action


@pytest.mark.parametrize(
    ("patch", "acts", "leaves"),
    [
        (ADDS, {"write"}, False),
        (EDITS, set(), False),
        (MOVES, {"move"}, True),
        (DELETES, {"delete"}, True),
    ],
)
def test_a_patch_of_an_agent_is_judged_by_what_it_does(patch: str, acts: set[str], leaves: bool) -> None:
    """By the acts, the paths and the text; its own name is `edit`, whatever it does."""
    found = {act for act in ("write", "delete", "move") if action({"tool_rules": [{"deny": [act]}]}, patch) == "deny"}
    everywhere = ["write", "edit", "delete", "move"]
    outside = {"type": "blocklist", "tools": [{"tool": everywhere, "where": [INSIDE]}]}
    text = {"type": "blocklist", "tools": [{"tool": "write", "where": [{"path": "$.content", "contains": "secret"}]}]}

    assert found == acts
    assert action({"rules": [outside]}, patch) == ("deny" if leaves else "allow")
    assert action({"rules": [text]}, patch) == ("deny" if patch == ADDS else "allow")


@pytest.mark.parametrize(
    "patch",
    [
        "",
        "no patch",
        ADDS.replace("*** End Patch", ""),
        f"cat <<'EOF'\n{ADDS}\nEOF",
        f"{ADDS}\n{ADDS}",
        ADDS.replace("File: ", "File:"),
        ADDS.replace("a.txt", "a.txt:b"),
        ADDS.replace("a.txt", "a\u2028/../../../etc/b"),
        ADDS.replace("a.txt", "a\x0b"),
        ADDS.replace("*** Add", " *** Add"),
        ADDS.replace("+secret", "+a\n ***  Add File: /etc/b"),
        ADDS.replace("+secret", "*** Move to: /etc/b"),
        ADDS.replace("+secret", "*** Rename File: /etc/b"),
        ADDS.replace("+secret", "secret"),
        DELETES.replace("@@", "*** Add File:/etc/b"),
    ],
)
def test_a_patch_that_could_be_read_in_another_way_is_understood_in_part(patch: str) -> None:
    """A deny of any act and of any path holds for it."""
    assert certain_changes_of(patch) == []
    for act in ("write", "edit", "delete", "move"):
        rule = {"type": "blocklist", "tools": [{"tool": act, "where": [INSIDE]}]}
        assert action({"tool_rules": [{"deny": [act]}]}, patch) == "deny"
        assert action({"rules": [rule]}, patch) == "deny", act


def test_a_patch_with_changes_beside_it_is_understood_in_part() -> None:
    """The agent would have said two things."""
    raw = {"patchText": ADDS, "changes": [{"path": "a", "kind": "add"}]}

    assert tool_input({"rawInput": raw}) == raw
    assert tool_input({"rawInput": {"patchText": ADDS}}) == {
        "changes": [{"path": "new/a.txt", "kind": "add", "diff": "+secret\n"}]
    }
