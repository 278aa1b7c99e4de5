"""Each entry of the library's tables has its case, its formula or its oracle in tests/support."""

from __future__ import annotations

import inspect

from tests.support.estimators import ESTIMATORS, UNCONVERGED
from tests.support.functions import FORMULAS, MARGINS
from tests.support.kernel_functions import CASES as KERNEL_CASES
from tests.support.losses import CASES as LOSS_CASES
from tests.support.losses import MULTILABEL
from tests.support.objectives import CURVATURES, SLOPES
from tests.support.objectives import PENALTIES as TRIED_PENALTIES
from tests.support.projections import NUMBERS, SETS
from tests.support.solvers import CASES as SOLVER_CASES
from xmcjax import estimators, losses
from xmcjax.kernels import KERNELS
from xmcjax.penalties import PENALTIES
from xmcjax.projections import PROJECTIONS
from xmcjax.solvers import SOLVERS


def prefixes(names, of):
    """Those of the names of which a case begins with them."""
    return {name for name in of if any(case.startswith(name) for case in names)}


def test_solvers_and_estimators():
    assert SOLVER_CASES.keys() == SOLVERS.keys()
    public = {name for name, kind in vars(estimators).items() if hasattr(kind, "fit")}
    public -= {"KernelChainClassifier"}  # which takes sequences in place of rows
    assert ESTIMATORS.keys() == UNCONVERGED.keys() == public


def test_losses():
    assert MARGINS.keys() == FORMULAS.keys() >= losses.MARGIN_LOSSES.keys()
    assert SLOPES.keys() == CURVATURES.keys() == losses.SMOOTH_LOSSES.keys()
    functions = {name for name in losses.__all__ if inspect.isfunction(getattr(losses, name))}
    plain = {name for name in functions if not name.endswith("_conjugate")}
    assert plain - {"one_vs_all", "fenchel_young"} - MULTILABEL.keys() == prefixes(LOSS_CASES, plain)
    # every convex one has a conjugate by its name
    without = {"truncated_topk_entropy", "fenchel_young"}
    assert functions - plain == {f"{name}_conjugate" for name in plain - without}


def test_projections_kernels_and_penalties():
    assert set(SETS) == NUMBERS.keys()
    assert prefixes(SETS, PROJECTIONS) == PROJECTIONS.keys()
    assert prefixes(KERNEL_CASES, KERNELS) == KERNELS.keys()
    assert {penalty.name for penalty in TRIED_PENALTIES} == PENALTIES.keys()
    for name, entry in (*PROJECTIONS.items(), *PENALTIES.items(), *losses.MARGIN_LOSSES.items()):
        assert name in [getattr(entry, attribute, None) for attribute in ("name", "__name__")]
