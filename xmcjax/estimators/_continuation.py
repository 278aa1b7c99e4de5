"""What a fitted one-vs-all classifier hands to its next fit: weights to start from, and weights to keep."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax.estimators._targets import Targets
from xmcjax.inits import Init, Labels, Starts, TrainingSet
from xmcjax.models import is_trained


class Weights(NamedTuple):
    """The weights of some binary problems."""

    coef: sp.csr_array  #: [m, d], in the dtype of ``coef_``
    intercept: np.ndarray  #: [m]
    status: np.ndarray  #: [m], numbers of :class:`xmcjax.solvers.Status`
    steps: np.ndarray  #: [m]

    @property
    def known(self) -> np.ndarray:
        """Whether there are weights, bool [m]."""
        return is_trained(self.status) & np.isfinite(self.intercept)

    def known_alone(self) -> Weights:
        """The weights without those of problems that are not :attr:`known`."""
        return self.at(np.where(self.known, np.arange(len(self.status)), -1))

    def at(self, places: np.ndarray) -> Weights:
        """Problems in another order; −1 is one without weights."""
        from xmcjax.solvers import Status

        there = places >= 0
        pick = sp.csr_array(
            (np.ones(there.sum(), self.coef.dtype), (np.flatnonzero(there), places[there])),
            shape=(len(places), self.coef.shape[0]),
        )
        return Weights(
            sp.csr_array(pick @ self.coef),
            np.where(there, self.intercept[places], -np.inf).astype(self.intercept.dtype),
            np.where(there, self.status[places], Status.NO_POSITIVES),
            np.where(there, self.steps[places], 0),
        )


def weights_of(classifier: Any) -> Weights:
    """A weight vector for each class or label: those of two classes, which share one, are −w and w."""
    coef, count = sp.csr_array(_sparse.matrix(classifier.coef_, "coef_")), len(classifier.intercept_)
    if coef.shape[0] != count:
        raise ValueError(f"coef_: expected {count} rows, as intercept_ has, found {coef.shape[0]}")
    found = Weights(coef, classifier.intercept_, classifier.status_, classifier.n_iter_)
    if not classifier._binary:
        return found
    return Weights(
        sp.csr_array(sp.vstack([-coef, coef])),
        np.concatenate([-found.intercept, found.intercept]),
        np.tile(found.status, 2),
        np.tile(found.steps, 2),
    )


def earlier(classifier: Any, problems: Targets) -> Weights:
    """The weights that a fitted classifier has for each problem of `problems`.

    Raises:
        ValueError: classes where it has labels of a matrix, or the other way round.
    """
    matrix = classifier._form != "classes"
    if matrix != (problems.form != "classes"):
        expected = "a label matrix" if matrix else "a class vector"
        raise ValueError(f"y: expected {expected}, as in the last fit, found another form")
    before, now = classifier.classes_, problems.classes
    if len(now) == 2 and not matrix:
        now = now[1:]  # the one problem is that of the second
    place = {kind: i for i, kind in enumerate(before.tolist())}
    return weights_of(classifier).at(np.array([place.get(kind, -1) for kind in now.tolist()], np.int64))


@dataclasses.dataclass(frozen=True, eq=False)
class Continued(Init):
    """Starts from the weights that labels have, and as another initialisation does for labels without.

    Attributes:
        base: the initialisation of labels without weights; one with a tree starts them as next to its root.
        weights: of all labels.
        near: whether these weights are taken to be near to the minimum.
    """

    base: Init
    weights: Weights
    near: bool

    name: ClassVar[str] = "continued"

    def check(self, n_features: int, n_labels: int, bias: bool) -> None:
        self.base.check(n_features, n_labels, bias)

    @property
    def replaceable(self) -> Init | None:
        return None if self.near else self.base.replaceable

    def prepare(self, data: TrainingSet):
        known = self.weights.known
        fresh = None if known.all() else self.base.prepare(data)
        coef = data.used.of(self.weights.coef.astype(np.float64))
        intercept = np.where(known, self.weights.intercept, 0) * float(data.bias)

        def starts(labels: Labels) -> Starts:
            ids, there = labels.ids, known[labels.ids]
            if fresh is None or there.all():
                return Starts(None, np.zeros(len(ids)), coef[ids], intercept[ids])
            made = fresh(labels).over(data.used)
            own, new = sp.diags_array(there.astype(float)), sp.diags_array((~there).astype(float))
            return Starts(
                made.base,
                np.where(there, 0, made.scale),
                sp.csr_array(own @ coef[ids] + new @ made.sparse),
                np.where(there, intercept[ids], made.bias),
            )

        return starts
