"""Sizes of the sets that stand for LSHTC, beside Table 2 of Alber et al. 2017.

    python -m experiments.papers.p001.table_2 [--small|--full] [--out results]

The LSHTC sets cannot be had. Writes p001_table_2.json and .md.
"""

from __future__ import annotations

import dataclasses

from experiments import _report
from experiments.papers import _sizes
from experiments.papers.p001.published import TABLE_2

NAME = "p001_table_2"


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized, small=dict(sets=("digits",))):
    """Sizes of sets.

    Attributes:
        sets: of experiments._multiclass.SETS.
        small: scikit-learn's digits.
        full: as without it.
    """

    sets: tuple[str, ...] = ("naics2017", "clinc150")


def run(options: Options) -> dict:
    """The sizes."""
    return {"rows": _sizes.sizes(options.sets)}


def markdown(result: dict) -> str:
    """Ours, then the paper's."""
    ours = [
        (r["set"], f"{r['train']:,}", f"{r['test']:,}", f"{r['classes']:,}", f"{r['features']:,}")
        for r in result["rows"]
    ]
    paper = [(f"*{name}*", *(f"*{number:,}*" for number in numbers)) for name, numbers in TABLE_2.items()]
    header = ("set", "rows", "test rows", "classes", "features")
    return _report.markdown_table(header, ours + paper) + "\nIn italics the paper's, not here.\n"


if __name__ == "__main__":
    _report.main(NAME, Options, __doc__, run, markdown)
