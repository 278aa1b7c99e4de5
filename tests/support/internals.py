"""All that the tests of solvers, kernels and native calls know of the inside of the library, and why."""

# what kernels.class_kernels takes as its hierarchy, and has no public name
from xmcjax._hierarchy import Hierarchy as Hierarchy

# the classes of xmcjax.native take checked matrices only
from xmcjax._sparse import canonical_csr as canonical_csr

# the declarations of ids.def and calls.def, which are compared with the library
from xmcjax.native import _ids as ids
from xmcjax.native import _schema as schema

# parts of solvers with a proof of their own: conjugate gradients and certificates
from xmcjax.solvers import _admm, _certified, _cg
from xmcjax.solvers.multinomial import _certificate, _mesh

admm, certified, cg = _admm.solve, _certified.certified, _cg
multinomial_certificate, multinomial_mesh = _certificate, _mesh

__all__ = [
    "Hierarchy",
    "admm",
    "canonical_csr",
    "certified",
    "cg",
    "ids",
    "multinomial_certificate",
    "multinomial_mesh",
    "schema",
]
