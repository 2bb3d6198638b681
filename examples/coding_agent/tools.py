"""A coding agent has a shell and files, nothing else."""

TOOLS = {}
