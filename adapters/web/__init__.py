"""The operators' web page and HTTP API on a store whose runs are in other processes. Needs the extra `web`."""

ROOMS = (
    "webhook",  # events sent to somebody's own service
    "serving",  # the server on its socket, until it is ended
    "connections",  # accepted one by one, bounded in number and time
    "app",  # page and API as one ASGI application, guarded
    "openapi",  # the API described
    "api",  # the operations, a file for each kind of thing
    "operations",  # an operation: who may ask, what is read, what is answered
    "guard",  # who may ask from where, and what browsers are told
    "queries",  # what is asked of the store
    "folds",  # recorded runs judged once more, remembered
    "call_shown",  # a call as a person reads it: commands taken apart, edits as lines
    "views",  # what is answered
    "tries",  # wrong tokens, counted
    "identities",  # tokens, who holds each and what it allows
)
"""Top first: each imports only those below it."""
