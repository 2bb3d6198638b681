"""`python -m proctor` is `proctor`."""

from proctor.adapters.cli import main

if __name__ == "__main__":
    main()
