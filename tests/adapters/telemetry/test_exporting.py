"""The exported telemetry of runs: attributes, metrics, spans."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import loopback
import pytest

pytest.importorskip("opentelemetry.sdk", reason="pip install '.[otel]'")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from proctor.adapters import ShellAdapter
from proctor.adapters.agents.catalog import ADAPTERS
from proctor.adapters.telemetry import OpenTelemetry, attributes
from proctor.adapters.telemetry.attributes import of_agent
from proctor.policies import Capabilities, Deny, Limits, Policy
from proctor.policies.events import TokenUsageUpdated
from proctor.supervisor import run_once
from proctor.supervisor.testing.fakes import PATIENCE_S, Ask, FakeAdapter, FakeApprover, Step

pytestmark = pytest.mark.anyio

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="pip install '.[otel]'")

OPEN = Policy(name="open", limits=Limits(max_tool_calls=9))
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SCRIPT = "name: agent\nsteps: [{call: bash, input: {command: 'echo $TRACEPARENT > traceparent'}}]\n"


class Collector:
    """An OTLP receiver on loopback; stores the spans and the names of the metrics."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.metrics: set[str] = set()
        self.server = loopback.Server(self._take)

    def _take(self, exchange: loopback.Exchange) -> None:
        if exchange.path == "/v1/traces":
            sent = ExportTraceServiceRequest.FromString(exchange.raw)
            self.spans += [s for r in sent.resource_spans for scope in r.scope_spans for s in scope.spans]
        elif exchange.path == "/v1/metrics":
            metrics = ExportMetricsServiceRequest.FromString(exchange.raw)
            scopes = [scope for r in metrics.resource_metrics for scope in r.scope_metrics]
            self.metrics |= {metric.name for scope in scopes for metric in scope.metrics}
        exchange.give(b"")


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.server.close()


def proctor(*arguments: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proctor", *arguments]
    env = {**os.environ, "XDG_STATE_HOME": str(folder), "OTEL_METRIC_EXPORT_TIMEOUT": "5000", **env}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE_S)


def test_a_run_on_the_command_line_is_sent_to_a_collector(collector: Collector, tmp_path: Path) -> None:
    """In the trace that the environment names. The agent's processes are part of the run."""
    (tmp_path / "agent.yaml").write_text(SCRIPT)
    (tmp_path / "work").mkdir()
    ran = proctor(
        *("run", "--otel", "--adapter", "scripted", "--set", "script=agent.yaml", "--set", "workspace=work", "go"),
        folder=tmp_path,
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.server.url,
        TRACEPARENT=PARENT,
    )
    by_name = {span.name: span for span in collector.spans}
    assert ran.returncode == 0, ran.stderr
    run = by_name["invoke_agent scripted"]
    _, trace_id, span_id, _ = (tmp_path / "work" / "traceparent").read_text().strip().split("-")

    assert (run.trace_id.hex(), run.parent_span_id.hex()) == tuple(PARENT.split("-")[1:3])
    assert (trace_id, span_id) == (run.trace_id.hex(), run.span_id.hex())
    assert by_name["execute_tool bash"].parent_span_id == run.span_id
    assert {"proctor.runs", "proctor.decisions", "gen_ai.client.operation.duration"} <= collector.metrics


def test_a_collector_that_does_not_answer_harms_no_run(tmp_path: Path) -> None:
    """The run ends normally, before the exporters time out, and reports that telemetry was not sent."""
    (tmp_path / "agent.yaml").write_text("name: agent\nsteps: [{say: done}]\n")
    silent = loopback.Server(loopback.Exchange.hold)
    ran = proctor(
        *("run", "--otel", "--adapter", "scripted", "--set", "script=agent.yaml", "go", "--json"),
        folder=tmp_path,
        OTEL_EXPORTER_OTLP_ENDPOINT=silent.url,
    )
    silent.close()

    assert ran.returncode == 0, ran.stderr
    assert '"run_completed"' in ran.stdout
    assert f"the telemetry collector at {silent.url} does not answer" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("names", [("",), ("TRACES_", "METRICS_")])
