"""Mutants of the product, each run against the tests that should notice: `python -m tests.mutation`."""
