"""What every Adapter must do with a call that may not run, or may not run as requested."""

from __future__ import annotations

import itertools
from typing import Any

from proctor.policies.stream.calls import ToolCall, tell_model_default
from proctor.supervisor.ports.adapters import GateAnswer

from .checks import AdapterChecks, Agent, completed, ends_once, mentions, terminals
from .driving import Answering, Driven


class RefusingChecks(AdapterChecks):
    """Refusals, and the pairing of calls with outcomes, for the calls that are proposed to the gate."""

    async def test_a_refused_call_has_no_effect_and_no_outcome(self) -> None:
        """The first is refused; whether the second still runs is what a refusal does to the turn."""
        agent = self._asking("alpha", "beta")
        if agent is None:
            return
        done = await self.run(agent, answer=_refusing(0))

        assert ends_once(done)
        assert done.outcomes(done.proposed[0].id) == []
        assert "alpha" not in self.made()
        went_on = bool(completed(done))
        assert self.made() == (self.effects("beta") if went_on else [])
        self.saw(agent.adapter.capabilities, deny_ends_turn=not went_on)

    async def test_parallel_calls_are_asked_about_and_paired_with_their_outcomes(self) -> None:
        """Of three siblings, the second is refused: the others run, unless one refusal refuses all."""
        files = ["first", "second", "third"]
        agent = self._asking(*files, together=True)
        if agent is None:
            return
        done = await self.run(agent, answer=_refusing(1))

        assert ends_once(done)
        if not self.in_order:
            files.sort(key=lambda file: [mentions(call, file) for call in done.proposed].index(True))
        assert all(mentions(call, file) for call, file in zip(done.proposed, files, strict=False))
        ran = [call.id in completed(done) for call in done.proposed]
        assert self.made() == self.effects(*itertools.compress(files, ran))
        assert done.outcomes(done.proposed[1].id) == []
        assert max(len(done.outcomes(call.id)) for call in done.proposed) <= 1
        if not (self.all_or_nothing or agent.adapter.capabilities.deny_ends_turn):
            assert ran == [True, False, True]

    async def test_after_a_stop_nothing_more_is_asked_or_runs(self) -> None:
        """After a refusal that stops the agent, no other answer matters."""
        agent = self._asking("alpha", "beta")
        if agent is None:
            return
        done = await self.run(agent, answer=_refusing(0, stop=True))

        assert len(done.proposed) == 1
        _assert_nothing_ran(done, self.made())
        assert len(terminals(done)) <= 1

    async def test_a_gate_that_raises_permits_nothing_and_is_not_passed_over(self) -> None:
        """Without an answer there is no permission, and the run does not end as if there had been one."""
        agent = self._asking("alpha")
        if agent is None:
            return

        async def broken(call: ToolCall) -> GateAnswer:
            raise RuntimeError("no answer")

        done = await self.run(agent, answer=broken)

        _assert_nothing_ran(done, self.made())
        assert ends_once(done)

    async def test_an_input_of_the_gates_own_is_what_runs_or_nothing_does(self) -> None:
        """The call never runs as it was requested."""
        agent = self._asking("original")
        if agent is None or not self.acts:
            return

        async def other(call: ToolCall) -> GateAnswer:
            changed = _replaced(call.input, "original", "rewritten")
            return GateAnswer(allowed=True, input=changed if changed != call.input else None)

        done = await self.run(agent, answer=other)

        assert ends_once(done)
        rewritten = self.made() == ["rewritten"]
        assert rewritten or self.made() == []
        assert bool(completed(done)) is rewritten
        self.saw(agent.adapter.capabilities, rewrite=rewritten)

    def _asking(self, *files: str, together: bool = False) -> Agent | None:
        agent = self.making(*files, together=together)
        return None if agent.adapter.capabilities.gate == "none" else agent


def _assert_nothing_ran(done: Driven, made: list[str]) -> None:
    assert made == []
    assert completed(done) == []
    assert done.types[-1:] != ["run_completed"]


def _refusing(n: int, *, stop: bool = False) -> Answering:
    """A gate that refuses the n-th call it is asked for, from 0."""
    counted = itertools.count()

    async def answer(call: ToolCall) -> GateAnswer:
        if next(counted) == n:
            return GateAnswer(allowed=False, tell_model=tell_model_default(call.name), stop=stop)
        return GateAnswer(allowed=True)

    return answer


def _replaced(value: Any, old: str, new: str) -> Any:
    """The value with a word replaced in every text inside it."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, dict):
        return {key: _replaced(item, old, new) for key, item in value.items()}
    return [_replaced(item, old, new) for item in value] if isinstance(value, list) else value
