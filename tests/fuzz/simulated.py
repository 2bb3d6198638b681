"""A whole supervisor in virtual time, a thousand seeds a share."""

import structlog

from ..simulation.plans import drawn
from ..simulation.world import simulate
from .ledger import Share

SEEDS = 1_000


def simulated(seed: int, number: int) -> Share:
    """The seeds of one share; those of `tests/simulation/test_simulation.py` are the first of them."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    first = (seed - 1) * 10_000_000 + number * SEEDS
    found = [(n, text) for n in range(first, first + SEEDS) for text in simulate(drawn(n))[:1]]
    return Share({"simulations": SEEDS}, [f"seed {n}: {text}" for n, text in found])
