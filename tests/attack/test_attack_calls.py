"""The attack with wrong arguments leaves out nothing that is public."""

from __future__ import annotations

import inspect

import pytest

import xmcjax.estimators
from tests.attack import _calls
from xmcjax.data import FORMATS, TRANSFORMS
from xmcjax.inits import INITS
from xmcjax.kernels import KERNELS
from xmcjax.lanes import WEIGHTINGS
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.metrics import PROPENSITY_METRICS, RANKING_METRICS
from xmcjax.penalties import PENALTIES
from xmcjax.projections import PROJECTIONS
from xmcjax.solvers.kernel_multinomial import LIKELIHOODS
from xmcjax.solvers.multiclass_dual import FORMULATIONS
from xmcjax.solvers.multinomial import METHODS

_PARTS = "takes what the checked functions make, such as a problem, a state or an operator"
_TRACED = "is called inside a compiled program, with traced arrays"
_FILES = "takes one path, and is attacked by the writers"
# Public functions that are not called, and why.
EXEMPT = {
    "xmcjax.data.atomic_write": _FILES,
    "xmcjax.data.load_demo": "takes no argument",
    "xmcjax.kernels.tree": _PARTS,
    "xmcjax.lanes.by_positives": _PARTS,
    "xmcjax.lanes.lanes_that_fit": _PARTS,
    "xmcjax.lanes.precision": _PARTS,
    "xmcjax.lanes.train_on_nodes": "starts processes; its arguments are those of train_one_vs_all",
    "xmcjax.lanes.worse": _PARTS,
    "xmcjax.linops.check_operator": _PARTS,
    "xmcjax.linops.computed_dtype": "is the check of other functions",
    "xmcjax.linops.gpu_ready": "takes no argument",
    "xmcjax.linops.native_ready": "takes no argument",
    "xmcjax.linops.put": _PARTS,
    "xmcjax.linops.real_array": "is the check of other functions",
    "xmcjax.models.check_regular": _FILES,
    "xmcjax.models.is_trained": _PARTS,
    "xmcjax.native.twins": "takes no argument",
    "xmcjax.solvers.multiclass_dual.certificate": _PARTS,
    "xmcjax.solvers.multiclass_dual.init": _PARTS,
    "xmcjax.solvers.multiclass_dual.partner": _TRACED,
    "xmcjax.solvers.multiclass_dual.round_count": _TRACED,
    "xmcjax.solvers.multiclass_dual.round_pairs": _TRACED,
    "xmcjax.solvers.multiclass_dual.run": _PARTS,
    "xmcjax.solvers.multiclass_dual.solve_over_mesh": _PARTS,
    "xmcjax.solvers.multiclass_dual.step": _PARTS,
    "xmcjax.solvers.multiclass_dual.weights": _PARTS,
    "xmcjax.solvers.multinomial.advance": _PARTS,
    "xmcjax.solvers.multinomial.evaluate": _PARTS,
    "xmcjax.solvers.multinomial.initial": _PARTS,
    "xmcjax.solvers.multinomial.multinomial_problem": "is called by the calls of multinomial.solve",
    "xmcjax.solvers.kernel_multinomial.cg_in_functions": _PARTS,
    "xmcjax.solvers.kernel_multinomial.cv_criterion": _PARTS,
    "xmcjax.solvers.kernel_multinomial.fit_chains": _PARTS,
    "xmcjax.solvers.kernel_multinomial.fit_uncertain": _PARTS,
    "xmcjax.solvers.kernel_multinomial.fold_weights": _PARTS,
    "xmcjax.solvers.kernel_multinomial.init": _PARTS,
    "xmcjax.solvers.kernel_multinomial.most_likely": _PARTS,
    "xmcjax.solvers.kernel_multinomial.plot_search": "draws what tune has found",
    "xmcjax.solvers.kernel_multinomial.run": _PARTS,
    "xmcjax.solvers.kernel_multinomial.step": _PARTS,
    "xmcjax.solvers.kernel_multinomial.tune": _PARTS,
}
# Names of a table, and where each of them is to be found among the calls: its name in place of {}.
TABLES = {
    "MARGIN_LOSSES": (MARGIN_LOSSES, "xmcjax.losses.{}.value"),
    "smooth losses": (
        [name for name, loss in MARGIN_LOSSES.items() if loss.smooth],
        "xmcjax.estimators.OneVsAllClassifier(loss='{}')",
    ),
    "PROJECTIONS": (PROJECTIONS, "xmcjax.projections.{}"),
    "metrics": (
        [metric.__name__ for metric in (RANKING_METRICS | PROPENSITY_METRICS).values()],
        "xmcjax.metrics.{}",
    ),
    "FORMATS": (FORMATS, "xmcjax.data.load('{}')"),
    "TRANSFORMS": (TRANSFORMS, "xmcjax.data.fit_transforms('{}')"),
    "PENALTIES": (PENALTIES, "xmcjax.estimators.OneVsAllClassifier(penalty='{}')"),
    "INITS": ([name for name in INITS if name != "pretrained"], "xmcjax.lanes.train_one_vs_all('{}')"),
    "WEIGHTINGS": (WEIGHTINGS, "xmcjax.lanes.Weighting('{}')"),
    "KERNELS": (KERNELS, "xmcjax.estimators.KernelLogisticClassifier(kernel='{}')"),
    "LIKELIHOODS": (LIKELIHOODS, "xmcjax.estimators.KernelLogisticClassifier(likelihood='{}')"),
    "FORMULATIONS": (FORMULATIONS, "xmcjax.solvers.multiclass_dual.solve('{}')"),
    "METHODS": (METHODS, "xmcjax.solvers.multinomial.solve('{}')"),
}


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    return _calls.calls(tmp_path_factory.mktemp("calls"))


def of(name: str, calls) -> list[str]:
    return [call for call in calls if call == name or call.startswith((f"{name}(", f"{name}."))]


def test_every_public_function_is_attacked_or_exempt(calls):
    public = _calls.public_functions()
    missing = [name for name in public if not of(name, calls) and name not in EXEMPT]
    assert not missing
    assert not [name for name in EXEMPT if name not in public or of(name, calls)]


def test_every_estimator_and_argument_of_it_is_attacked(calls):
    for name, kind in inspect.getmembers(xmcjax.estimators, inspect.isclass):
        own = [call for call in of(f"xmcjax.estimators.{name}", calls) if call.endswith(")")]
        assert own, name
        assert all(set(kind().get_params(deep=False)) <= set(calls[call].arguments) for call in own)
        assert f"xmcjax.estimators.{name}.predict" in calls


@pytest.mark.parametrize("table", TABLES)
def test_every_entry_of_a_table_is_attacked(table, calls):
    names, place = TABLES[table]
    assert names
    assert not [name for name in names if place.format(name) not in calls]
