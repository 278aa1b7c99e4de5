"""What the attacks on C and on the size of the features share."""

from __future__ import annotations

import warnings

import numpy as np

from tests.attack.harness import Wrong


def sized(X, rng: np.random.Generator):
    """Features of any size, sometimes with a column of another one, in float32 or float64."""
    X = X * 10.0 ** rng.integers(-8, 9)
    if rng.random() < 0.3:
        X[:, rng.integers(X.shape[1])] *= 10.0 ** rng.integers(-8, 9)
    return X.astype(rng.choice(["float32", "float64"]))


def description(model, X) -> str:
    """A fit in words."""
    return f"{model!r} on X of {X.dtype}, largest entry {np.abs(X).max():.3g}"


def fit(model, X, y, how: str) -> list[str] | None:
    """Fits; what was warned of, or None where it was refused in one line.

    Args:
        how: the fit in words.

    Raises:
        Wrong: a refusal of several lines, or a warning of anything but the end of the fit.
    """
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(X, y)
        except ValueError as refusal:
            if "\n" in str(refusal):
                raise Wrong(f"{how}: refused by more than a line: {refusal}") from None
            return None
    said = [str(warning.message) for warning in caught]
    if any(not issubclass(warning.category, ConvergenceWarning) for warning in caught):
        raise Wrong(f"{how}: warns of {said}")
    return said
