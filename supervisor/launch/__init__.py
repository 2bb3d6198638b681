"""From a request to a run that has started."""

ROOMS = (
    "claiming",  # a run made its owner's
    "sub_runs",  # runs that the agent of another run starts
    "launch",  # from an order to a run
    "history",  # a session's past
    "plan",  # policies made ready for an adapter
)
