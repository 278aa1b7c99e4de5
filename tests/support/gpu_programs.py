"""What tests of programs for a described GPU share: features, and what is looked for in a program."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.sparse as sp

from tests.support import cuda_builds, gpu_targets
from xmcjax import linops

DENSE, CUDA, N, D, B = "dense", "cuda", 512, 256, 128


def features(kind: str, n=N, d=D):
    """Of a backend, or for the kernels in CUDA; these are compiled by nvcc, or the test is skipped."""
    rng = np.random.default_rng(0)
    X = sp.csr_matrix(sp.random(n, d, 0.05, dtype=np.float32, random_state=rng))
    if kind == CUDA:
        cuda_builds.register_for_gpus()
        return dataclasses.replace(linops.make(X, backend="gpu"), kernels=CUDA)
    return linops.make(X.toarray() if kind == DENSE else X, np.float32, backend=kind)


def checked(function, gpu: str, *args, **static) -> str:
    """The program: true float32, and no native call of the CPU."""
    text = gpu_targets.compiled(function, gpu, *args, **static).as_text()
    assert "xmcjax_" not in text.replace("xmcjax_cuda_", "")
    assert gpu_targets.imprecise(text) == []
    return text
