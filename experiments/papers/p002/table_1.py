"""Sizes of the sets and of their weights, beside Table 1 of Gopal and Yang, 2013.

    python -m experiments.papers.p002.table_1 [--small|--full] [--out results]

CLEF is the paper's set; news20_bydate is another version of its NEWS20, and naics2017 stands for the LSHTC
sets. Writes p002_table_1.json and .md.
"""

from __future__ import annotations

import dataclasses

from experiments import _report
from experiments.papers import _sizes

NAME = "p002_table_1"
# Rows, classes, features, parameters, and the sizes of the training set and of the parameters.
PAPER = {
    "CLEF": ("10,000", "63", "80", "5,040", "3 MB", "40 KB"),
    "NEWS20": ("11,260", "20", "53,975", "1,079,500", "11 MB", "4 MB"),
    "LSHTC-small": ("4,463", "1,139", "51,033", "58,126,587", "5 MB", "232 MB"),
    "LSHTC-large": ("93,805", "12,294", "347,256", "4,269,165,264", "129 MB", "17 GB"),
}


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized, small=dict(sets=("digits",))):
    """Sizes of sets.

    Attributes:
        sets: of experiments._multiclass.SETS.
        small: scikit-learn's digits.
        full: as without it.
    """

    sets: tuple[str, ...] = ("clef", "news20_bydate", "naics2017")


def run(options: Options) -> dict:
    """The sizes."""
    return {"rows": _sizes.sizes(options.sets)}


def markdown(result: dict) -> str:
    """Ours, then the paper's."""
    ours = [
        (
            r["set"],
            *(f"{number:,}" for number in (r["train"], r["classes"], r["features"])),
            f"{r['classes'] * r['features']:,}",
            f"{r['train_mb']:.1f} MB",
            f"{r['weights_mb']:.3g} MB",
        )
        for r in result["rows"]
    ]
    paper = [(f"*{name}*", *(f"*{number}*" for number in numbers)) for name, numbers in PAPER.items()]
    header = ("set", "rows", "classes", "features", "parameters", "training set", "weights, float32")
    return _report.markdown_table(header, ours + paper) + "\nIn italics the paper's sets.\n"


if __name__ == "__main__":
    _report.main(NAME, Options, __doc__, run, markdown)
