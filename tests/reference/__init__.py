"""A reference implementation of the policy language: every rule family evaluated naively over the whole session.

Modules, each importing only those above it: trace; selecting; one file a family; keyed; stacks; engine.
`certificates` is a second reading of proofs.
"""
