"""YAML, JSON and TOML: a text to the same tree, each value with its place."""

ROOMS = (
    "source",  # from what a caller hands over - text, bytes, a mapping - to one tree of nodes
    "json_text",  # JSON text to nodes
    "toml_text",  # TOML text to nodes
    "yaml_text",  # YAML text to nodes
    "scalars",  # what an unquoted YAML word means
)
