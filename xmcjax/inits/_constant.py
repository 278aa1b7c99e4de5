"""Starts that do not look at the data."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from xmcjax.inits._base import Init, Starts, check_finite


@dataclasses.dataclass(frozen=True)
class Zero(Init):
    """w0 = 0.

    Example:
        >>> from xmcjax import OneVsAllClassifier
        >>> OneVsAllClassifier(init=Zero()).fit([[0.0], [0.2], [1.0]], [0, 0, 1]).predict([[0.9]])
        array([1])
    """

    name: ClassVar[str] = "zero"

    def prepare(self, data):
        return lambda labels: Starts.constant(len(labels.ids), len(data.mean))


@dataclasses.dataclass(frozen=True)
class Bias(Init):
    """w0 = 0 with bias weight −λ (Schultheis and Babbar, 2022, section 3).

    The solver minimises over the bias before its first step, so that here the choice of λ
    matters only with ``max_iter=0``.

    Attributes:
        bias_lambda: λ.

    Example:
        >>> Bias(bias_lambda=0.9)
        Bias(bias_lambda=0.9)
    """

    bias_lambda: float = 1.0

    name: ClassVar[str] = "bias"

    def __post_init__(self):
        check_finite("bias_lambda", self.bias_lambda)

    def check(self, n_features, n_labels, bias):
        if not bias:
            raise ValueError("init 'bias' needs a bias: expected fit_intercept, got False")

    def prepare(self, data):
        return lambda labels: Starts.constant(len(labels.ids), len(data.mean), bias=-self.bias_lambda)
