"""The data set that ships with the package (naics2017/README.md: origin and licence)."""

from __future__ import annotations

import importlib.resources
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax.data._svmlight import load_svmlight

_N_FEATURES = 8216
_N_CLASSES = 1055


class Demo(NamedTuple):
    """NAICS 2017: index entries of the industry classification, word counts, one code per entry.

    Attributes:
        X_train: CSR [16108, 8216], counts.
        Y_train: CSR [16108, 1055], one label per row.
        X_test: CSR [3949, 8216].
        Y_test: CSR [3949, 1055].
        class_names: the six-digit NAICS code of each label.
        words: the word that each feature counts.

    Example:
        >>> from xmcjax.data import load_demo
        >>> demo = load_demo()
        >>> demo.class_names[0], demo.X_train.shape
        ('111110', (16108, 8216))
    """

    X_train: sp.csr_matrix
    Y_train: sp.csr_matrix
    X_test: sp.csr_matrix
    Y_test: sp.csr_matrix
    class_names: list[str]
    words: list[str]


def load_demo() -> Demo:
    """Reads the data set of ``xmcjax demo``: 1,055 classes, short texts, public domain.

    Labels 0 … 1054 are the file's classes 1 … 1055. 14 rows of the test part have no known word.

    Example:
        >>> demo = load_demo()
        >>> demo.Y_train.shape
        (16108, 1055)
    """
    import lzma

    with importlib.resources.as_file(importlib.resources.files("xmcjax.data") / "naics2017") as folder:
        X_train, y_train = load_svmlight(folder / "train.libsvm.xz", n_features=_N_FEATURES)
        X_test, y_test = load_svmlight(folder / "test.libsvm.xz", n_features=_N_FEATURES)
        class_names = (folder / "classes.txt").read_text("ascii").split()
        words = lzma.decompress((folder / "vocab.txt.xz").read_bytes()).decode("ascii").split()
    return Demo(X_train, _one_label(y_train), X_test, _one_label(y_test), class_names, words)


def _one_label(classes: np.ndarray) -> sp.csr_matrix:
    """Classes counted from 1 as a label matrix."""
    n = classes.size
    return sp.csr_matrix((np.ones(n, np.float32), classes - 1, np.arange(n + 1)), (n, _N_CLASSES))
