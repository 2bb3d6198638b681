"""What an agent asks before it acts, and how it is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from proctor.policies.events import RunCompleted, ToolCallFailed, ToolCallStarted
from proctor.policies.events.calls import ToolCall
from proctor.supervisor.ports.adapter import GateAnswer

pytestmark = pytest.mark.anyio
ALWAYS_ONLY = [{"optionId": "always", "kind": "allow_always"}, {"optionId": "no", "kind": "reject_once"}]
NOTHING = [{"optionId": "always", "kind": "allow_always"}, {"optionId": "never", "kind": "reject_always"}]


def refusing(*ids: str, **answer: Any) -> Callable[[ToolCall], Any]:
    """A gate that refuses these calls."""

    async def gate(call: ToolCall) -> GateAnswer:
        return GateAnswer(allowed=call.id not in ids, **(answer if call.id in ids else {}))

    return gate


async def test_the_answer_is_for_this_one_call(scripts: Any, touch: Any) -> None:
    """Of the options offered, always is never picked."""
    done = await scripts.run(scripts.adapter(touch("a"), touch("b")), answer=refusing("c-b"))

    assert scripts.outcomes() == ["once", "no"]
    assert scripts.made() == ["a"]
    assert [event.type for event in done.events if "tool_call" in event.type] == ["tool_call_completed"]


@pytest.mark.parametrize(("options", "message"), [(ALWAYS_ONLY, "no"), (NOTHING, "cancelled")])
async def test_a_call_that_cannot_be_permitted_alone_is_refused(
    scripts: Any, touch: Any, options: list[dict[str, str]], message: str
) -> None:
    """Nor is it refused for ever."""
    done = await scripts.run(scripts.adapter(touch("a", options=options)))

    assert (scripts.outcomes(), scripts.made()) == ([message], [])
    (failed,) = [event for event in done.events if isinstance(event, ToolCallFailed)]
    assert failed.error == {"message": "not run: the agent cannot permit one call"}


async def test_a_call_that_must_run_with_another_input_does_not_run(scripts: Any, touch: Any) -> None:
    """The protocol has no way to rewrite."""

    async def rewriting(call: ToolCall) -> GateAnswer:
        return GateAnswer(allowed=True, input={"command": "true"})

    done = await scripts.run(scripts.adapter(touch("a")), answer=rewriting)

    assert (scripts.outcomes(), scripts.made()) == (["no"], [])
    assert any(isinstance(event, ToolCallFailed) for event in done.events)


@pytest.mark.parametrize(
    ("call", "name", "tool_input"),
    [
        ({"title": "touch a", "run": "touch a"}, "execute", {"command": "touch a"}),
        ({"title": "ls", "kind": "execute"}, "execute", {"title": "ls"}),
        ({"title": "docs_lookup", "kind": "other"}, "docs_lookup", {"title": "docs_lookup"}),
        ({"title": "look this up", "kind": "other"}, "other", {"title": "look this up"}),
        (
            {
                "kind": "execute",
                "fields": {"_meta": {"claudeCode": {"toolName": "Bash"}}, "rawInput": {"command": "x"}},
            },
            "Bash",
            {"command": "x"},
        ),
        (
            {
                "title": "Writing",
                "kind": "edit",
                "fields": {
                    "locations": [{"path": "/w/b"}],
                    "content": [{"type": "diff", "path": "/w/b", "oldText": "", "newText": "x"}],
                },
            },
            "edit",
            {
                "title": "Writing",
                "locations": ["/w/b"],
                "diffs": [{"path": "/w/b", "old_text": "", "new_text": "x"}],
            },
        ),
    ],
)
@pytest.mark.parametrize("announced", [True, False])
async def test_names_and_inputs_do_not_depend_on_what_the_model_writes(
    scripts: Any, call: dict[str, Any], name: str, tool_input: dict[str, Any], announced: bool
) -> None:
    """The kind of a call is its name; its title is a command as often as not."""
    done = await scripts.run(scripts.adapter({"call": "c1", "announced": announced, **call}))

    assert [(proposed.name, proposed.input) for proposed in done.proposed] == [(name, tool_input)]


async def test_a_question_says_more_than_its_announcement_and_goes_over_it(scripts: Any, touch: Any) -> None:
    """What it leaves open stays as announced."""
    fields = {"rawInput": {"command": "touch a", "cwd": "/w"}}
    question = {"rawInput": {"command": "touch b"}, "title": None, "kind": "other"}
    done = await scripts.run(scripts.adapter(touch("a", fields=fields, question=question)))

    assert [(call.name, call.input) for call in done.proposed] == [("execute", {"command": "touch b", "cwd": "/w"})]


async def test_a_second_question_for_something_else_is_a_call_of_its_own(scripts: Any, touch: Any) -> None:
    """Refusing it refuses the whole, and what was allowed of it has failed."""
    folder = {"call": "c-a", "title": "/etc", "kind": "other", "fields": {"rawInput": {"parentDir": "/etc"}}}
    both = {"together": [touch("a", question=folder["fields"]), touch("a")]}
    done = await scripts.run(scripts.adapter(both))

    assert [call.id for call in done.proposed] == ["c-a", "c-a:2"]
    assert done.proposed[0].input == {"command": "touch a", "parentDir": "/etc"}
    assert done.proposed[1].input == {"command": "touch a"}


async def test_the_same_question_again_is_the_same_call(scripts: Any, touch: Any) -> None:
    """It is put to the gate under its id."""
    done = await scripts.run(scripts.adapter(touch("a"), touch("a")))

    assert [call.id for call in done.proposed] == ["c-a", "c-a"]


async def test_what_runs_without_a_question_is_reported_as_started(scripts: Any, touch: Any) -> None:
    """Before its outcome, and only then."""
    done = await scripts.run(scripts.adapter(touch("a", asks=False), touch("b")))

    seen = [(event.type, event.tool_call_id) for event in done.events if "tool_call" in event.type]
    assert seen == [("tool_call_started", "c-a"), ("tool_call_completed", "c-a"), ("tool_call_completed", "c-b")]
    assert [call.id for call in done.proposed] == ["c-b"]


async def test_a_call_that_the_agent_does_not_ask_about_is_reported_while_it_runs(scripts: Any, touch: Any) -> None:
    """So that a policy can cancel it in the middle."""
    adapter = scripts.adapter(touch("a", run="tail -f /dev/null", asks=False), adapter={"unasked_s": 0.05})
    done = await scripts.run(adapter, cancel_when=lambda event: isinstance(event, ToolCallStarted))

    assert [event.type for event in done.events if "tool_call" in event.type] == [
        "tool_call_started",
        "tool_call_failed",
    ]


async def test_a_call_that_waits_behind_another_question_does_not_count_as_running(scripts: Any, touch: Any) -> None:
    """Agents say that a call is in progress, and then ask."""
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


async def test_a_call_asked_about_after_it_was_reported_is_asked_as_another(scripts: Any, touch: Any) -> None:
    """The gate holds it all the same."""
    output = [{"type": "content", "content": {"type": "text", "text": "some"}}]
    running = {"sessionUpdate": "tool_call_update", "toolCallId": "c-a", "status": "in_progress", "content": output}
    done = await scripts.run(scripts.adapter({"update": running}, touch("a")), answer=refusing("c-a:2"))

    assert [call.id for call in done.proposed] == ["c-a:2"]
    assert scripts.made() == []
    assert [event.type for event in done.events if "tool_call" in event.type] == [
        "tool_call_started",
        "tool_call_failed",
    ]


async def test_a_refusal_that_stops_cancels_the_prompt_once(scripts: Any, touch: Any) -> None:
    """The agent hears the cancel before the answer."""
    done = await scripts.run(scripts.adapter(touch("a"), touch("b")), answer=refusing("c-a", stop=True))

    assert len(scripts.received_messages("session/cancel")) == 1
    assert scripts.outcomes() == ["cancelled"]
    assert not any(isinstance(event, RunCompleted) for event in done.events)


async def test_a_gate_that_fails_stops_the_run(scripts: Any, touch: Any) -> None:
    """And says so."""

    async def broken(call: ToolCall) -> GateAnswer:
        raise RuntimeError("no answer")

    done = await scripts.run(scripts.adapter(touch("a")), answer=broken)

    assert str(done.error) == "the gate failed: no answer"
    assert scripts.made() == []


@pytest.mark.parametrize("method", ["fs/write_text_file", "terminal/create", "whatever"])
async def test_nothing_is_done_for_the_agent(scripts: Any, method: str) -> None:
    """What it asks us to do would go round the gate."""
    done = await scripts.run(scripts.adapter({"ask": method}, {"say": "end"}))

    (answer,) = scripts.received_messages()
    assert answer["error"]["code"] == -32601
    assert getattr(done.events[-1], "output", None) == "end"


async def test_a_refusal_at_which_the_agent_cancels_its_turn_is_no_failure(scripts: Any, touch: Any) -> None:
    """Some agents know no other way."""
    done = await scripts.run(scripts.adapter(touch("a"), {"stop": "cancelled"}), answer=refusing("c-a"))

    assert isinstance(done.events[-1], RunCompleted)
