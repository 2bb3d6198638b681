"""Policy text to records, with every problem named at its line and column."""

from .folders import load_policies as load_policies
from .reader import check_policy as check_policy
from .reader import parse_policies as parse_policies

ROOMS = (
    "migrating",  # old policy files rewritten in the current spelling, comments kept
    "folders",  # a directory of policy files, in name order
    "reader",  # policy text, bytes, mappings and files to policies
    "schema",  # the JSON Schema of a policy file, made from the records
    "convert",  # A tree of nodes to a record, generic over the records' types, collecting every problem
    "cross_checks",  # checks on a policy as a whole, which no single record of it can make
    "dialects",  # other spellings of policies in use, rewritten as this one
    "node_checks",  # small questions about nodes, shapes and records that converting asks
    "formats",  # YAML, JSON and TOML: a text to the same tree, each value with its place
    "records_tree",  # values made in Python - dicts, lists, records - to the same tree a text gives, without places
    "shapes",  # the types of the records' fields, in the few kinds that a reader and a JSON Schema tell apart
    "suggestions",  # what somebody probably meant by a word that is not known
    "tree",  # the tree a policy text is read into, whatever its format, and the problems found on the way
)
