"""Runs as spans: the contents of a trace, and what is kept out of it."""

from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="pip install '.[otel]'")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from proctor.adapters.telemetry import OpenTelemetry, trace_metadata
from proctor.adapters.telemetry.observer import MOST_OPEN
from proctor.policies import Capabilities, Deny, Limits, Policy, PolicyViolationError, RunContext
from proctor.policies.events import TokenUsageUpdated, ToolCallStarted
from proctor.supervisor import MemoryStore, Supervisor, create_run, execute_run, run_once
from proctor.supervisor.testing import Ask, Crash, FakeAdapter, FakeApprover, Step

pytestmark = pytest.mark.anyio
SECRET = "sk-live-51hunter2"
OPEN = Policy(name="open", limits=Limits(max_tool_calls=10_000))
NO_RM = Policy(name="org", tool_rules=(Deny(("rm",)),), on_violation="deny")


class Traces:
    """An in-memory store of spans, and an observer that creates them."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def observer(self, **more: Any) -> OpenTelemetry:
        return OpenTelemetry(tracer_provider=self.provider, **more)

    def named(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith(start)]

    def one(self, start: str) -> ReadableSpan:
        (span,) = self.named(start)
        return span


@pytest.fixture
def traces() -> Traces:
    return Traces()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_run_is_a_span_with_its_decisions_and_calls_inside(traces: Traces) -> None:
    """By the conventions for generative AI."""
    steps: list[Step] = [
        TokenUsageUpdated(input_tokens=100, output_tokens=20, cache_read_tokens=40, cost_usd=0.25),
        Ask(name="read", id="c1", input={"path": "notes.txt"}),
        Ask(name="rm", id="c2"),
    ]
    context = RunContext(tenant="acme", labels={"env": "prod"})
    await run_once(FakeAdapter(steps), "go", policies=[NO_RM], context=context, publishers=[traces.observer()])
    run, call = traces.one("invoke_agent"), traces.one("execute_tool")
    allowed, denied = traces.named("run_guardrail")
    about, ran, refused = attributes(run), attributes(call), attributes(denied)

    assert (run.name, call.name, allowed.name) == ("invoke_agent fake", "execute_tool read", "run_guardrail org")
    assert run.context is not None
    assert {s.parent.span_id for s in (call, allowed, denied) if s.parent} == {run.context.span_id}
    assert about["gen_ai.operation.name"] == "invoke_agent"
    assert about["gen_ai.usage.input_tokens"] == 100
    assert about["gen_ai.usage.output_tokens"] == 20
    assert about["gen_ai.usage.cache_read.input_tokens"] == 40
    assert about["proctor.usage.cost_usd"] == 0.25
    assert (about["proctor.tenant"], about["proctor.label.env"]) == ("acme", "prod")
    assert about["proctor.run.status"] == "completed"
    assert about["gen_ai.conversation.id"] == ran["gen_ai.conversation.id"]
    assert (ran["gen_ai.tool.name"], ran["gen_ai.tool.call.id"]) == ("read", "c1")
    assert attributes(allowed)["proctor.decision"] == "allow"
    assert (refused["proctor.decision"], refused["proctor.rules"]) == ("deny", ("deny-1",))
    moments = [run.start_time, allowed.start_time, allowed.end_time, call.end_time, run.end_time]
    assert moments == sorted(moments, key=lambda at: at or 0)


async def test_no_message_input_or_output_is_on_a_span(traces: Traces) -> None:
    """Prompt, inputs, outputs, errors, reasons; only with `content` they are."""

    async def attributes(**more: Any) -> str:
        traces.exporter.clear()
        steps = [
            Ask(name="read", input={"path": SECRET}, output=SECRET),
            Ask(name="read", input={"path": "b"}, error=SECRET),
            Ask(name="rm", input={"path": SECRET}),
        ]
        observer = traces.observer(**more)
        await run_once(FakeAdapter(steps, output=SECRET), SECRET, policies=[NO_RM], publishers=[observer])
        async with Supervisor(MemoryStore(), publishers=[observer]) as supervisor:
            crashing = FakeAdapter([Ask(name="read"), Crash(RuntimeError(SECRET))])
            await supervisor.start(crashing, SECRET, policies=[NO_RM])
            ended = await supervisor.start(FakeAdapter(steps), SECRET, policies=[NO_RM])
            await ended.cancel(reason=SECRET)
        return "".join(span.to_json() for span in traces.exporter.get_finished_spans())

    assert SECRET not in await attributes()
    assert (await attributes(content=True)).count(SECRET) >= 8


async def test_an_approval_is_on_the_span_of_its_decision(traces: Traces) -> None:
    """The request and the answer, without the person."""
    policy = Policy(name="org", tool_rules=(Deny(("pay",)),), on_violation="request_approval")
    adapter = FakeAdapter([Ask(name="pay")])
    await run_once(adapter, "go", policies=[policy], approver=FakeApprover(True), publishers=[traces.observer()])
    decision = traces.one("run_guardrail")
    outcomes = [dict(e.attributes or {}) for e in decision.events if e.name == "proctor.approval"]

    assert outcomes == [{"proctor.approval.outcome": "requested"}, {"proctor.approval.outcome": "granted"}]
    assert attributes(decision)["proctor.decision"] == "request_approval"


async def test_a_run_that_a_policy_ends_is_an_error_that_names_the_rule(traces: Traces) -> None:
    """A run that a person cancelled is not an error."""
    policy = Policy(name="org", tool_rules=(Deny(("rm",)),), on_violation="cancel")
    with pytest.raises(PolicyViolationError):
        await run_once(FakeAdapter([Ask(name="rm")]), "go", policies=[policy], publishers=[traces.observer()])
    run = traces.one("invoke_agent")

    assert run.status.status_code is StatusCode.ERROR
    assert (attributes(run)["error.type"], attributes(run)["proctor.rule"]) == ("policy_violation", "deny-1")
    assert run.status.description is None


async def test_an_ungated_call_has_its_violation(traces: Traces) -> None:
    """On the call's span, as there was no decision."""
    adapter = FakeAdapter([Ask(name="rm", id="c1")], gate="none")
    with pytest.raises(PolicyViolationError):
        await run_once(adapter, "go", policies=[NO_RM], publishers=[traces.observer()])
    (event,) = traces.one("execute_tool rm").events

    assert dict(event.attributes or {})["proctor.rule"] == "deny-1"


