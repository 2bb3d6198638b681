"""A second reading of the policy language: every rule family judged naively, over the whole session, from its text.

Rows, each importing only those above it: trace; selecting; one file a family; keyed; stacks; engine.
"""
