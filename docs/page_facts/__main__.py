"""Write today's facts into every page: `python -m docs.page_facts`."""

from __future__ import annotations

from . import ROOT, pages, written

for page in pages():
    text = written(page)
    if text != page.read_text(encoding="utf-8"):
        page.write_text(text, encoding="utf-8")
        print(page.relative_to(ROOT))
