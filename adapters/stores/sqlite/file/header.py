"""What the first bytes of a file say of it."""

from __future__ import annotations

from pathlib import Path

from .descriptors import HEADER_SIZE, read_header

MAGIC = b"SQLite format 3\x00"


def is_cut_short(path: Path) -> bool:
    """Whether the file is shorter than its own header says."""
    try:
        header, size = read_header(path), path.stat().st_size
    except OSError:
        return False
    if len(header) < HEADER_SIZE:
        return False
    page_size = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    return size < pages * (65536 if page_size == 1 else page_size)
