"""Simulates a whole supervisor in virtual time: a seed chooses which task runs next, and what fails when.

`plans` describes a simulation, `scheduler` makes it deterministic, `world` runs it, `witness` checks the invariants
after every step. `python -m tests.simulation --help` runs many.
"""
