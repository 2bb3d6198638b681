"""The policy to begin with holds on real agents of frameworks, rule by rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import coding_agent
import framework_bench
import pytest

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The frameworks run on asyncio only."""
    return "asyncio"


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which this process, and so the agent's tools, work."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


AGENTS = [framework_bench.pydantic_ai, framework_bench.openai_agents, framework_bench.langchain]


@pytest.fixture(params=AGENTS, ids=lambda made: made.__name__)
def prepare(cwd: Path, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Scripts the acts."""
    return lambda acts, **how: (request.param([framework_bench.called(act) for act in acts], **how), "go")


async def test_it_keeps_to_the_rules(cwd: Path, prepare: Any) -> None:
    """No push, no network commands, nothing written outside, nothing published unasked."""
    await coding_agent.keeps_to_the_rules(prepare, cwd)


async def test_it_keeps_to_the_policies_of_the_readme(cwd: Path, prepare: Any) -> None:
    """Nothing is deleted, and a person is asked before a file is written."""
    await coding_agent.keeps_to_the_readme(prepare, cwd)


async def test_a_person_lets_it_publish(prepare: Any) -> None:
    """And it runs."""
    await coding_agent.asks_before_publishing(prepare)


async def test_two_dollars_end_the_run(prepare: Any) -> None:
    """By the public price of the model."""
    pytest.importorskip("genai_prices", reason="needs prices: pip install '.[prices]'")
    await coding_agent.ends_at(prepare, "max_cost_usd", used=(1000, 60_000))


async def test_200_000_tokens_end_the_run(prepare: Any) -> None:
    """Those of all responses together."""
    await coding_agent.ends_at(prepare, "max_total_tokens", used=(90_000, 10))


async def test_time_ends_the_run(prepare: Any) -> None:
    """Ten minutes are shortened to one second."""
    await coding_agent.ends_at(prepare, "max_duration_ms", most=1000, endless=True)
