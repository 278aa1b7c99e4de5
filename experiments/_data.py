"""Real data sets for experiments: a folder that ``XMCJAX_DATA`` names, or shared/data beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import scipy.sparse as sp

from xmcjax.data import fit_transforms, load_demo, load_xmc

ROOT = Path(__file__).resolve().parent.parent

# The transforms with which a set is usually trained.
TRANSFORMS = {
    "naics_demo": "log,idf,unit",
    "stackexchange_tags": "log,idf,unit",
    "delicious": "unit",
    "bibtex": "unit",
    "rcv1_subset1": "unit",
}


class Split(NamedTuple):
    """Transformed features and labels of the two parts."""

    X: sp.csr_matrix
    Y: sp.csr_matrix
    X_test: sp.csr_matrix
    Y_test: sp.csr_matrix


def folder() -> Path:
    """Of the data sets; FileNotFoundError where there is none."""
    path = Path(os.environ.get("XMCJAX_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: expected a folder of data sets; set XMCJAX_DATA")
    return path


def load_split(name: str, transforms: str | None = None) -> Split:
    """A multi-label set by name; "naics_demo" comes with the package.

    Args:
        name: of ``TRANSFORMS``.
        transforms: None for the usual ones.
    """
    if name == "naics_demo":
        demo = load_demo()
        parts = (demo.X_train, demo.Y_train, demo.X_test, demo.Y_test)
    else:
        files = folder() / name
        parts = (*load_xmc(files / "train.txt.xz"), *load_xmc(files / "test.txt.xz"))
    X, Y, X_test, Y_test = parts
    fitted = fit_transforms(transforms or TRANSFORMS[name], X)
    return Split(fitted.apply(X), Y, fitted.apply(X_test), Y_test)
