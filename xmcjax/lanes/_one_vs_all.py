"""One-vs-all training: every label a lane."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xmcjax import _sparse
from xmcjax._cores import blas_threads
from xmcjax.lanes._label_weights import LabelWeights
from xmcjax.lanes._lanes import StepRecord
from xmcjax.lanes._newton_trainer import NewtonTrainer
from xmcjax.lanes._options import OneVsAll
from xmcjax.lanes._precision import precision
from xmcjax.lanes._queue import make_queue
from xmcjax.lanes._results import LabelResult, Summary
from xmcjax.lanes._trainer import Trainer
from xmcjax.lanes._training_data import all_labels, check_labels


def make_trainer(
    X,
    Y,
    sample_weight: np.ndarray | None,
    label_weights: LabelWeights | None,
    options: OneVsAll,
    sink: Callable[[LabelResult], None],
    observe: Callable[[StepRecord], None] | None,
) -> Trainer:
    """The trainer for the loss: by Newton's method, or by the dual of a loss without curvature.

    Args:
        X, Y, sample_weight, label_weights, options, sink, observe: of :func:`train_one_vs_all`, which calls
            this within :func:`xmcjax.lanes.precision`.

    Example:
        >>> import scipy.sparse as sp
        >>> from xmcjax.lanes import OneVsAll, make_queue, make_trainer
        >>> X, Y, results = np.eye(4, dtype=np.float32), sp.csc_array(np.eye(4)), []
        >>> trainer = make_trainer(X, Y, None, None, OneVsAll(), results.append, None)
        >>> summary = trainer.run(make_queue(trainer.Y, np.array([3, 1]), tree=False))
        >>> sorted(result.label for result in results)
        [1, 3]
    """
    kind: type[Trainer] = NewtonTrainer
    if not options.loss.smooth:
        # importing it takes a twentieth of a second
        from xmcjax.lanes._hinge_trainer import HingeTrainer

        kind = HingeTrainer
    with blas_threads(1):  # as in `Trainer.run`
        return kind(X, Y, sample_weight, label_weights, options, sink, observe)


def train_one_vs_all(
    X,
    Y,
    options: OneVsAll,
    sink: Callable[[LabelResult], None],
    *,
    sample_weight: np.ndarray | None = None,
    label_weights: LabelWeights | None = None,
    labels: np.ndarray | None = None,
    may_begin: Callable[[int], bool] | None = None,
    observe: Callable[[StepRecord], None] | None = None,
) -> Summary:
    """Trains one binary classifier a label and hands each to `sink` when it is done.

    Nothing is kept: memory does not grow with the number of labels.

    Args:
        X: features, scipy.sparse or dense [n, d], finite. Those in float64 are trained in float64, all others
            in float32, whatever ``jax_enable_x64`` is.
        Y: labels, scipy.sparse [n, L]; every stored non-zero is a label.
        options: how.
        sink: called with each label's result, in the order in which they end, one call at a time.
        sample_weight: s ≥ 0, [n]; a weight of 2 is the same as the row twice, 0 as without it, in
            the starting weights and the stopping rule too. None for ones.
        label_weights: of the rows with and without each label, besides s; they change neither
            starting weights nor the share of positives in the stopping rule. None for ones.
        labels: numbers of the labels to train, in the order in which they are begun; None for all, those
            with the most positives first, which is the fastest order.
        may_begin: asked before a label is begun, in the order of `labels`, one call at a time; after
            the first no, no other is begun, and those under way are finished. Not with an
            initialisation that takes labels in an order of its own (``Init.tree``).
        observe: called with the numbers of every Newton step, for figures, one call at a time; not with the
            hinge, which has none.

    Raises:
        TypeError: X or Y is no matrix of real numbers, or JAX cannot work out a loss for arrays.
        ValueError: a loss that is not convex or below 0 at some margins; a malformed matrix; X, Y and
            sample_weight of different length, no rows, a value of X that is not finite, a weight that is
            not finite or negative, or no weight above zero; C times a weight outside the range of X's type;
            `may_begin` with a tree; `observe` with the hinge.

    Example:
        >>> import scipy.sparse as sp
        >>> X, Y, found = np.eye(4), sp.csr_matrix(np.eye(4)), []
        >>> summary = train_one_vs_all(X, Y, OneVsAll(C=10.0), found.append)
        >>> sorted(result.label for result in found)
        [0, 1, 2, 3]
    """
    if may_begin is not None and options.init.tree:
        raise ValueError(
            f"init {options.init.name} takes labels in the order of its tree: it cannot be told to begin "
            "no other"
        )
    X = _sparse.matrix(X)
    with precision(X.dtype):
        trainer = make_trainer(X, Y, sample_weight, label_weights, options, sink, observe)
        del X  # which may be a copy in another format
        labels = all_labels(trainer.Y) if labels is None else check_labels(labels, trainer.Y.shape[1])
        tree = options.init.tree and options.max_iter > 0
        return trainer.run(
            make_queue(
                trainer.Y,
                labels,
                tree=tree,
                weight=trainer.weight,
                threads=trainer.workers,
                may_begin=may_begin,
            ),
            set(labels.tolist()) if tree else None,
        )
