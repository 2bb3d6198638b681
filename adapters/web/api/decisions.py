"""How a run was judged: its decisions, the use of its limits, its policies."""

from __future__ import annotations

import anyio.to_thread
import msgspec

from proctor.adapters.drawing import draw_svg
from proctor.adapters.evaluate.folding import Explained
from proctor.adapters.kit.values.printable import printable_lines
from proctor.policies.drawing import draw_mermaid

from ..folds import Fold
from ..operations import ApiRequest, operation
from ..queries import MissingError
from ..views import DecisionList, DecisionView, LimitList, Policies, PolicyInForce
from .runs import Seq

_OF_A_CALL = ("action", "tool_call_id", "tool_name", "tell_model", "steps", "violations")
_OF_RUN = "/api/runs/{run_id}"


class DecisionQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which decisions: those at events with seq > `after`."""

    after: Seq = 0


async def _fold(request: ApiRequest) -> Fold:
    run = await request.records.run(request.path["run_id"])
    fold = await request.records.folds.of(run)
    if not fold.was.policies:
        raise MissingError(f"no policy is stored with run `{run.run_id}`")
    return fold


@operation("GET", f"{_OF_RUN}/decisions", DecisionList, query=DecisionQuery)
async def decisions(request: ApiRequest) -> DecisionList:
    """The decisions of a run and their reasons, judged again by the policies stored with it."""
    fold = await _fold(request)
    found = tuple(_view(step) for step in fold.decisions if step.seq > request.query.after)
    return DecisionList(decisions=found, left_out=fold.decided - len(fold.decisions), untold=fold.was.untold)


def _view(step: Explained) -> DecisionView:
    place = {"seq": step.seq, "event": step.event, "violations": step.violations}
    decided = {} if step.decision is None else {name: getattr(step.decision, name) for name in _OF_A_CALL}
    return DecisionView(**{**place, **decided})


@operation("GET", f"{_OF_RUN}/limits", LimitList)
async def limits(request: ApiRequest) -> LimitList:
    """What is used of a run's limits."""
    fold = await _fold(request)
    unpriced = fold.refold().monitor.metadata.get("unpriced", ())
    return LimitList(limits=fold.limits(), unpriced=tuple(unpriced))


@operation("GET", f"{_OF_RUN}/policies", Policies)
async def policies(request: ApiRequest) -> Policies:
    """The policies of a run, with their graph."""
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
