"""Policy text to records, with every problem named at its line and column."""

from .load import check_policy as check_policy
from .load import load_policies as load_policies
from .load import parse_policies as parse_policies

ROOMS = ("migrate", "load", "convert", "dialects", "sources", "rewriting", "yaml_source", "schema", "tree")
"""Top first: each imports only those below it."""
