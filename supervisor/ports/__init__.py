"""The interfaces to the outside: adapters, stores, approvers, publishers, and the records that cross them."""

ROOMS = (
    "adapters",  # where the world comes in: adapters, stores, approvers, publishers
    "store",  # the port to the record
    "processes",  # processes as owners of runs
    "windows",  # when a budget starts anew, and what can be set aside of it: the same in all stores
    "ledger",  # what a store keeps of budgets that runs share
    "orders",  # what people order and answer, on its way to owners of runs
    "facts",  # what a store keeps beside events
)
