"""Kernels of class functions, and their products with all classes at once.

A kernel function (``KERNELS``) is pointwise mathematics in inner products and distances. :func:`gram` puts
one on training points, stored or computed anew in tiles. :func:`low_rank` and :func:`fourier` approximate
it by factors. :func:`class_kernels` gives every class, or every node of a tree, its variance and its base
kernel.
"""

from xmcjax.kernels._class_kernels import ClassKernels, class_kernels
from xmcjax.kernels._factored import Factored, Factors
from xmcjax.kernels._fourier import Fourier, fourier
from xmcjax.kernels._functions import RBF, Kernel, Linear, Matern, Pairs, Product, Scaled, Sum, stack
from xmcjax.kernels._gram import Gram, gram
from xmcjax.kernels._low_rank import LowRank, low_rank
from xmcjax.kernels._mixing import Independent, Loadings, Mixing, Tree, tree
from xmcjax.kernels._points import GivenProducts, Points, points, precomputed, precomputed_test

KERNELS = {"linear": Linear, "rbf": RBF, "matern": Matern}

__all__ = [
    "KERNELS",
    "RBF",
    "ClassKernels",
    "Factored",
    "Factors",
    "Fourier",
    "GivenProducts",
    "Gram",
    "Independent",
    "Kernel",
    "Linear",
    "Loadings",
    "LowRank",
    "Matern",
    "Mixing",
    "Pairs",
    "Points",
    "Product",
    "Scaled",
    "Sum",
    "Tree",
    "class_kernels",
    "fourier",
    "gram",
    "low_rank",
    "points",
    "precomputed",
    "precomputed_test",
    "stack",
    "tree",
]
