"""Subagents of the real client, enabled: their parent's policy applies to them, and their usage counts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from codex_bench import MCP_SERVER
from supervised import RecordingGate

from proctor.policies import Condition, Deny, Limits, Policy, ToolCall, ToolWhere
from proctor.policies.events import (
    Event,
    MessageReceived,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
)
from proctor.supervisor import GateAnswer, PolicyViolationError, run_once

pytestmark = [pytest.mark.anyio, pytest.mark.codex, pytest.mark.usefixtures("patient")]

TOUCH = ToolWhere(tool="shell", where=(Condition(path="$.command", regex="^touch "),))
ROLE = """
approval_policy = "never"
sandbox_mode = "danger-full-access"
developer_instructions = "be quick"
"""


class Flavour:
    """One of the client's two kinds of subagents, and the calls by which a model starts one and waits for it."""

    def __init__(self, api: Any, feature: str) -> None:
        self.feature = feature
        self._api = api

    def spawn(self, call_id: str = "spawn", **more: Any) -> dict[str, Any]:
        if self.feature == "multi_agent":
            arguments = {"namespace": "multi_agent_v1", "message": "help", **more}
        else:
            arguments = {"namespace": "collaboration", "message": "help", "task_name": "helper", **more}
        made: dict[str, Any] = self._api.call(call_id, "spawn_agent", **arguments)
        return made

    def wait(self, call_id: str = "wait") -> Any:
        if self.feature == "multi_agent_v2":
            return self._api.call(call_id, "wait_agent", namespace="collaboration", timeout_ms=20000)
        return lambda request: self._api.call(
            call_id, "wait_agent", namespace="multi_agent_v1", targets=[_agent_id(request)], timeout_ms=20000
        )


def _agent_id(request: dict[str, Any]) -> str:
    """The subagent that a conversation was told it started."""
    (output,) = (item["output"] for item in request["input"] if item["type"] == "function_call_output")
    return str(json.loads(output)["agent_id"])


@pytest.fixture(params=["multi_agent", "multi_agent_v2"])
def flavour(request: pytest.FixtureRequest, api: Any) -> Flavour:
    """Each kind of subagent."""
    return Flavour(api, request.param)


@pytest.fixture
def delegating(bench: Any, flavour: Flavour) -> Callable[..., Any]:
    """Create an adapter whose model starts a subagent with one response and waits for it with the next."""

    def make(**options: Any) -> Any:
        bench.api.reply(flavour.spawn())
        bench.api.reply(flavour.wait())
        return bench.adapter(features={flavour.feature: True}, **options)

    return make


def of_agent(calls: list[ToolCall]) -> list[tuple[str, str | None, int]]:
    """The calls that a gate was asked about: id, the subagent's starting call, turn."""
    return [(call.id, call.parent_tool_call_id, call.turn) for call in calls]


async def test_a_subagents_call_is_asked_about_as_part_of_the_call_that_started_it(
    bench: Any, delegating: Callable[..., Any]
) -> None:
    """It has that call's turn, and its tokens count once, including those that its own log has before the client
    reports them. Its start is reported as a call without a question.
    """
    api = bench.api
    api.agent_reply(api.shell("a1", "touch made"), api.shell("a2", "touch never"), used=(5000, 500))
    api.agent_reply(api.text("done"), used=(6000, 600))
    gate = RecordingGate(lambda call: GateAnswer(allowed=call.id == "a1"))
    events: list[Event] = await bench.run(gate, adapter=delegating())

    assert sorted(of_agent(gate.calls)) == [("a1", "spawn", 1), ("a2", "spawn", 1)]
    assert bench.made() == ["made"]
    assert [event.content for event in events if isinstance(event, MessageReceived)] == ["end"]
    started = [event for event in events if isinstance(event, ToolCallStarted)]
    assert [event.tool_name for event in started] == ["spawn_agent", "wait_agent"]
    completed = [event for event in events if isinstance(event, ToolCallCompleted)]
    assert [event.tool_name for event in completed if event.unfinished] == ["spawn_agent"]
    reports = [event for event in events if isinstance(event, TokenUsageUpdated)]
    assert sum(report.input_tokens for report in reports) == 3 * 100 + 5000 + 6000
    assert sum(report.output_tokens for report in reports) == 3 * 20 + 500 + 600
    assert sum(report.subagent_tokens for report in reports) == 5000 + 500 + 6000 + 600


@pytest.mark.parametrize(("policy", "broken"), [
    (Policy(name="p", limits=Limits(max_total_tokens=3000)), ("max_total_tokens", "interrupted")),
    (Policy(name="p", tool_rules=(Deny((TOUCH,)),)), ("deny", "prevented")),
], ids=["a limit", "a rule"])  # fmt: skip
async def test_the_parents_policy_ends_the_run_before_the_subagents_call(
    bench: Any, delegating: Callable[..., Any], policy: Policy, broken: tuple[str, str]
) -> None:
    """If a response exceeds the tokens or violates a rule, none of its calls runs."""
    bench.api.agent_reply(bench.api.shell("a1", "touch made"), used=(5000, 500))
    bench.run_ids.append("run-ended")
    with pytest.raises(PolicyViolationError) as caught:
        await run_once(delegating(), "go", policies=[policy], run_id="run-ended")

    assert [(violation.kind, violation.enforcement) for violation in caught.value.violations] == [broken]
    assert bench.made() == []
    assert bench.survivors() == []


