"""The order desk: what is eligible depends on the order."""

from __future__ import annotations

from typing import Any


def check_eligibility(order_id: str) -> dict[str, Any]:
    """Orders that begin with A may be refunded."""
    return {"order_id": order_id, "eligible": order_id.startswith("A")}


def issue_refund(order_id: str, amount: float) -> dict[str, Any]:
    """Pay back."""
    return {"order_id": order_id, "refunded": amount}


def void_order(order_id: str) -> dict[str, Any]:
    """Cancel an order that was not refunded."""
    return {"order_id": order_id, "void": True}


TOOLS = {"check_eligibility": check_eligibility, "issue_refund": issue_refund, "void_order": void_order}
