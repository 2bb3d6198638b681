"""The starter policy is enforced on the real opencode and the real Gemini CLI, rule by rule."""

from typing import Any, ClassVar

import pytest

from tests import coding_agent

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True),
]


class AcpAgent(coding_agent.CodingAgentChecks):
    """An agent with these tools for running commands and writing files; the latter has its path in this input."""

    each_alone = True
    tools: ClassVar[tuple[str, str, str]]

    @pytest.fixture
    def prepare(self, bench: Any) -> Any:
        bash, write, path = self.tools

        def scripted(acts: Any, used: tuple[int, int] = (100, 20)) -> Any:
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
            return bench.agent(type(self).__name__.removeprefix("Test").lower()), bench.prompt(*replies)

        return scripted


class TestOpencode(AcpAgent):
    """The cost is the client's own figure. It reports only the tokens of its last response, so the run warns which
    limit can't be counted.
    """

    tools = ("bash", "write", "filePath")
    limits: ClassVar = {"max_cost_usd": {"most": 0.5, "used": (100, 10_000)}}
    test_the_policies_of_the_readme_are_enforced = None  # type: ignore[assignment]  # Gemini shows it, in less time

    @pytest.mark.parametrize("limit", limits)
    async def test_a_limit_ends_the_run(self, prepare: Any, limit: str) -> None:
        """The limit is lowered to half a dollar."""
        ended = await super().test_a_limit_ends_the_run(prepare, limit)

        findings = str(ended.partial.policy.metadata.get("findings"))
        assert "`max_total_tokens: 200,000` is not enforced" in findings


class TestGemini(AcpAgent):
    """The tokens of all responses count."""

    tools = ("run_shell_command", "write_file", "file_path")
    limits: ClassVar = {"max_total_tokens": {"used": (90_000, 10)}}

    @pytest.mark.parametrize("limit", limits)
    async def test_a_limit_ends_the_run(self, prepare: Any, limit: str) -> None:
        """The supervisor measures time, as for every agent."""
        await super().test_a_limit_ends_the_run(prepare, limit)
