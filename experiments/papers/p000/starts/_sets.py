"""The sets of the study, by name.

"NAME" of experiments._data, of the Extreme Classification Repository (experiments._xmc_sets) or
"naics2017"; "power_law:LABELS", with 50,000 features and half as many rows as labels, at least 20,000, or
"power_law:LABELSxROWSxFEATURES", with 40 non-zeros and 5 labels per row;
"overlapping:LABELSxROWSxFEATURES", where ten labels each share most of their rows;
"NAME:svd300" for 300 dense features of a truncated singular value decomposition.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from experiments import _data, _xmc_sets
from xmcjax.data import load_xmc
from xmcjax.inits import label_tree

# Dense sets stop at ‖∇f‖ ≤ … with this ε₀, sparse ones with the usual 0.01, as in the paper.
DENSE_EPS, SPARSE_EPS = 1.0, 0.01
# Other names of sets: naics2017 comes with the package as naics_demo.
SAME = {"naics2017": "naics_demo"}


class Set(NamedTuple):
    """A set as it is trained."""

    name: str
    split: _data.Split
    setting: str  #: "tf-idf", "dense" or "sparse"
    eps: float


def load(name: str) -> Set:
    """The set of this name.

    Raises:
        ValueError: there is no such set.
        FileNotFoundError: its files are not there.
    """
    check(name)
    base, _, parameter = name.partition(":")
    if base == "power_law":
        return Set(name, _power_law(parameter), "tf-idf", SPARSE_EPS)
    if base == "overlapping":
        return Set(name, _overlapping(*map(int, parameter.split("x"))), "tf-idf", SPARSE_EPS)
    if parameter:
        return Set(name, _reduced(_split(base), int(parameter[3:])), "dense", DENSE_EPS)
    if base == "yeast_gasch1_go":
        return Set(name, _yeast(), "dense", DENSE_EPS)
    transforms = _data.TRANSFORMS.get(SAME.get(base, base), "")
    weighted = "idf" in transforms or base in _xmc_sets.SETS
    return Set(name, _split(base), "tf-idf" if weighted else "sparse", SPARSE_EPS)


def check(name: str) -> None:
    """Raises ValueError if no set has this name."""
    base, _, parameter = name.partition(":")
    if base == "power_law":
        numbers = parameter.split("x")
        if len(numbers) not in (1, 3) or not all(number.isdigit() for number in numbers):
            raise ValueError(f"expected power_law:LABELS or power_law:LABELSxROWSxFEATURES, got {name}")
        return
    if base == "overlapping":
        numbers = parameter.split("x")
        if len(numbers) != 3 or not all(number.isdigit() and int(number) >= 10 for number in numbers):
            raise ValueError(f"expected overlapping:LABELSxROWSxFEATURES of at least 10 each, got {name}")
        return
    known = [*_data.TRANSFORMS, *SAME, "yeast_gasch1_go", *_xmc_sets.SETS]
    if base not in known:
        raise ValueError(f"expected a set of {', '.join(known)}, or power_law:LABELS, got {name!r}")
    if parameter and not (parameter.startswith("svd") and parameter[3:].isdigit()):
        raise ValueError(f"{name}: expected NAME:svd and a number of features after the colon")


def _split(name: str) -> _data.Split:
    if name in _xmc_sets.SETS:
        return _xmc_sets.load(name)
    return _data.load_split(SAME.get(name, name))


def _power_law(parameter: str) -> _data.Split:
    """A synthetic power-law set; a fifth more rows than asked for are made for the test part."""
    numbers = parameter.split("x")
    labels = int(numbers[0])
    rows, features = map(int, numbers[1:] or (max(20_000, labels // 2), 50_000))
    options = dict(labels_per_row=min(5, labels), nonzeros_per_row=40)
    return _data.transformed(_data.power_law(rows, rows // 5, features, labels, **options), "log,idf,unit")


def _overlapping(labels: int, rows: int, features: int) -> _data.Split:
    """Each row is of one group of ten labels, and has each of them with probability 0.8.

    Half of the words of a row are words of the group, half are any words. Two labels of a group share 0.64 of
    its rows and differ in 0.32, so that a label is nearer to another one than to the label without rows. A
    fifth more rows are made for the test part.
    """
    rng = np.random.default_rng(0)
    groups, all_rows = labels // 10, rows + rows // 5
    group = rng.integers(groups, size=all_rows)
    words = rng.integers(features, size=(groups, 50))
    own = np.take_along_axis(words[group], rng.integers(50, size=(all_rows, 20)), axis=1)
    columns = np.hstack([own, rng.integers(features, size=(all_rows, 20))])
    row = np.repeat(np.arange(all_rows), 40)
    X = sp.csr_matrix((np.ones(row.size, np.float32), (row, columns.ravel())), shape=(all_rows, features))
    has = rng.random((all_rows, 10)) < 0.8
    row, member = np.nonzero(has)
    Y = sp.csr_matrix(
        (np.ones(row.size, np.float32), (row, 10 * group[row] + member)), shape=(all_rows, labels)
    )
    return _data.transformed(_data.Split(X[:rows], Y[:rows], X[rows:], Y[rows:]), "log,idf,unit")


def tree_facts(Y) -> dict:
    """What a tree of starts can gain: see :func:`xmcjax.inits.label_tree`.

    Returns:
        ``children``: the share of the labels with rows that start from another label instead of the root,
        which has no rows; ``spared``: by how much, as a part of all positives, the labels are nearer to their
        parents than to the root in Hamming distance.
    """
    Y = sp.csc_array(sp.csc_matrix(Y, dtype=np.float64))
    Y.data[:] = 1
    positives = np.diff(Y.indptr)
    parents = label_tree(Y)
    child = np.flatnonzero((parents >= 0) & (positives > 0))
    common = np.asarray(Y[:, child].multiply(Y[:, parents[child]]).sum(axis=0)).ravel()
    # |P| − |P △ P'| = 2 |P ∩ P'| − |P'|
    nearer = 2 * common - positives[parents[child]]
    return {
        "children": float(len(child) / max(1, np.count_nonzero(positives))),
        "spared": float(nearer.sum() / max(1, positives.sum())),
    }


def _reduced(split: _data.Split, size: int) -> _data.Split:
    """Rows of the left singular vectors times the singular values, of norm 1; fitted on the training part."""
    from sklearn.decomposition import TruncatedSVD

    fitted = TruncatedSVD(size, random_state=0).fit(split.X)

    def apply(X):
        reduced = fitted.transform(X)
        norms = np.linalg.norm(reduced, axis=1, keepdims=True)
        return (reduced / np.where(norms > 0, norms, 1)).astype(np.float32)

    return split._replace(X=apply(split.X), X_test=apply(split.X_test))


def _yeast() -> _data.Split:
    """Expression levels, dense, standardised by the training part (mean 0, deviation 1), rows of norm 1."""
    files = _data.folder() / "yeast_gasch1_go"
    X, Y = load_xmc(files / "train.txt.xz")
    X_test, Y_test = load_xmc(files / "test.txt.xz")
    X, X_test = (sp.csr_matrix(A).toarray().astype(np.float64) for A in (X, X_test))
    mean, deviation = X.mean(axis=0), X.std(axis=0)

    def apply(A):
        A = (A - mean) / np.where(deviation > 0, deviation, 1)
        return (A / np.linalg.norm(A, axis=1, keepdims=True)).astype(np.float32)

    return _data.Split(apply(X), Y, apply(X_test), Y_test)