async def test_a_denial_that_stops_a_subagent_interrupts_the_main_turn(
    bench: Any, delegating: Callable[..., Any]
) -> None:
    """Cancelling the subagent's turn would not end the run."""
    bench.api.agent_reply(bench.api.shell("a1", "touch made"))
    at_the_gate = anyio.Event()

    def stop(call: ToolCall) -> GateAnswer:
        at_the_gate.set()
        return GateAnswer(allowed=False, stop=True)

    async with bench.watched(RecordingGate(stop), adapter=delegating()) as run:
        await at_the_gate.wait()
        await run.interrupt()

    assert bench.made() == []
    assert bench.survivors() == []


async def test_a_cancel_ends_the_command_of_a_subagent(bench: Any, delegating: Any, pipe: Any) -> None:
    """Interrupting only the main turn would leave the subagent working."""
    bench.api.agent_reply(bench.api.shell("a1", f"echo up > {pipe}; sleep 80005 & sleep 80005", yield_time_ms=30000))
    async with bench.watched(adapter=delegating()) as run:
        await pipe.heard()
        await run.interrupt()

    assert "a1" in [event.tool_call_id for event in run.seen if isinstance(event, ToolCallFailed)]
    assert bench.survivors() == []


async def test_the_end_of_the_turn_ends_working_subagents(bench: Any, flavour: Flavour, pipe: Any) -> None:
    """A subagent that the agent does not wait for does not outlive its run."""
    bench.api.reply(flavour.spawn())
    bench.api.reply(bench.api.shell("listen", f"cat {pipe}"))
    bench.api.agent_reply(bench.api.shell("a1", f"echo up > {pipe}; sleep 80006", yield_time_ms=30000))
    events = await bench.run(adapter=bench.adapter(features={flavour.feature: True}))

    assert events[-1].type == "run_completed"
    assert bench.survivors() == []


async def test_a_subagents_command_stays_in_the_sandbox(bench: Any, delegating: Any) -> None:
    """Its model's calls are in a log of their own."""
    escalated = {"sandbox_permissions": "require_escalated", "justification": "must"}
    bench.api.agent_reply(bench.api.shell("a1", "touch inside"), bench.api.shell("a2", "touch outside", **escalated))
    gate = RecordingGate()
    await bench.run(gate, adapter=delegating(sandbox="workspace-write"))

    assert {call.id: call.input.get("escalated") for call in gate.calls} == {"a1": None, "a2": True}
    assert bench.made() == ["inside"]


async def test_a_subagents_mcp_calls_are_asked_about(
    bench: Any, delegating: Callable[..., Any], tmp_path: Path
) -> None:
    """Its servers ask as its parent's do, whatever the client's settings are."""
    server = MCP_SERVER | {"default_tools_approval_mode": "approve"}
    bench.api.agent_reply(bench.api.call("a1", "read", namespace="mcp__small", path=str(tmp_path / "read")))
    gate = RecordingGate(lambda call: GateAnswer(allowed=False))
    await bench.run(gate, adapter=delegating(config={"mcp_servers.small": server}))

    assert [(call.name, call.parent_tool_call_id) for call in gate.calls] == [("mcp__small__read", "spawn")]
    assert not (tmp_path / "read").exists()


async def test_a_role_configured_not_to_ask_asks(bench: Any) -> None:
    """The settings of a subagent's role do not weaken those of the run."""
    flavour = Flavour(bench.api, "multi_agent")
    (bench.home / "role.toml").write_text(ROLE)
    role = {"description": "quick", "config_file": str(bench.home / "role.toml")}
    bench.api.reply(flavour.spawn(agent_type="loose"))
    bench.api.reply(flavour.wait())
    bench.api.agent_reply(bench.api.shell("a1", "touch made"))
    gate = RecordingGate(lambda call: GateAnswer(allowed=False))
    await bench.run(gate, adapter=bench.adapter(features={"multi_agent": True}, config={"agents.loose": role}))

    assert of_agent(gate.calls) == [("a1", "spawn", 1)]
    assert bench.made() == []


async def test_a_policy_that_denies_subagents_removes_them(bench: Any, flavour: Flavour) -> None:
    """Before the model could start one."""
    adapter = bench.adapter(features={flavour.feature: True})
    options = adapter.compile(Policy(name="p", tool_rules=(Deny(("spawn_agent",)),)))
    bench.api.reply(flavour.spawn())
    events = await bench.run(adapter=adapter, options=options)

    assert options.expressed == ("deny spawn_agent",)
    assert not any(isinstance(event, ToolCallStarted) for event in events)
    assert not {"collaboration", "tool_search"} & set(bench.api.offered())


async def test_subagents_enabled_in_the_clients_settings_stay_disabled(bench: Any, flavour: Flavour) -> None:
    """Only the adapter's own `features` enable them."""
    (bench.home / "config.toml").write_text(f"[features]\n{flavour.feature} = true\n")
    adapter = bench.adapter()
    await bench.run(adapter=adapter)

    assert adapter.capabilities.gate == "all"
    assert bench.adapter(features={flavour.feature: True}).ungated == ["agents are started without asking"]
    assert not {"collaboration", "tool_search"} & set(bench.api.offered())


async def test_a_newer_model_has_no_subagents_unless_the_caller_enables_them(bench: Any) -> None:
    """The client's list of models enables them for newer ones, whatever its features are. A script has no subagent
    tool that is not asked about.
    """
    bench.api.reply(bench.api.call("c", "spawn_agent", namespace="collaboration", task_name="t", message="help"))
    bench.api.reply(bench.api.scripted("names", "text(ALL_TOOLS.map(tool => tool.name))"))
    events = await bench.run(adapter=bench.adapter(model="gpt-6-sol"))
    in_script = bench.api.result_of("names")
    named = [name for name in ("exec_command", "view_image", "goal", "agent") if name in in_script]

    assert not any(isinstance(event, ToolCallStarted) for event in events)
    assert "collaboration" not in bench.api.offered()
    assert named == ["exec_command"]
