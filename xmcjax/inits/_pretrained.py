"""Starts from a saved model."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.sparse as sp

from xmcjax.inits._base import Init, Labels, Starts

if TYPE_CHECKING:
    from xmcjax.models import LinearModel


@dataclasses.dataclass(frozen=True)
class Pretrained(Init):
    """Starts with the weights of a model that was trained before on the same features and labels.

    Attributes:
        pretrained: the model's directory.

    Example:
        >>> Pretrained("my-model").pretrained
        'my-model'
    """

    pretrained: str | os.PathLike[str] = ""

    name: ClassVar[str] = "pretrained"

    def __post_init__(self):
        if not isinstance(self.pretrained, str | os.PathLike):
            raise TypeError(f"pretrained: expected the directory of a model, got {self.pretrained!r}")

    def check(self, n_features, n_labels, bias):
        self._load(n_features, n_labels)

    def _load(self, n_features: int, n_labels: int) -> LinearModel:
        from xmcjax.models import LinearModel

        if not self.pretrained:
            raise ValueError("init 'pretrained' needs the directory of a model, got none")
        model = LinearModel.load(self.pretrained)
        if (model.n_features, model.n_labels) != (n_features, n_labels):
            raise ValueError(
                f"{self.pretrained}: expected a model of {n_features} features and {n_labels} labels, "
                f"found {model.n_features} and {model.n_labels}"
            )
        return model

    def prepare(self, data):
        model = self._load(data.used.width, data.Y.shape[1])
        intercept = model.intercept() * data.bias

        def starts(labels: Labels) -> Starts:
            rows = [model.weights(label, label + 1) for label in labels.ids.tolist()]
            sparse = sp.csr_array(sp.vstack(rows)).astype(np.float64)
            return Starts(None, np.zeros(len(rows)), sparse, intercept[labels.ids].astype(np.float64))

        return starts
