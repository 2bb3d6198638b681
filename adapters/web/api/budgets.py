"""Budgets that runs share."""

from __future__ import annotations

import msgspec

from ..operations import ApiRequest, operation
from ..views import BudgetList, BudgetView


@operation("GET", "/api/budgets", BudgetList)
async def budgets(request: ApiRequest) -> BudgetList:
    """What is used and left of budgets that runs share."""
    found = await request.records.store.budgets()
    return BudgetList(budgets=msgspec.convert(found, tuple[BudgetView, ...], from_attributes=True))
