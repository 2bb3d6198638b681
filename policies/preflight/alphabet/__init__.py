"""The finite classes of calls that preflight tells apart."""
