"""`supervise`: an agent loop as a block of code; its calls, its limits, its end."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.lowlevel import checkpoint

from proctor.adapters import FunctionAdapter, ToolRefused, supervise
from proctor.policies import Deny, Limits, Policy, parse_policies
from proctor.policies.events import RunCompleted, ToolCallCompleted, ToolCallStarted
from proctor.policies.events.calls import ToolCall
from proctor.supervisor import ApprovalAnswer, ApprovalRequest, Redaction, RunResult, UsageError

pytestmark = pytest.mark.anyio

OPEN = Policy(name="open")
NO_RM = Policy(name="no-rm", tool_rules=(Deny(("rm",), action="deny"),))


def types(result: RunResult) -> list[str]:
    return [event.type for event in result.events]


async def test_an_allowed_call_runs_and_a_denied_one_does_not(tmp_path: Path) -> None:
    """The loop gets the text for the model, and continues."""
    async with supervise([NO_RM], prompt="tidy up") as gate:

        @gate.tool
        async def make(path: str) -> str:
            await anyio.Path(tmp_path / path).touch()
            return path

        @gate.tool
        def rm(path: str) -> None:
            (tmp_path / path).unlink()

        assert await make("a") == "a"
        with pytest.raises(ToolRefused) as caught:
            await rm("a")
        gate.output = {"left": "a"}

    assert (tmp_path / "a").exists()
    assert caught.value.tell_model == "Tool 'rm' is not available in this context."
    assert caught.value.call.input == {"path": "a"}
    assert (gate.result.status, gate.result.output) == ("completed", {"left": "a"})
    assert [(v.tool_name, v.enforcement) for v in gate.result.policy.violations] == [("rm", "prevented")]
    assert types(gate.result).count("tool_call_denied") == 1


async def test_a_block_has_the_options_of_any_run() -> None:
    """Functions of nets, resuming, redaction and recording limits, checked as `run_once` checks them."""
    net = "limit rm to 3 per session"
    refused: list[str] = []

    def validate(call: ToolCall, *_: Any) -> str:
        refused.append(call.name)
        return "not today"

    policy = Policy(name="p", on_violation="deny", nets=[net])
    options: dict[str, Any] = {"continuation": "none", "redaction": Redaction(off=True), "max_messages": 9}
    async with supervise([policy], validators={net: validate}, **options) as gate:

        @gate.tool
        def rm() -> None:
            raise AssertionError

        with pytest.raises(ToolRefused):
            await rm()

    assert refused == ["rm"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"validator": {}}, "`supervise` takes no `validator`; did you mean `validators`"),
        ({"mappers": 3}, "`mappers` is not a mapping"),
        ({"max_events": 0}, "max_events is 0"),
        ({"policies": ()}, "`policies` is given twice"),
    ],
)
async def test_an_unknown_option_is_an_error(wrong: dict[str, Any], message: str) -> None:
    """Before anything starts, with a suggestion."""
    with pytest.raises(UsageError, match=message):
        async with supervise([OPEN], **wrong):
            raise AssertionError


async def test_a_denial_can_be_returned_as_the_result() -> None:
    """For loops that pass every result to the model."""
    async with supervise([NO_RM]) as gate:

        @gate.tool(name="rm", refused="tell")
        def remove(path: str) -> str:
            raise AssertionError

        result = await remove(path="a")

    assert result == "Tool 'rm' is not available in this context."


async def test_parallel_calls_cannot_exceed_a_limit_together() -> None:
    """Two of five run."""
    ran: list[int] = []
    policy = Policy(name="p", limits=parse_limits({"max_tool_calls": {"max": 2, "action": "deny"}}))
    async with supervise([policy]) as gate:

        @gate.tool(refused="tell")
        async def work(n: int) -> None:
            ran.append(n)
            await checkpoint()

        async def one(n: int) -> None:
            await work(n)

        async with anyio.create_task_group() as tasks:
            for n in range(5):
                tasks.start_soon(one, n)

    assert len(ran) == 2
    assert types(gate.result).count("tool_call_denied") == 3


async def test_an_input_modified_while_its_call_is_pending_does_not_run() -> None:
    """The approval is for the original input, and the call runs with that."""
    policy = Policy(name="p", tool_rules=(Deny(("send",), action="request_approval"),))
    to: list[str] = ["ana"]
    sent: list[str] = []
    seen: list[dict[str, Any]] = []

    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        assert sent == []
        seen.append(request.call.input)
        to.append("eve")
        return ApprovalAnswer(granted=True, by="ana")

    async with supervise([policy], approver=approver) as gate:

        @gate.tool
        def send(to: list[str], *, copies: int = 1) -> None:
            sent.extend(to * copies)

        await send(to)

    assert sent == ["ana"]
    assert seen == [{"to": ["ana"], "copies": 1}]


async def test_a_tool_that_raises_has_failed_and_the_loop_may_continue() -> None:
    """The loop handles the exception."""
    async with supervise([OPEN]) as gate:

        @gate.tool
        def broken() -> None:
            raise KeyError("x")

        with pytest.raises(KeyError):
            await broken()

    assert "tool_call_failed" in types(gate.result)
    assert gate.result.status == "completed"


async def test_a_result_that_json_does_not_have_is_recorded_as_text() -> None:
    """The loop gets the number; its record would have said `null`."""
    async with supervise([Policy(name="p")]) as gate:

        @gate.tool
        def divide() -> dict[str, Any]:
            return {"ratio": float("nan"), "most": [float("inf"), None]}

        got = await divide()
        gate.output = got

    (ended,) = [event for event in gate.result.events if isinstance(event, ToolCallCompleted)]
    (over,) = [event for event in gate.result.events if isinstance(event, RunCompleted)]

    assert got["most"] == [float("inf"), None]
    assert ended.tool_output == over.output == {"ratio": "NaN", "most": ["Infinity", None]}


async def test_a_wrong_use_of_a_tool_is_an_error_that_says_what_to_write() -> None:
    """A tool that is not awaited has failed; an invalid input is not proposed."""
    act: Any = lambda given: "done"  # noqa: E731 - it is not an `async def`
    given: Any = None
    async with supervise([OPEN]) as gate:
        with pytest.raises(TypeError, match="it returned a value of type `str`: write it as an `async def`"):
            await gate.call("read", {}, act)
        with pytest.raises(UsageError, match="the input of `read` is a value of type `NoneType`, not a mapping"):
            await gate.call("read", given, _nothing)

    assert types(gate.result).count("tool_call_requested") == types(gate.result).count("tool_call_failed") == 1


@pytest.mark.parametrize("what", ["message", "usage", "turn", "call"])
async def test_reporting_from_another_thread_is_an_error(what: str, anyio_backend_name: str) -> None:
    """Nobody there would wake the caller."""
    given: dict[str, Any] = {"message": ("hi",), "call": ("read", {}, _nothing)}
    async with supervise([OPEN]) as gate:
        used = functools.partial(getattr(gate, what), *given.get(what, ()))
        with pytest.raises(UsageError, match="on the run's own event loop"):
            await anyio.to_thread.run_sync(functools.partial(anyio.run, used, backend=anyio_backend_name))
        await gate.message("hi")

    assert gate.result.status == "completed"
    assert types(gate.result).count("turn_started") == 1


@pytest.mark.parametrize("what", ["message", "usage", "turn", "call"])
async def test_a_call_or_a_report_after_the_block_is_an_error(what: str) -> None:
    """Nothing runs, and nothing is dropped without a word."""
    given: dict[str, Any] = {"message": ("hi",), "call": ("read", {}, _nothing)}
    async with supervise([OPEN]) as gate:
        await gate.message("hi")

    with pytest.raises(UsageError, match="the block of this gate has ended"):
        await getattr(gate, what)(*given.get(what, ()))


async def test_narrowing_hides_denied_and_exhausted_tools() -> None:
    """In the current state."""
    once = parse_policies({"name": "p", "rules": [{"type": "count", "tool": "once", "max": 1, "action": "deny"}]})
    async with supervise([NO_RM, *once]) as gate:
        before = gate.narrow(["ls", "rm", "once"])
        await gate.call("once", {}, _nothing)
        after = gate.narrow(["ls", "rm", "once"])

    assert before == ["ls", "once"]
    assert after == ["ls"]


async def test_a_call_inside_a_tool_names_that_as_its_parent() -> None:
    """The same policy applies to it."""
    async with supervise([OPEN]) as gate:

        @gate.tool
        async def inner() -> None: ...

        @gate.tool
        async def outer() -> None:
            await inner()

        await outer()
        await inner()

    started = [event for event in gate.result.events if isinstance(event, ToolCallStarted)]
    parents = [(event.tool_name, event.parent_tool_call_id) for event in started]
    assert parents == [("outer", None), ("inner", started[0].tool_call_id), ("inner", None)]


@pytest.mark.parametrize(("loop", "message"), [
    ("nowhere", "not of the form `module:name`"),
    ("os:nothing", "has no `nothing`"),
    ("no_such_x:y", "No module"),
    ("os:sep", "not a function"),
])  # fmt: skip
def test_a_loop_by_name_must_be_a_function(loop: str, message: str) -> None:
    """The error says what is wrong."""
    with pytest.raises(UsageError, match=message):
        FunctionAdapter(loop)


@pytest.mark.parametrize(("code", "message"), [
    ("raise RuntimeError('no key')", "cannot be imported: RuntimeError: no key"),
    ("def (", "cannot be imported: SyntaxError"),
    ("import os\nos.nothing", "cannot be imported: AttributeError: module 'os' has no attribute 'nothing'"),
    ("raise SystemExit(0)", "cannot be imported: RuntimeError: `SystemExit` was raised: 0"),
])  # fmt: skip
def test_a_module_that_raises_when_it_is_imported_is_named(
    code: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it raises: one that ends the program is no run that succeeded."""
    (tmp_path / "broken_agent.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(UsageError, match=re.escape(f"loop `broken_agent:x`: module `broken_agent` {message}")):
        FunctionAdapter("broken_agent:x")


async def _nothing(tool_input: dict[str, Any]) -> None:
    return None


def parse_limits(limits: dict[str, Any]) -> Limits:
    (policy,) = parse_policies({"name": "p", "limits": limits})
    return policy.limits
