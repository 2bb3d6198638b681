"""YAML, JSON and TOML: a text to the same tree, each value with its place."""
