"""An ACP agent's reports as events: the session, its model and mode, tokens and cost."""

from typing import Any

import pytest

from proctor.adapters.agents.acp.adapter import AcpAdapter
from proctor.adapters.agents.acp.connection import AgentTraits, switched
from proctor.adapters.agents.acp.translation import CostMeter, prompt_usage
from proctor.policies import events as ev
from proctor.supervisor import ProviderError, UsageError

pytestmark = pytest.mark.anyio

MODES = {"modes": {"availableModes": [{"id": "ask"}, {"id": "yolo"}], "currentModeId": "ask"}}
MODELS = {"models": {"availableModels": [{"modelId": "big"}, {"modelId": "small"}], "currentModelId": "big"}}
OPTIONS = {
    "configOptions": [{"id": "m", "category": "model", "currentValue": "big",
        "options": [{"name": "all", "options": [{"value": "big"}, {"value": "small"}]}]}],
}  # fmt: skip


def cost(amount: Any, currency: str = "USD") -> dict[str, Any]:
    """An update of the session's running cost."""
    update = {"sessionUpdate": "usage_update", "used": 5000, "size": 9000}
    return {"update": {**update, "cost": {"amount": amount, "currency": currency}}}


async def test_text_is_streamed_and_then_reported_whole(scripts: Any, touch: Any) -> None:
    """Text after an outcome belongs to a new response. Thoughts only show that the agent is alive."""
    done = await scripts.run(
        scripts.adapter({"think": "hm"}, {"say": "let "}, {"say": "me"}, touch("a"), {"say": "done"})
    )
    streamed = [event.delta for event in done.events if isinstance(event, ev.MessageStreamed)]

    assert streamed == ["", "let ", "me", "done"]
    assert [event.content for event in done.events if isinstance(event, ev.MessageReceived)] == ["let me", "done"]
    assert [event.turn for event in done.events if isinstance(event, ev.TurnStarted)] == [1, 2]
    assert getattr(done.events[-1], "output", None) == "done"


async def test_a_subagents_text_and_calls_are_no_response_of_its_parent(scripts: Any, touch: Any) -> None:
    """They belong to the call that started it. A call that ran unasked names that call too."""
    inside = {"_meta": {"claudeCode": {"parentToolUseId": "c-a"}}}
    words = {"content": {"type": "text", "text": "hm"}, **inside}
    update = {"update": {"sessionUpdate": "agent_message_chunk", **words}}
    done = await scripts.run(scripts.adapter(touch("a"), update, touch("b", asks=False, fields=inside), update))

    (started,) = [event for event in done.events if isinstance(event, ev.ToolCallStarted)]
    assert (started.tool_call_id, started.parent_tool_call_id, started.turn) == ("c-b", "c-a", 1)
    assert [event.turn for event in done.events if isinstance(event, ev.TurnStarted)] == [1]
    assert [event for event in done.events if isinstance(event, ev.MessageReceived)] == []


async def test_updates_of_unknown_kinds_are_kept_unchanged(scripts: Any) -> None:
    """Updates without information about actions are dropped."""
    plan = {"sessionUpdate": "plan", "entries": []}
    quiet = {"sessionUpdate": "available_commands_update", "availableCommands": []}
    done = await scripts.run(scripts.adapter({"update": plan}, {"update": quiet}))

    kept = [event.raw for event in done.events if isinstance(event, ev.Unrecognized)]
    assert kept == [{"type": "acp.plan", "record": plan}]


