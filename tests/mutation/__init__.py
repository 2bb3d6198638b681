"""Mutants of the product, each run against the tests that should notice it: `python -m tests.mutation`."""
