"""A store in memory: what a durable store promises, but for the time of one process and event loop."""

ROOMS = (
    "store",  # a store in memory
    "ledger",  # budgets that runs share
    "approvals_and_orders",  # what people answer and order
    "records",  # events, and the lines of sessions and runs that follow from them
    "claims",  # who owns what
    "wakeups",  # wakes waiters when something is stored
)
