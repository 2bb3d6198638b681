"""What judging a run came to: its decisions, what is used of its limits, the policies it is under."""

from __future__ import annotations

import anyio.to_thread
import msgspec

from proctor.adapters.drawing import draw_svg
from proctor.adapters.evaluate.folding import Explained
from proctor.adapters.kit.values.printable import printable_lines
from proctor.policies.drawing import draw_mermaid

from ..folds import Fold
from ..operations import ApiRequest, Operation
from ..records import MissingError
from ..views import DecisionList, DecisionView, LimitList, Policies, PolicyInForce
from .runs import Seq


class DecisionQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which decisions: those at events with seq > `after`."""

    after: Seq = 0


async def _fold(request: ApiRequest) -> Fold:
    run = await request.records.run(request.path["run_id"])
    fold = await request.records.folds.of(run)
    if not fold.was.policies:
        raise MissingError(f"no policy is stored with run `{run.run_id}`")
    return fold


async def _limits(request: ApiRequest) -> LimitList:
    fold = await _fold(request)
    unpriced = fold.refold().monitor.metadata.get("unpriced", ())
    return LimitList(limits=fold.limits(), unpriced=tuple(unpriced))


async def _decisions(request: ApiRequest) -> DecisionList:
    fold = await _fold(request)
    found = tuple(decision_view(step) for step in fold.decisions if step.seq > request.query.after)
    return DecisionList(decisions=found, left_out=fold.decided - len(fold.decisions), untold=fold.was.untold)


def decision_view(step: Explained) -> DecisionView:
    """A decision as it is answered."""
    if step.decision is None:
        return DecisionView(seq=step.seq, event=step.event, violations=step.violations)
    decision = step.decision
    return DecisionView(
        seq=step.seq,
        event=step.event,
        action=decision.action,
        tool_call_id=decision.tool_call_id,
        tool_name=decision.tool_name,
        tell_model=decision.tell_model,
        steps=decision.steps,
        violations=decision.violations,
    )


async def _policies(request: ApiRequest) -> Policies:
    fold = await _fold(request)
    return await anyio.to_thread.run_sync(_drawn, fold)


def _drawn(fold: Fold) -> Policies:
    """The stack and its picture, marked with where the session stands."""
    monitor = fold.refold().copy()
    stack = monitor.state.program.policy
    return Policies(
        stack=stack.name,
        policies=tuple(
            PolicyInForce(name=str(each.get("name")), locked=bool(each.get("locked")), written=each)
            for each in fold.was.policies
        ),
        mermaid=printable_lines(draw_mermaid(stack, monitor)),
        svg=printable_lines(draw_svg(stack, monitor)),
    )


_OF_RUN = "/api/runs/{run_id}"
OPERATIONS = (
    Operation(
        "GET",
        f"{_OF_RUN}/decisions",
        "decisions",
        "What was decided in a run, and why, judged once more by the policies stored with it.",
        _decisions,
        DecisionList,
        query=DecisionQuery,
    ),
    Operation("GET", f"{_OF_RUN}/limits", "limits", "What is used of a run's limits.", _limits, LimitList),
    Operation(
        "GET",
        f"{_OF_RUN}/policies",
        "policies",
        "The policies a run is under, with their graph.",
        _policies,
        Policies,
    ),
)
