"""What proctor costs, measured beside what it is compared with.

`python -m benchmarks [--quick] [NAME]...` runs all or some, prints their table, notes the figures in
`history.jsonl` and rewrites the tables of `docs/benchmarks.md` and its plots. Each benchmark is one file with
one function, `run(size) -> list[Row]`.
"""
