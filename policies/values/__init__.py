"""Values and how they compare: equality, paths, regular expressions, globs, canonical JSON."""
