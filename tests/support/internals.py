"""All that the tests of solvers, kernels and native calls know of the inside of the library, and why."""

# what kernels.class_kernels takes as its hierarchy, and has no public name
from xmcjax._hierarchy import Hierarchy

# the classes of xmcjax.native take checked matrices only
from xmcjax._sparse import canonical_csr

# the declarations of ids.def and calls.def, which are compared with the library
from xmcjax.native import _ids, _schema

# parts of solvers with a proof of their own, and what runs of several processes are made to fail in
from xmcjax.solvers import _admm, _admm_blocks, _admm_dense, _admm_sparse, _certified, _cg, _peers
from xmcjax.solvers.multiclass_dual import _processes, _wire
from xmcjax.solvers.multinomial import _certificate, _mesh

ids, schema, cg, peers, wire = _ids, _schema, _cg, _peers, _wire
admm, certified, cut = _admm_dense.Method, _certified.certified, _processes._cut
admm_blocks, admm_dense, admm_sparse, admm_steps = _admm_blocks, _admm_dense, _admm_sparse, _admm.steps
multinomial_certificate, multinomial_mesh = _certificate, _mesh

__all__ = [
    "Hierarchy",
    "admm",
    "admm_blocks",
    "admm_dense",
    "admm_sparse",
    "admm_steps",
    "canonical_csr",
    "certified",
    "cg",
    "cut",
    "ids",
]
__all__ += ["multinomial_certificate", "multinomial_mesh", "peers", "schema", "wire"]
