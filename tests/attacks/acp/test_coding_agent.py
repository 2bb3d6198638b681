"""The policy to begin with holds on the real opencode and the real Gemini CLI, rule by rule."""

from __future__ import annotations

from typing import Any

import coding_agent
import pytest

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True),
]

TOOLS = {
    "opencode": ("bash", "write", "filePath"),
    "gemini": ("run_shell_command", "write_file", "file_path"),
}


@pytest.fixture(params=sorted(TOOLS))
def name(request: pytest.FixtureRequest) -> str:
    """The agent."""
    return str(request.param)


@pytest.fixture
def prepare(bench: Any, name: str) -> Any:
    """Scripts the acts."""
    bash, write, path = TOOLS[name]

    def scripted(acts: Any, used: tuple[int, int] = (100, 20), endless: bool = False) -> Any:
        replies: list[dict[str, Any]] = [
            {
                "calls": [
                    [bash, {"command": what, "description": "x"}]
                    if kind == "bash"
                    else [write, {path: str((bench.cwd / what).resolve()), "content": "x"}]
                ],
                "used": used,
            }
            for kind, what in acts
        ]
        return bench.agent(name), bench.prompt(*([{"text": "hm", "endless": True}] if endless else replies))

    return scripted


async def test_it_keeps_to_the_rules(bench: Any, prepare: Any) -> None:
    """No push, no network commands, nothing written outside, nothing published unasked."""
    await coding_agent.keeps_to_the_rules(prepare, bench.cwd, each_alone=True)


@pytest.mark.parametrize("name", ["gemini"])
async def test_it_keeps_to_the_policies_of_the_readme(bench: Any, prepare: Any) -> None:
    """Nothing is deleted, and a person is asked before a file is written."""
    await coding_agent.keeps_to_the_readme(prepare, bench.cwd)


@pytest.mark.parametrize("name", ["opencode"])
async def test_a_person_lets_it_publish(prepare: Any) -> None:
    """And it runs. As it tells the tokens of its last response only, the run says which limit cannot hold."""
    result = await coding_agent.asks_before_publishing(prepare)

    findings = str(result.policy.metadata.get("findings"))
    assert "`max_total_tokens: 200,000` will not hold" in findings


@pytest.mark.parametrize("name", ["opencode"])
async def test_two_dollars_end_the_run(prepare: Any) -> None:
    """By the client's own figure; shortened to half a dollar."""
    await coding_agent.ends_at(prepare, "max_cost_usd", most=0.5, used=(100, 10_000))


@pytest.mark.parametrize("name", ["gemini"])
async def test_200_000_tokens_end_the_run(prepare: Any) -> None:
    """Those of all responses together."""
    await coding_agent.ends_at(prepare, "max_total_tokens", used=(90_000, 10))


@pytest.mark.parametrize("name", ["gemini"])
async def test_time_ends_the_run(prepare: Any) -> None:
    """Ten minutes are shortened to six seconds, in which the slowest starts."""
    await coding_agent.ends_at(prepare, "max_duration_ms", most=6000, endless=True)
