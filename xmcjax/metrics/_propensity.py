"""Inverse propensities of labels and the constants of known data sets.

Reference: H. Jain, Y. Prabhu, M. Varma, Extreme multi-label loss functions for recommendation,
tagging, ranking & other missing label applications, KDD 2016, section 4.
"""

from __future__ import annotations

import numpy as np

from xmcjax._arguments import number
from xmcjax.metrics._labels import as_label_matrix

_DEFAULT = (0.55, 1.5)
_AMAZON = (0.6, 2.6)
_WIKIPEDIA = (0.5, 0.4)

# (A, B) by data set, as used for the tables of the Extreme Classification Repository. The three
# first rows are the families, for sets not named. AmazonCat uses the default, not Amazon's pair.
PROPENSITY_PRESETS: dict[str, tuple[float, float]] = {
    "default": _DEFAULT,
    "Amazon": _AMAZON,
    "Wikipedia": _WIKIPEDIA,
    "Mediamill": _DEFAULT,
    "Bibtex": _DEFAULT,
    "Delicious": _DEFAULT,
    "RCV1-2K": _DEFAULT,
    "EURLex-4K": _DEFAULT,
    "AmazonCat-13K": _DEFAULT,
    "AmazonCat-14K": _DEFAULT,
    "Wiki10-31K": _DEFAULT,
    "Delicious-200K": _DEFAULT,
    "WikiLSHTC-325K": _WIKIPEDIA,
    "WikiSeeAlsoTitles-350K": _DEFAULT,
    "WikiTitles-500K": _WIKIPEDIA,
    "Wikipedia-500K": _WIKIPEDIA,
    "Amazon-670K": _AMAZON,
    "AmazonTitles-670K": _AMAZON,
    "AmazonTitles-3M": _AMAZON,
    "Amazon-3M": _AMAZON,
    "LF-Amazon-131K": _AMAZON,
    "LF-AmazonTitles-131K": _AMAZON,
    "LF-AmazonTitles-1.3M": _AMAZON,
    "LF-WikiSeeAlso-320K": _DEFAULT,
    "LF-WikiSeeAlsoTitles-320K": _DEFAULT,
    "LF-Wikipedia-500K": _WIKIPEDIA,
    "LF-WikipediaTitles-500K": _WIKIPEDIA,
}


def _key(name: str) -> str:
    return "".join(c for c in name.lower() if c not in "-_ ")


def propensity_preset(dataset: str) -> tuple[float, float]:
    """The constants (A, B) of a data set of the Extreme Classification Repository.

    Args:
        dataset: its name; case, hyphens, underscores and blanks do not matter. "Amazon",
            "Wikipedia" and "default" name the three families.

    Raises:
        TypeError: no name.
        ValueError: an unknown name; the message lists the known ones.

    Example:
        >>> propensity_preset("wikipedia")
        (0.5, 0.4)
    """
    if not isinstance(dataset, str):
        raise TypeError(f"dataset: expected the name of a data set, found {dataset!r}")
    by_key = {_key(name): constants for name, constants in PROPENSITY_PRESETS.items()}
    if _key(dataset) not in by_key:
        raise ValueError(
            f"dataset: expected one of {', '.join(PROPENSITY_PRESETS)}, found {dataset!r}; "
            "give a and b for another set"
        )
    return by_key[_key(dataset)]


def inverse_propensities(
    Y_train, a: float = 0.55, b: float = 1.5, *, dataset: str | None = None
) -> np.ndarray:
    """The inverse propensity of each label, from its number of training rows.

    .. math:: q_l = 1/p_l = 1 + C (N_l + b)^{-a}, \\qquad C = (\\ln n - 1)(b + 1)^a

    with N_l the number of the n training rows that carry label l.

    Args:
        Y_train: 0/1 label matrix of the training part, [n, L], sparse or dense.
        a: the exponent, 0.55 by default; 0.6 for Amazon, 0.5 for Wikipedia.
        b: the offset of the counts, 1.5 by default; 2.6 for Amazon, 0.4 for Wikipedia.
        dataset: a name of `PROPENSITY_PRESETS` in place of a and b.

    Returns:
        q, float64 [L], larger for rarer labels.

    Raises:
        ValueError: fewer than 3 rows (propensities would exceed 1), a or b not positive, an
            unknown data set, or both a data set and constants.

    Example:
        >>> import numpy as np
        >>> inverse_propensities(np.eye(20)[:, :2]).round(4)
        array([2.9957, 2.9957])
    """
    if dataset is not None:
        if (a, b) != _DEFAULT:
            raise ValueError(f"expected either dataset or a and b, found dataset={dataset!r}, a={a}, b={b}")
        a, b = propensity_preset(dataset)
    for name, value in (("a", a), ("b", b)):
        if not 0 < number(name, value) < np.inf:
            raise ValueError(f"{name}: expected a positive number, found {value}")
    Y = as_label_matrix(Y_train, "Y_train")
    n, n_labels = Y.shape
    if n < 3:
        raise ValueError(f"Y_train: expected at least 3 rows, found {n}")
    counts = np.bincount(Y.indices, minlength=n_labels).astype(np.float64)
    # q_l = 1 + (ln n − 1)(b + 1)^a (N_l + b)^(−a)
    with np.errstate(over="ignore", invalid="ignore"):
        q = 1.0 + (np.log(n) - 1.0) * np.power(b + 1.0, np.float64(a)) * (counts + b) ** -np.float64(a)
    if not np.isfinite(q).all():
        raise ValueError(f"expected a and b whose inverse propensities are finite, found a = {a}, b = {b}")
    return q
