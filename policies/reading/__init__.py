"""Policy text to records, with every problem named at its line and column.

Rows, each importing only those above it: nodes, scalars, yaml_text, json_text, toml_text, records, source,
hints, shapes, fitting, convert, whole, rewriting, contracts, spellings, reader, comments, emit, migrate.
"""

from .reader import check_policy as check_policy
from .reader import load_policies as load_policies
from .reader import parse_policies as parse_policies
