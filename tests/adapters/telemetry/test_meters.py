"""Runs as metrics, in memory and as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="pip install '.[otel]'")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from proctor.adapters.telemetry import OpenTelemetry
from proctor.policies.events import TokenUsageUpdated
from proctor.policies.events.run_context import Capabilities
from proctor.policies.policy import Deny, Policy
from proctor.supervisor import ApprovalAnswer, run_once
from proctor.supervisor.testing import Ask, FakeAdapter
from proctor.supervisor.testing.fakes import Step

pytestmark = pytest.mark.anyio
ORG = Policy(name="org", tool_rules=(Deny(("rm",)),), on_violation="deny")
PAYING = Policy(name="paying", tool_rules=(Deny(("pay",), action="request_approval"),))
STEPS: list[Step] = [
    TokenUsageUpdated(input_tokens=100, output_tokens=20, cost_usd=0.25),
    Ask(name="read"),
    Ask(name="made_up_by_the_agent"),
    Ask(name="rm"),
    Ask(name="pay"),
]


async def ana(request: Any) -> ApprovalAnswer:
    return ApprovalAnswer(granted=True, by="ana", input_digest=request.input_digest)


async def one_run(observer: OpenTelemetry) -> None:
    can_do = Capabilities(gate="all", usage="per_turn", tools=["read"])
    adapter = FakeAdapter(STEPS, capabilities=can_do)
    await run_once(adapter, "go", policies=[ORG, PAYING], approver=ana, publishers=[observer])


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
    """Runs, decisions, violations (not what was approved), approvals, tokens, cost; how long things took."""
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


async def test_an_agent_cannot_make_up_series() -> None:
    """Only tools that the adapter lists are named: each name is a series that somebody stores."""
    reader = InMemoryMetricReader()
    await one_run(OpenTelemetry(meter_provider=MeterProvider([reader], shutdown_on_exit=False)))
    tools = {about.get("gen_ai.tool.name") for _, about, _ in measured(reader)}

    assert tools == {None, "read"}


async def test_prometheus_reads_them() -> None:
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
