"""Petri nets over tools: how they are written. Rows: records, shorthand."""
