"""Probabilities of linear classifiers whose loss is a likelihood, or that are calibrated."""

from __future__ import annotations

import numpy as np
from sklearn.utils.metaestimators import available_if

from xmcjax._links import SIGMOID, log_probabilities, probabilities


def _known(classifier) -> bool:
    return classifier._link is not None


class Probabilities:
    """Adds ``predict_proba`` to a linear classifier; it is there where ``_link`` is not None."""

    _link: str | None

    @available_if(_known)
    def predict_proba(self, X):
        """Probabilities of the classes [n, K], whose rows sum to 1.

        After a fit of a label matrix they are those of the labels, [n, L]: of `OneVsAllClassifier` each label
        by itself, of the others the softmax over all labels, so that rows sum to 1 as well.

        With a calibration, a z + b takes the place of a score z. For classes trained one by one it is their
        log-odds; since a row has exactly one class, each probability is in proportion to e^{a z + b}.

        Raises:
            ValueError: as :meth:`decision_function`.
        """
        return probabilities(*self._link_and_scores(X))

    @available_if(_known)
    def predict_log_proba(self, X):
        """Logarithms of the probabilities of :meth:`predict_proba`."""
        return log_probabilities(*self._link_and_scores(X))

    def _link_and_scores(self, X) -> tuple[str, np.ndarray]:
        """How scores become probabilities, and the scores of all classes, [n, K], to be overwritten."""
        scores = self.decision_function(X)  # type: ignore[attr-defined]
        calibration = getattr(self, "calibration_", None)
        if calibration is not None:
            scores = calibration.apply(scores)
        if scores.ndim == 1:  # σ(∓z)
            return SIGMOID, np.stack([-scores, scores], axis=1)
        return self._link or SIGMOID, scores