def test_of_a_collector_that_is_not_there_one_line_is_printed(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Not one for each attempt of OpenTelemetry's to reach it."""
    (tmp_path / "agent.yaml").write_text("name: agent\nsteps: [{say: done}]\n")
    gone = loopback.Server(loopback.Exchange.hold)
    gone.close()
    ran = proctor(
        *("run", "--otel", "--adapter", "scripted", "--set", "script=agent.yaml", "go", "--json"),
        folder=tmp_path,
        **{f"OTEL_EXPORTER_OTLP_{name}ENDPOINT": gone.url for name in names},
    )

    assert ran.returncode == 0, ran.stderr
    assert [line for line in ran.stderr.splitlines() if "collector" in line or "127.0.0.1" in line] == [
        f"the telemetry collector at {gone.url} does not answer; spans and metrics are missing there"
    ]


def test_a_wrong_variable_is_one_error(tmp_path: Path) -> None:
    """Before anything runs."""
    (tmp_path / "agent.yaml").write_text("name: agent\nsteps: [{say: done}]\n")
    ran = proctor(
        *("run", "--otel", "--adapter", "scripted", "--set", "script=agent.yaml", "go"),
        folder=tmp_path,
        OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT="many",
    )

    assert (ran.returncode, ran.stdout) == (2, "")
    assert "error: OpenTelemetry does not take a variable `OTEL_...`: OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in ran.stderr


async def test_an_agents_processes_get_the_trace_of_their_run_and_of_no_other(tmp_path: Path) -> None:
    """And none without tracing."""
    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    observer = OpenTelemetry(tracer_provider=provider)
    trace_parents: list[str] = []

    async def go(publishers: list[OpenTelemetry]) -> None:
        env = {name: value for name, value in os.environ.items() if name != "TRACEPARENT"}
        adapter = ShellAdapter(cwd=tmp_path, env=env)
        result = await run_once(adapter, "printenv TRACEPARENT || true", policies=[OPEN], publishers=publishers)
        trace_parents.append(result.output.get("stdout", "").strip())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(go, [observer])
        tasks.start_soon(go, [observer])
    await go([])
    runs = [span for span in exporter.get_finished_spans() if span.name.startswith("invoke_agent")]

    assert sorted(trace_parents[:2]) == sorted(
        f"00-{s.context.trace_id:032x}-{s.context.span_id:016x}-{s.context.trace_flags:02x}" for s in runs
    )
    assert trace_parents[2] == ""


@pytest.mark.parametrize(
    ("adapter", "provider"), [("claude", "anthropic"), ("codex", "openai"), ("openai-agents", "openai")]
)
def test_an_adapter_with_one_providers_models_has_its_name(adapter: str, provider: str) -> None:
    """For adapters created as usual."""
    assert adapter in ADAPTERS
    assert of_agent(adapter, None)[attributes.PROVIDER] == provider


ORG = Policy(name="org", tool_rules=(Deny(("rm",)),), on_violation="deny")
PAYING = Policy(name="paying", tool_rules=(Deny(("pay",), action="request_approval"),))
STEPS: list[Step] = [
    TokenUsageUpdated(input_tokens=100, output_tokens=20, cost_usd=0.25),
    Ask(name="read"),
    Ask(name="made_up_by_the_agent"),
    Ask(name="rm"),
    Ask(name="pay"),
]


async def one_run(observer: OpenTelemetry) -> None:
    can_do = Capabilities(gate="all", usage="per_turn", tools=["read"])
    adapter = FakeAdapter(STEPS, capabilities=can_do)
    await run_once(adapter, "go", policies=[ORG, PAYING], approver=FakeApprover(True), publishers=[observer])


def measured(reader: InMemoryMetricReader) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Each metric with its attributes, and its sum."""
    data = reader.get_metrics_data()
    assert data is not None
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    value = getattr(point, "value", None)
                    yield metric.name, dict(point.attributes or {}), getattr(point, "sum", value)


async def test_a_run_is_counted() -> None:
    """Runs, decisions, violations (without approved ones), approvals, tokens, cost, durations. Only tools that the
    adapter lists are named, as each name is a stored series.
    """
    reader = InMemoryMetricReader()
    await one_run(OpenTelemetry(meter_provider=MeterProvider([reader], shutdown_on_exit=False)))
    found = list(measured(reader))

    def of(name: str, attribute: str) -> dict[Any, Any]:
        return {about.get(attribute): value for metric, about, value in found if metric == name}

    assert of("proctor.runs", "proctor.run.status") == {"completed": 1}
    assert of("proctor.runs.active", "gen_ai.agent.name") == {"fake": 0}
    assert of("proctor.decisions", "proctor.decision") == {"allow": 2, "deny": 1, "request_approval": 1}
    assert of("proctor.violations", "proctor.policy") == {"org": 1}
    assert of("proctor.approvals", "proctor.approval.outcome") == {"granted": 1}
    assert set(of("proctor.approval.wait", "proctor.approval.outcome")) == {"granted"}
    assert of("gen_ai.client.token.usage", "gen_ai.token.type") == {"input": 100, "output": 20}
    assert of("proctor.cost", "gen_ai.agent.name") == {"fake": 0.25}
    assert set(of("gen_ai.client.operation.duration", "gen_ai.operation.name")) == {"invoke_agent", "execute_tool"}
    assert {about.get("gen_ai.tool.name") for _, about, _ in found} == {None, "read"}


async def test_prometheus_reads_the_metrics() -> None:
    """Through OpenTelemetry's exporter for it."""
    prometheus = pytest.importorskip("opentelemetry.exporter.prometheus", reason="pip install -e '.[dev]'")
    client = pytest.importorskip("prometheus_client")
    provider = MeterProvider([prometheus.PrometheusMetricReader()], shutdown_on_exit=False)
    try:
        await one_run(OpenTelemetry(meter_provider=provider))
        page = client.generate_latest().decode()
    finally:
        provider.shutdown()

    assert 'proctor_runs_total{gen_ai_agent_name="fake"' in page
    assert 'proctor_violations_total{gen_ai_agent_name="fake"' in page
    assert "gen_ai_client_operation_duration_seconds_bucket" in page
