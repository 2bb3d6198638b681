"""Budgets that runs share."""

from __future__ import annotations

from ..operations import ApiRequest, Operation
from ..views import BudgetList, BudgetView


async def _budgets(request: ApiRequest) -> BudgetList:
    found = await request.records.budgets()
    return BudgetList(
        budgets=tuple(
            BudgetView(
                budget=each.budget,
                key=each.key,
                counts=each.counts,
                window=each.window,
                max=each.max,
                used=each.used,
                reserved=each.reserved,
                left=each.left,
                runs=each.runs,
                resets_at=each.resets_at,
            )
            for each in found
        )
    )


OPERATIONS = (
    Operation(
        "GET", "/api/budgets", "budgets", "What is used and left of budgets that runs share.", _budgets, BudgetList
    ),
)
