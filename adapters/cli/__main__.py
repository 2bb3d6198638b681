"""`python -m proctor.adapters.cli` is `proctor`."""

from . import main

main()
