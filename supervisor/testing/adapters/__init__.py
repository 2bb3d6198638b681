"""The conformance suite of adapters."""
