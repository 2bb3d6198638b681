"""The parts rules are written in: values, regular expressions, paths, conditions, tool names.

Rows, each importing only those above it: records, values, regexes, paths, globs, operators, operands, conditions,
condition_words, predicates, selectors.
"""
