"""The shipped conformance suite for adapters, on opencode and Gemini CLI with a scripted model."""

import os
from typing import Any, ClassVar

import pytest

from proctor.policies.events.run_context import Usage
from proctor.supervisor.testing.adapter_fixture import Agent
from proctor.supervisor.testing.suites import AdapterConformance

SLEEP = "sleep 73006"
ANOTHER_SHOWS_IT = {
    "test_a_cancel_after_the_end_finds_nothing_to_do",
    "test_a_client_killed_in_the_middle_of_a_response_has_failed",
    "test_a_client_killed_while_a_call_is_held_runs_nothing",
    "test_a_denied_call_is_prevented_or_interrupted_as_the_gate_allows",
    "test_a_denied_call_that_is_not_asked_about_is_interrupted",
    "test_a_gate_that_raises_permits_nothing_and_is_not_passed_over",
    "test_a_session_that_the_agent_does_not_have_is_said_so_before_it_begins",
    "test_after_a_stop_nothing_more_is_asked_or_runs",
    "test_an_input_of_the_gates_own_is_what_runs_or_nothing_does",
    "test_it_can_be_cancelled_before_it_does_anything",
    "test_it_can_be_cancelled_while_a_call_is_held",
    "test_it_can_be_cancelled_while_it_streams_and_then_is_silent",
    "test_leaving_the_context_by_a_cancel_releases_everything",
    "test_leaving_the_context_releases_everything",
    "test_one_instance_serves_two_runs_at_once",
    "test_responses_past_launch_options_do_not_act",
    "test_tokens_and_usd_past_launch_options_end_the_run",
    "test_tokens_past_the_limit_interrupt_the_run",
    "test_usage_reports_add_up",
    # of `test_real_agents`, several in one session
    "test_a_later_run_has_the_agents_own_session_again",
    "test_a_refused_call_has_no_effect_and_no_outcome",
    "test_a_run_holds_its_calls_reports_them_in_order_and_ends_once",
    "test_parallel_calls_are_asked_about_and_paired_with_their_outcomes",
    "test_what_runs_unasked_is_reported_when_it_begins",
}
"""Tests that depend only on the adapter, as the scripted agent shows, and those that `test_real_agents` covers.

PROCTOR_MATRIX=write runs them on these agents as well, which takes longer.
"""
STAY = f"trap '' TERM HUP; setsid {SLEEP} & (setsid {SLEEP} &); touch up; {SLEEP}"


class RealAgent(AdapterConformance):
    """An agent that runs real commands with its tool `shell`; `looks` is a call without a question.

    One backend is enough, as the scripted agent runs on both.
    """

    has_client = True
    without = frozenset({"delegating", "erring", "garbling", "offering", "truncating", "using"})
    name: ClassVar[str]
    shell: ClassVar[str]
    looks: ClassVar[list[Any]]

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture(autouse=True)
    def place(self, bench: Any) -> None:
        self.bench = bench
        self.workspace = bench.cwd
        (bench.cwd / ".note").write_text("n")

    def making(self, *files: str, together: bool = False) -> Agent:
        return self._agent(*self._commands(*files, together=together))

    def mixing(self, file: str) -> Agent:
        return self._agent({"calls": [self.looks]}, *self._commands(file))

    def staying(self) -> Agent:
        return self._agent({"calls": [self._command(STAY)]})

    def silent(self) -> Agent:
        return self._agent({"text": "hm", "endless": True})

    def failing(self) -> Agent:
        return self._agent({"status": 400})

    def _responses(self) -> list[dict[str, Any]]:
        """Two responses that report their usage."""
        return [{**self._commands("alpha")[0], "used": [1000, 10]}, {"text": "x", "used": [200, 5]}]

    def _commands(self, *files: str, together: bool = False) -> list[dict[str, Any]]:
        calls = [self._command(f"touch {file}") for file in files]
        return [{"calls": calls}] if together else [{"calls": [call]} for call in calls]

    def _command(self, command: str) -> list[Any]:
        return [self.shell, {"command": command, "description": "x"}]

    def _agent(self, *replies: dict[str, Any], **options: Any) -> Agent:
        return Agent(self.bench.agent(self.name, **options), self.bench.prompt(*replies))


@pytest.mark.slow
@pytest.mark.anyio
class TestOpencode(RealAgent):
    """It asks about everything but reads."""

    row = "acp: opencode"
    name = "opencode"
    shell = "bash"
    looks: ClassVar = ["read", {"filePath": ".note"}]

    def using(self) -> tuple[Agent, Usage]:
        """It reports its cost. Of the tokens it reports only those of the last response, so none are counted."""
        cost: Any = pytest.approx((1200 * 3 + 15 * 15) / 1e6)
        return self._agent(*self._responses()), Usage(cost_usd=cost)


@pytest.mark.slow
@pytest.mark.anyio
class TestGemini(RealAgent):
    """It asks about commands and writes."""

    row = "acp: gemini"
    name = "gemini"
    shell = "run_shell_command"
    looks: ClassVar = ["list_directory", {"dir_path": "."}]

    def making(self, *files: str, together: bool = False) -> Agent:
        self.bench.another_minute()
        return super().making(*files, together=together)

    def using(self) -> tuple[Agent, Usage]:
        """The tokens of all responses, when the prompt is done."""
        return self._agent(*self._responses()), Usage(input_tokens=1200, output_tokens=15)


if os.environ.get("PROCTOR_MATRIX") != "write":
    for _name in ANOTHER_SHOWS_IT:
        setattr(RealAgent, _name, None)
