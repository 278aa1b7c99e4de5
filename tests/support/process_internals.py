"""The part of internals.py that programs in processes of their own need, which do not wait for all of it.

The whole of it imports the command line and the estimators, with scikit-learn.
"""

from __future__ import annotations

# the calls of CUDA kernels, and where the k largest are found by one
from xmcjax.native import _cuda, _topk

# what runs of several processes are made to fail in, and the programs of a mesh
from xmcjax.solvers import _peers
from xmcjax.solvers.multiclass_dual import _board, _wire
from xmcjax.solvers.multinomial import _mesh

board = _board
cuda = _cuda
cuda_topk = _topk
multinomial_mesh = _mesh
peers = _peers
wire = _wire
