"""Those who look on: subscriptions, publishers, and the watchdog of the event loop."""

ROOMS = (
    "watchdog",  # an event loop that does not turn
    "publishers",  # observers, who cannot hurt a run
    "subscriptions",  # following events
    "tracks",  # where a subscriber is in what it follows
    "feed",  # one reader of the log for all who follow it
    "buffer",  # what a subscriber has not taken yet
)
