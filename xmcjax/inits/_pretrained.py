"""Starts from a saved model."""

from __future__ import annotations

import copy
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.sparse as sp

from xmcjax._feature_order import moved, places_of
from xmcjax._links import SOFTMAX, link_of, of_classes
from xmcjax.inits._base import Init, Labels, Starts

if TYPE_CHECKING:
    from xmcjax.models import LinearModel


@dataclasses.dataclass(frozen=True)
class Pretrained(Init):
    """Starts with the weights of a model that was trained before on the same features and labels.

    A training without transforms of its own needs features as the transforms of the model make them; with
    ``frequency`` raw ones stand at other places.

    A model of two classes also starts a training of one label, which may be a class vector or the one column
    of a label matrix: this label starts as the second class.

    Attributes:
        pretrained: the model's directory.

    Example:
        >>> Pretrained("my-model").pretrained
        'my-model'
    """

    pretrained: str | os.PathLike[str] = ""

    name: ClassVar[str] = "pretrained"
    #: What :meth:`of_features` was told; empty before. No field, as it is none of the options.
    _order: ClassVar[tuple[np.ndarray | None, ...]] = ()
    #: Hash of the manifest that :meth:`for_workers` has seen; empty before. No field either.
    _sha256: ClassVar[str] = ""

    def __post_init__(self):
        if not isinstance(self.pretrained, str | os.PathLike):
            raise TypeError(f"pretrained: expected the directory of a model, got {self.pretrained!r}")

    def check(self, n_features, n_labels, bias):
        self._load(n_features, n_labels)

    def _opened(self) -> LinearModel:
        from xmcjax.models import LinearModel

        if not self.pretrained:
            raise ValueError("init 'pretrained' needs the directory of a model, got none")
        model = LinearModel.load(self.pretrained)
        if self._sha256 not in ("", model.manifest_sha256):
            raise ValueError(f"{self.pretrained}: expected the model of the client, found another one")
        return model

    def _load(self, n_features: int, n_labels: int) -> LinearModel:
        model = self._opened()
        same = model.n_labels == n_labels or _has_the_classes_of(model, n_labels)
        if model.n_features != n_features or not same:
            raise ValueError(
                f"{self.pretrained}: expected a model of {n_features} features and {n_labels} labels, "
                f"found {model.n_features} and {model.n_labels}"
            )
        return model

    def of_features(self, order):
        made = copy.copy(self)
        object.__setattr__(made, "_order", (order,))
        return made

    def for_workers(self):
        made = copy.copy(self)
        object.__setattr__(made, "_sha256", self._opened().manifest_sha256)
        object.__setattr__(made, "pretrained", Path(self.pretrained).absolute())
        return made

    def prepare(self, data):
        model = self._load(data.used.width, data.Y.shape[1])
        places = places_of(model.transforms().order, *self._order) if self._order else None
        intercept = model.intercept().astype(np.float64) * data.bias
        if _has_the_classes_of(model, data.Y.shape[1]):
            # A softmax of two classes, as models written by ShardWriter may have, is σ(z_1 − z_0). Estimators
            # store −z and z, and in other models the second class is a problem of its own.
            first = -1.0 if link_of(model.meta) == SOFTMAX else 0.0
            signs = sp.csr_array([[first, 1.0]])
            weights, intercept = signs @ model.coef().astype(np.float64), signs @ intercept
        else:
            weights = None

        def starts(labels: Labels) -> Starts:
            rows = weights
            if rows is None:
                rows = sp.vstack([model.weights(label, label + 1) for label in labels.ids.tolist()])
            sparse = moved(sp.csr_array(rows).astype(np.float64), places)
            return Starts(None, np.zeros(len(labels.ids)), sparse, intercept[labels.ids])

        return starts


def _has_the_classes_of(model: LinearModel, n_labels: int) -> bool:
    """Whether a model has two classes, which a training has as one label."""
    return (model.n_labels, n_labels) == (2, 1) and of_classes(model.meta)
