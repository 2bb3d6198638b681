"""Values of a program: by name, as records hold them, as a terminal shows them; who runs it."""

ROOMS = (
    "printable",  # text of agents as a terminal may show it
    "jsonable",  # values of a program as records hold them
    "login_name",  # who runs this
    "named_object",  # Python objects by name
)
"""Top first: each imports only those below it."""
