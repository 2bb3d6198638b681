"""Old policy files rewritten in the current spelling, comments kept."""

ROOMS = (
    "migrate",  # any accepted format and spelling to YAML of this language
    "emit",  # nodes to YAML as a person would write it
    "comments",  # the comments of a YAML text, each kept with the line it speaks of
)
