"""The agents, one folder each."""
