"""Values and how they compare: equality, paths, regular expressions, globs, canonical JSON."""

ROOMS = (
    "foreign",  # code of others, called so that it harms nothing but itself
    "canonical",  # what is wrong with a piece of JSON, in words
    "globs",  # tool patterns
    "paths",  # paths into JSON: the subset of RFC 9535 that the policy language spells
    "aliased",  # objects whose members are also found by other names
    "places",  # places in a file system by their text alone
    "circles",  # circles among names that lead to one another
    "equality",  # when two JSON values are the same, which comes first, and what text they hold
    "regexes",  # regular expressions in linear time
    "durations",  # amounts of time as people write them
    "complaints",  # what a check of written text finds wrong, and where
)
