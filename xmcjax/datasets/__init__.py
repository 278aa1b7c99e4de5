"""Data sets by name, from a folder or from their publishers, and synthetic ones.

The download needs pooch (``pip install "xmcjax[datasets]"``); the rest needs NumPy and SciPy::

    bibtex = datasets.fetch("bibtex")
    X, y = datasets.make_texts(2_000, 1_000, 100)
"""

from xmcjax.data import make_power_law as make_power_law
from xmcjax.datasets._fetch import Fetched as Fetched
from xmcjax.datasets._fetch import fetch as fetch
from xmcjax.datasets._hierarchy import TreeData as TreeData
from xmcjax.datasets._hierarchy import make_hierarchy as make_hierarchy
from xmcjax.datasets._registry import SETS as SETS
from xmcjax.datasets._registry import DataSet as DataSet
from xmcjax.datasets._registry import File as File
from xmcjax.datasets._registry import names as names
from xmcjax.datasets._registry import table as table
from xmcjax.datasets._texts import make_texts as make_texts
