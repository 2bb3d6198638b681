"""What proctor costs and what its policies achieve, measured beside what each is compared with.

`python -m benchmarks [NAME]...` measures costs: it notes the figures in `history.jsonl` and rewrites the tables of
`docs/benchmarks.md`. A benchmark is one function, `name(size) -> list[Row]`; `__main__` lists them.
`python -m benchmarks.evidence [NAME]...` runs everything that is claimed with figures, and writes their pages.
"""
