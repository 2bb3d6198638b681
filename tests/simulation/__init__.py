"""A whole supervisor on virtual time: a seed chooses which task runs next, and what breaks when.

`plans` says what happens in a simulation, `scheduler` runs it the same way each time, `world` carries it out,
`witness` checks what must hold after every step. `python -m tests.simulation --help` runs many.
"""
