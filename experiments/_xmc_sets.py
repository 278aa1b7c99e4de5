"""Sets of the Extreme Classification Repository, as :mod:`xmcjax.datasets` fetches and checks them."""

from __future__ import annotations

from experiments import _data
from xmcjax import datasets

SETS = tuple(name for name, found in datasets.SETS.items() if found.reader == "pecos")


def load(name: str) -> _data.Split:
    """Features and labels of both parts.

    Args:
        name: of ``SETS``.

    Raises:
        ValueError: a file that differs from the one read before, or a set of another shape.
        FileNotFoundError: it is neither there nor to be fetched.
    """
    return _data.Split(*_data.fetch(name)[:4])