async def test_an_invalid_update_does_not_end_the_run(scripts: Any) -> None:
    """It is kept or dropped, and so is an invalid question or answer."""
    updates: list[dict[str, Any]] = [
        {"sessionUpdate": ["x"]},
        {"sessionUpdate": "tool_call", "toolCallId": "c", "kind": []},
        {"sessionUpdate": "tool_call_update", "toolCallId": {}, "status": "completed", "kind": {"a": 1}},
        {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": ["completed"]},
        {"sessionUpdate": "agent_message_chunk", "content": 3},
        {"sessionUpdate": "usage_update", "cost": {"currency": [], "amount": "x"}},
        {},
    ]
    odd = {"call": "c", "question": {"kind": [], "locations": 3}, "options": [{"kind": "allow_once"}, 3]}
    more: dict[str, Any] = {"usage": [], "_meta": []}
    steps = [step for update in updates for step in ({"update": update}, odd)]
    done = await scripts.run(scripts.adapter(*steps, {"stop": "end_turn", "fields": more}))

    assert getattr(done.events[-1], "type", None) == "run_completed"
    assert scripts.made() == []


@pytest.mark.parametrize("sent", ["at", "after"])
async def test_a_resumed_session_does_not_report_its_past(scripts: Any, sent: str) -> None:
    """Messages that the agent repeats around its answer are not reported again, and past cost is not
    counted again.
    """
    call = {
        "sessionUpdate": "tool_call",
        "toolCallId": "old",
        "title": "old",
        "kind": "execute",
        "status": "completed",
    }
    past = [{"say": "old words"}, {"update": call}, cost(3.0)]
    adapter = scripts.adapter({"say": "new"}, cost(3.5), loads=True, **{sent: {"session/load": past}})
    done = await scripts.run(adapter, resume="ses-1")

    assert [event.content for event in done.events if isinstance(event, ev.MessageReceived)] == ["new"]
    assert [event.cost_usd for event in done.events if isinstance(event, ev.TokenUsageUpdated)] == [0.5]
    assert [event.type for event in done.events if event.type.startswith("tool_call")] == []
    assert [line["params"]["sessionId"] for line in scripts.received_messages("session/load")] == ["ses-1"]


@pytest.mark.parametrize("endless", [{"say": "old words"}, {"silence": True}])
async def test_an_endless_history_is_an_error(scripts: Any, endless: dict[str, Any]) -> None:
    """Nothing separates the agent's next message from its past."""
    adapter = scripts.adapter(loads=True, at={"_proctor/history_sent": [endless]}, adapter={"start_s": 1})
    done = await scripts.run(adapter, resume="ses-1")

    assert "history of session `ses-1` within 1 s" in str(done.error)


async def test_cost_is_counted_once_over_several_runs_of_an_adapter(scripts: Any) -> None:
    """Whether or not the agent repeats its total."""
    adapter = scripts.adapter(cost(1.0), loads=True)
    totals = []
    for resume in (None, "ses-1"):
        done = await scripts.run(adapter, resume=resume)
        totals.append(sum(event.cost_usd or 0 for event in done.events if isinstance(event, ev.TokenUsageUpdated)))

    assert totals == [1.0, 0]


def test_an_adapter_knows_the_cost_of_its_latest_sessions(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker keeps one adapter for as long as it runs."""
    monkeypatch.setattr("proctor.adapters.agents.acp.adapter._MOST_COSTS", 2)
    adapter = scripts.adapter()
    for session in ("a", "b", "a", "c"):
        adapter._keep_cost(session, CostMeter(1.0))

    assert [*adapter._costs] == ["a", "c"]
    assert [adapter._cost(session).seen for session in ("a", "b")] == [1.0, None]


@pytest.mark.parametrize(("session", "chosen", "method", "params"), [
    (MODES, {"mode": "yolo"}, "session/set_mode", {"modeId": "yolo"}),
    (MODELS, {"model": "small"}, "session/set_model", {"modelId": "small"}),
    (OPTIONS, {"model": "small"}, "session/set_config_option", {"configId": "m", "value": "small"}),
])  # fmt: skip
async def test_a_model_or_mode_is_selected_before_the_prompt(
    scripts: Any, session: dict[str, Any], chosen: dict[str, str], method: str, params: dict[str, str]
) -> None:
    """The session's event has it."""
    done = await scripts.run(scripts.adapter(session=session, adapter=chosen))

    (request,) = scripts.received_messages(method)
    assert request["params"] == {"sessionId": "ses-1", **params}
    (started,) = [event for event in done.events if isinstance(event, ev.SessionStarted)]
    assert started.metadata.items() >= chosen.items()


async def test_an_unknown_mode_is_an_error(scripts: Any) -> None:
    """It names the available modes."""
    done = await scripts.run(scripts.adapter(session=MODES, adapter={"mode": "plan"}))

    assert isinstance(done.error, ProviderError)
    assert str(done.error) == "`scripted` has no mode `plan`; it offers `ask`, `yolo`"


async def test_mcp_servers_are_passed_on(scripts: Any) -> None:
    """In the protocol's format."""
    servers = [
        {"name": "docs", "command": "/bin/docs", "env": {"A": "1"}},
        {"name": "far", "url": "http://127.0.0.1/mcp", "headers": {"H": "2"}},
    ]
    await scripts.run(scripts.adapter(adapter={"mcp_servers": servers}))

    (request,) = scripts.received_messages("session/new")
    assert request["params"]["mcpServers"] == [
        {"name": "docs", "command": "/bin/docs", "args": [], "env": [{"name": "A", "value": "1"}]},
        {"type": "http", "name": "far", "url": "http://127.0.0.1/mcp", "headers": [{"name": "H", "value": "2"}]},
    ]


@pytest.mark.parametrize(("options", "message"), [
    ({"command": "opencode acp"}, "is not a list of words"),
    ({"command": []}, "is not a list of words"),
    ({"command": ["x"], "mcp_servers": [{"name": "n"}]}, r"mcp_servers\[0\]"),
    ({"command": ["x"], "mcp_servers": [{"command": "n"}]}, r"mcp_servers\[0\]"),
])  # fmt: skip
def test_invalid_arguments_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        AcpAdapter(**options)


def test_the_capabilities_of_an_agent_depend_on_its_program() -> None:
    """For unknown agents the weakest are assumed; the caller may declare more."""
    capabilities = AcpAdapter(["/usr/bin/opencode", "acp"]).capabilities
    unknown = AcpAdapter(["python", "agent.py"]).capabilities
    vouched = AcpAdapter(["python", "agent.py"], traits=AgentTraits(gate="all", usage="at_end")).capabilities

    assert (capabilities.gate, capabilities.deny_ends_turn, capabilities.reports_cost, capabilities.resume) == (
        *("some", True, True, True),
    )
    assert (unknown.gate, unknown.usage, unknown.reports_cost, unknown.resume) == ("some", "none", False, False)
    assert (vouched.gate, vouched.usage, vouched.rewrite) == ("all", "at_end", False)


@pytest.mark.parametrize(("usage", "expected"), [
    ({"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}, (10, 5, 0, 0)),
    ({"inputTokens": 10, "outputTokens": 5, "cachedReadTokens": 4, "totalTokens": 15}, (10, 5, 4, 0)),
    ({"inputTokens": 10, "outputTokens": 5, "cachedReadTokens": 4, "totalTokens": 19}, (14, 5, 4, 0)),
    ({"inputTokens": 10, "outputTokens": 5, "thoughtTokens": 3, "totalTokens": 15}, (10, 5, 0, 3)),
    ({"inputTokens": 10, "outputTokens": 5, "thoughtTokens": 3, "totalTokens": 18}, (10, 8, 0, 3)),
    ({"inputTokens": None, "outputTokens": 0}, (0, 0, 0, 0)),
])  # fmt: skip
def test_the_total_shows_which_tokens_it_includes(usage: dict[str, Any], expected: tuple[int, ...]) -> None:
    """Agents differ in whether cached tokens and thoughts are added."""
    (used,) = prompt_usage({"usage": usage}, "m")

    assert (used.input_tokens, used.output_tokens, used.cache_read_tokens, used.reasoning_tokens) == expected


def test_a_quota_is_parsed_for_each_model() -> None:
    """In Gemini's format. An agent that reports nothing has no known usage."""
    models = [{"model": "m1", "token_count": {"input_tokens": 7, "output_tokens": 2}}, {"model": "m2"}]

    used = list(prompt_usage({"_meta": {"quota": {"token_count": {"input_tokens": 9}, "model_usage": models}}}, None))

    assert [(one.model, one.input_tokens, one.output_tokens) for one in used] == [("m1", 7, 2)]
    assert list(prompt_usage({"stopReason": "end_turn"}, None)) == []
    assert list(prompt_usage({"_meta": {"quota": 3}}, None)) == []


def test_only_dollars_are_counted() -> None:
    """In a session with an unknown past, counting starts with its first report."""
    fresh, resumed = CostMeter(0.0), CostMeter(None)
    reports = [cost(1.0), cost(9.0, "EUR"), cost(1.0), cost(None), cost(1.5)]

    added = [[meter.usage_of(report["update"]) for report in reports] for meter in (fresh, resumed)]

    assert [[one and one.cost_usd for one in run] for run in added] == [
        [1.0, None, None, None, 0.5],
        [None, None, None, None, 0.5],
    ]


def test_overrides_are_added_to_an_agents_environment() -> None:
    """Last, so that they apply. A value that is not an object is an error."""
    traits = AgentTraits(switches={"X": {"task": "deny"}})

    assert switched({"X": '{"task": "allow", "bash": "ask"}'}, traits) == {"X": '{"bash":"ask","task":"deny"}'}
    assert switched({"Y": "1"}, traits) == {"Y": "1", "X": '{"task":"deny"}'}
    with pytest.raises(UsageError, match="`X` is not a JSON object"):
        switched({"X": "deny"}, traits)