async def test_a_run_is_part_of_its_callers_trace(traces: Traces) -> None:
    """In the same task, and by its metadata if another process starts it later."""
    tracer, store = traces.provider.get_tracer("app"), MemoryStore()
    with tracer.start_as_current_span("request") as request:
        await run_once(FakeAdapter(), "go", policies=[OPEN], publishers=[traces.observer()])
        run_id = await create_run(store, "go", metadata={"ticket": "7", **trace_metadata()})
    await execute_run(store, FakeAdapter(), run_id, policies=[OPEN], publishers=[traces.observer()])
    parents = [span.parent for span in traces.named("invoke_agent")]

    assert [parent.span_id for parent in parents if parent] == [request.get_span_context().span_id] * 2


async def test_an_invalid_trace_context_is_ignored(traces: Traces) -> None:
    """The run is the root of its own trace."""
    for given in ("", "00-zz-1-1", "x" * 10_000, 7, None, {"a": 1}):
        metadata = {"traceparent": given}
        await run_once(FakeAdapter(), "go", policies=[OPEN], metadata=metadata, publishers=[traces.observer()])

    assert [span.parent for span in traces.named("invoke_agent")] == [None] * 6


async def test_the_calls_of_a_subagent_are_inside_the_call_that_started_it(traces: Traces) -> None:
    """At any depth."""
    observer = traces.observer()
    steps = [
        ToolCallStarted(tool_call_id="task", tool_name="task"),
        ToolCallStarted(tool_call_id="inner", tool_name="read", parent_tool_call_id="task"),
    ]
    await run_once(FakeAdapter(steps, gate="none"), "go", policies=[OPEN], publishers=[observer])
    outer, inner = traces.one("execute_tool task"), traces.one("execute_tool read")

    assert inner.parent is not None
    assert outer.context is not None
    assert inner.parent.span_id == outer.context.span_id


@pytest.mark.parametrize("named", ["a" * 100_000, "\ufffe", "\x00\x1b[31m", ""])
async def test_a_tool_of_any_name_costs_only_its_own_span(named: str, traces: Traces) -> None:
    """The agent chooses the name: it is bounded, and encodable in OTLP."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    steps = [Ask(name=named, id=named, input={named: named})]
    adapter = FakeAdapter(steps, gate="some", capabilities=Capabilities(gate="all"))
    result = await run_once(adapter, "go", policies=[OPEN], publishers=[traces.observer(content=True)])
    spans = traces.exporter.get_finished_spans()

    assert result.status == "completed"
    assert traces.one("invoke_agent")
    assert max(len(span.name) for span in spans) < 1_000
    assert encode_spans(spans).SerializeToString()


async def test_calls_that_never_end_are_bounded(traces: Traces) -> None:
    """The oldest span is ended for a new one."""
    steps = [ToolCallStarted(tool_call_id=f"c{n}", tool_name="read") for n in range(MOST_OPEN + 5)]
    await run_once(FakeAdapter(steps, gate="none"), "go", policies=[OPEN], publishers=[traces.observer()])
    ends = [attributes(span)["error.type"] for span in traces.named("execute_tool")]

    assert ends.count("unfinished") == 5
