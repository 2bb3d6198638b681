"""The gate of ACP agents: what they ask before they act, and how they are answered."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from proctor.adapters.agents.acp.translation import CALLED_SEARCHES
from proctor.policies import ToolCall, parse_policies
from proctor.policies.events import Event, RunCompleted, ToolCallFailed, ToolCallRequested, ToolCallStarted
from proctor.supervisor import GateAnswer, run_once

pytestmark = pytest.mark.anyio
ALWAYS_ONLY = [{"optionId": "always", "kind": "allow_always"}, {"optionId": "no", "kind": "reject_once"}]
NOTHING = [{"optionId": "always", "kind": "allow_always"}, {"optionId": "never", "kind": "reject_always"}]


def refusing(*ids: str, **answer: Any) -> Callable[[ToolCall], Any]:
    """A gate that denies these calls."""

    async def gate(call: ToolCall) -> GateAnswer:
        return GateAnswer(allowed=call.id not in ids, **(answer if call.id in ids else {}))

    return gate


async def test_an_answer_covers_only_its_call(scripts: Any, touch: Any) -> None:
    """Of the offered options, `always` is never chosen."""
    done = await scripts.run(scripts.adapter(touch("a"), touch("b")), answer=refusing("c-b"))

    assert scripts.outcomes() == ["once", "no"]
    assert scripts.made() == ["a"]
    assert [event.type for event in done.events if "tool_call" in event.type] == ["tool_call_completed"]


@pytest.mark.parametrize(("options", "message"), [(ALWAYS_ONLY, "no"), (NOTHING, "cancelled")])
async def test_a_call_that_cannot_be_allowed_alone_is_denied(
    scripts: Any, touch: Any, options: list[dict[str, str]], message: str
) -> None:
    """It is not denied permanently either."""
    done = await scripts.run(scripts.adapter(touch("a", options=options)))

    assert (scripts.outcomes(), scripts.made()) == ([message], [])
    (failed,) = [event for event in done.events if isinstance(event, ToolCallFailed)]
    assert failed.error == {"message": "not run: the agent cannot permit one call"}


CLAUDES = {"_meta": {"claudeCode": {"toolName": "Bash"}}, "rawInput": {"command": "x"}}
DIFF = {"path": "/w/b", "oldText": "", "newText": "x"}
EDIT = {"locations": [{"path": "/w/b"}], "content": [{"type": "diff", **DIFF}]}
WRITING = {"title": "Writing", "locations": ["/w/b"], "diffs": [{"path": "/w/b", "old_text": "", "new_text": "x"}]}
NAMED: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"title": "touch a", "run": "touch a"}, "execute", {"command": "touch a"}),
    ({"title": "ls", "kind": "execute"}, "execute", {"title": "ls"}),
    ({"title": "docs_lookup", "kind": "other"}, "docs_lookup", {"title": "docs_lookup"}),
    ({"title": "write (pay MCP Server)", "kind": "other"}, "mcp__pay__write", {"title": "write (pay MCP Server)"}),
    ({"title": "look this up", "kind": "other"}, "other", {"title": "look this up"}),
    *(({"title": name, "kind": "search"}, name, {"title": name}) for name in CALLED_SEARCHES),
    ({"kind": "execute", "fields": CLAUDES}, "Bash", {"command": "x"}),
    ({"title": "Writing", "kind": "edit", "fields": EDIT}, "edit", WRITING),
]


@pytest.mark.parametrize("announced", [True, False])
async def test_names_and_inputs_do_not_depend_on_the_models_text(scripts: Any, touch: Any, announced: bool) -> None:
    """A call's name is its kind, as its title is often a command. The fields of a question override those of the
    announcement; missing ones are kept.
    """
    calls = [{"call": f"c{number}", "announced": announced, **call} for number, (call, _, _) in enumerate(NAMED)]
    question = {"rawInput": {"command": "touch b"}, "title": None, "kind": "other"}
    over = touch("a", fields={"rawInput": {"command": "touch a", "cwd": "/w"}}, question=question)
    done = await scripts.run(scripts.adapter(*calls, over))

    proposed = [(call.name, call.input) for call in done.proposed]
    assert proposed[:-1] == [(name, tool_input) for _, name, tool_input in NAMED]
    assert proposed[-1] == ("execute", {"command": "touch b", "cwd": "/w"})


async def test_a_second_question_with_another_input_is_a_separate_call(scripts: Any, touch: Any) -> None:
    """Denying it denies the whole call, and its allowed part has failed. The same question is the same call."""
    folder = {"call": "c-a", "title": "/etc", "kind": "other", "fields": {"rawInput": {"parentDir": "/etc"}}}
    both = {"together": [touch("a", question=folder["fields"]), touch("a")]}
    done = await scripts.run(scripts.adapter(both, touch("b"), touch("b")))

    assert [call.id for call in done.proposed] == ["c-a", "c-a:2", "c-b", "c-b"]
    assert done.proposed[0].input == {"command": "touch a", "parentDir": "/etc"}
    assert done.proposed[1].input == {"command": "touch a"}


async def test_a_call_without_a_question_is_reported_while_it_runs(scripts: Any, touch: Any) -> None:
    """So a policy can cancel it."""
    adapter = scripts.adapter(touch("a", run="tail -f /dev/null", asks=False), adapter={"unasked_s": 0.05})
    done = await scripts.run(adapter, cancel_when=lambda event: isinstance(event, ToolCallStarted))

    assert [event.type for event in done.events if "tool_call" in event.type] == [
        "tool_call_started",
        "tool_call_failed",
    ]


async def test_a_call_with_the_id_of_an_earlier_one_is_reported_while_it_runs(scripts: Any, touch: Any) -> None:
    """Each is watched by itself."""
    calls = touch("a", asks=False), touch("a", run="tail -f /dev/null", asks=False)
    started: list[dict[str, Any]] = []

    def both(event: Event) -> bool:
        started.extend([event.tool_input] if isinstance(event, ToolCallStarted) else ())
        return len(started) == 2

    await scripts.run(scripts.adapter(*calls, adapter={"unasked_s": 0.05}), cancel_when=both)

    assert [given["command"] for given in started] == ["touch a", "tail -f /dev/null"]


async def test_a_call_that_waits_behind_another_question_is_not_running(scripts: Any, touch: Any) -> None:
    """Agents report a call as in progress and ask afterwards."""
    progress = {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c-b", "status": "in_progress"}}
    progress_sent = anyio.Event()

    async def slow(call: ToolCall) -> GateAnswer:
        with anyio.move_on_after(0.3):
            await progress_sent.wait()
        return GateAnswer(allowed=True)

    adapter = scripts.adapter(
        {"update": {"sessionUpdate": "tool_call", "toolCallId": "c-b", "title": "b", "kind": "execute"}},
        {"together": [touch("a")]},
        progress,
        touch("b"),
        adapter={"unasked_s": 0.1},
    )
    done = await scripts.run(adapter, answer=slow)

    assert not any(isinstance(event, ToolCallStarted) for event in done.events)


async def test_a_call_asked_about_after_its_report_is_a_new_call(scripts: Any, touch: Any) -> None:
    """The gate decides on it anyway."""
    output = [{"type": "content", "content": {"type": "text", "text": "some"}}]
    running = {"sessionUpdate": "tool_call_update", "toolCallId": "c-a", "status": "in_progress", "content": output}
    done = await scripts.run(scripts.adapter({"update": running}, touch("a")), answer=refusing("c-a:2"))

    assert [call.id for call in done.proposed] == ["c-a:2"]
    assert scripts.made() == []
    assert [event.type for event in done.events if "tool_call" in event.type] == [
        "tool_call_started",
        "tool_call_failed",
    ]


async def test_a_denial_that_cancels_sends_one_cancel(scripts: Any, touch: Any) -> None:
    """The agent gets it before the answer."""
    done = await scripts.run(scripts.adapter(touch("a"), touch("b")), answer=refusing("c-a", stop=True))

    assert len(scripts.received_messages("session/cancel")) == 1
    assert scripts.outcomes() == ["cancelled"]
    assert not any(isinstance(event, RunCompleted) for event in done.events)


async def test_the_client_side_methods_are_rejected(scripts: Any) -> None:
    """Files and terminals that the agent requests would bypass the gate."""
    methods = ("fs/write_text_file", "terminal/create", "whatever")
    done = await scripts.run(scripts.adapter(*({"ask": method} for method in methods), {"say": "end"}))

    assert [answer["error"]["code"] for answer in scripts.received_messages()] == [-32601] * 3
    assert getattr(done.events[-1], "output", None) == "end"


async def test_an_agent_that_cancels_its_turn_after_a_denial_has_not_failed(scripts: Any, touch: Any) -> None:
    """Some agents can't do anything else."""
    done = await scripts.run(scripts.adapter(touch("a"), {"stop": "cancelled"}), answer=refusing("c-a"))

    assert isinstance(done.events[-1], RunCompleted)


@pytest.mark.parametrize(("path", "made"), [("inside", ["a"]), ("secrets/key", [])])
async def test_a_patch_to_a_denied_path_does_not_run(scripts: Any, touch: Any, path: str, made: list[str]) -> None:
    """The agent sends it as text and asks once for all its paths. It is proposed by its effect."""
    text = f"*** Begin Patch\n*** Add File: b\n+x\n*** Add File: {path}\n+y\n*** End Patch"
    question = {"rawInput": {"filepath": f"b, {path}", "diff": "+x", "files": [{"filePath": "b"}]}}
    call = touch("a", kind="edit", fields={"rawInput": {"patchText": text}}, question=question)
    secret = {"tool": "write", "where": [{"path": "$.path", "within": "secrets"}]}
    rules = {"rules": [{"type": "blocklist", "tools": [secret]}], "tool_rules": [{"allow": ["write"]}]}
    policies = parse_policies({"version": 1, "name": "p", "on_violation": "deny", **rules})

    result = await run_once(scripts.adapter(call), "go", policies=policies)

    assert scripts.made() == made
    inputs = [e.tool_input for e in result.events if isinstance(e, ToolCallStarted | ToolCallRequested)]
    assert [change["path"] for change in inputs[0]["changes"]] == ["b", path]
