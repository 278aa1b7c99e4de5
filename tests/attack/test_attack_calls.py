"""The attack with wrong arguments leaves out nothing that is public."""

from __future__ import annotations

import importlib

import pytest

from tests.attack import arguments, sanitizers
from tests.support import calls as table

_PARTS = "takes what the checked functions make, such as a problem, a state or an operator"
_TRACED = "is called inside a compiled program, with traced arrays"
_RUN = "is what train_one_vs_all runs"
_FILES = "takes one path, and is attacked by the writers"
_CLUSTER = "needs a cluster; tests/cluster"
_EXTRA = "needs pyarrow; tests/data_io/test_arrow.py"
# Public functions that are not called, and why.
EXEMPT = {
    "xmcjax.cluster.blocks_of": _PARTS,
    "xmcjax.cluster.connected": _CLUSTER,
    "xmcjax.cluster.local_cluster": _CLUSTER,
    "xmcjax.cluster.join_mesh": "joins processes; tests/cluster/test_cluster_mesh.py",
    "xmcjax.cluster.makespan": _PARTS,
    "xmcjax.cluster.predict_on_cluster": _CLUSTER,
    "xmcjax.cluster.run_on_mesh": _CLUSTER,
    "xmcjax.cluster.train_on_cluster": _CLUSTER,
    "xmcjax.data.atomic_write": _FILES,
    "xmcjax.data.make_folder": _FILES,
    "xmcjax.data.check_seekable": _FILES,
    "xmcjax.data.join_pieces": "takes pieces that readers make",
    "xmcjax.data.load_arrow": _EXTRA,
    "xmcjax.data.load_demo": "takes no argument",
    "xmcjax.data.load_parquet": _EXTRA,
    "xmcjax.data.open_npz": _FILES,
    "xmcjax.data.save_arrow": _EXTRA,
    "xmcjax.data.save_parquet": _EXTRA,
    "xmcjax.datasets.names": "takes no argument",
    "xmcjax.datasets.table": "takes no argument",
    "xmcjax.lanes.by_positives": _PARTS,
    "xmcjax.lanes.forecast": "trains labels as train_one_vs_all does, whose arguments it takes",
    "xmcjax.lanes.forecast_of_shape": "trains labels of data that it makes",
    "xmcjax.lanes.model_bytes": _PARTS,
    "xmcjax.lanes.training_bytes": _PARTS,
    "xmcjax.lanes.check_labels": "is the check of other functions",
    "xmcjax.lanes.checked_arguments": "is the check of train_one_vs_all",
    "xmcjax.lanes.label_columns": "is the check of other functions",
    "xmcjax.lanes.make_queue": _RUN,
    "xmcjax.lanes.lanes_of_use": _PARTS,
    "xmcjax.lanes.lanes_that_fit": _PARTS,
    "xmcjax.lanes.precision": _PARTS,
    "xmcjax.lanes.train_on_nodes": "starts processes; its arguments are those of train_one_vs_all",
    "xmcjax.lanes.worse": _PARTS,
    "xmcjax.linops.check_operator": "is the check of other functions",
    "xmcjax.linops.computed_dtype": "is the check of other functions",
    "xmcjax.linops.gpu_ready": "takes no argument",
    "xmcjax.linops.native_ready": "takes no argument",
    "xmcjax.linops.put": _PARTS,
    "xmcjax.linops.real_array": "is the check of other functions",
    "xmcjax.estimators.fit_with_state": "runs the fit of a classifier",
    "xmcjax.estimators.save_with_numbers": "takes a classifier that was fitted",
    "xmcjax.models.beacon": _FILES,
    "xmcjax.models.check_regular": _FILES,
    "xmcjax.models.checked_rows": "is the check of Predictor",
    "xmcjax.models.checked_weights": "is the check of ShardWriter.add",
    "xmcjax.models.write_outside": "takes what checked_weights makes",
    "xmcjax.models.meta_of": _FILES,
    "xmcjax.models.read_kernel_model": _FILES,
    "xmcjax.lanes.make_trainer": _RUN,
    "xmcjax.models.reserved": _FILES,
    "xmcjax.models.system_of": _FILES,
    "xmcjax.native.twins": "takes no argument",
    **{
        f"xmcjax.plots.{name}": "draws what others have made; tests/test_plots.py"
        for name in importlib.import_module("xmcjax.plots").__all__
    },
    "xmcjax.projections.over_tree": "takes a projection; tests/projections/test_weighted.py",
    "xmcjax.solvers.multiclass_dual.round_count": _TRACED,
    "xmcjax.solvers.multiclass_dual.round_pairs": _TRACED,
    "xmcjax.solvers.kernel_multinomial.cg_in_functions": _TRACED,
}
_MADE = "is made by a function that checks, or holds its arguments as they are"
_BASE = "is a base of others"
# Public classes of which no call makes an object with wrong arguments, and why.
EXEMPT_CLASSES = {
    "xmcjax.cluster.FromUrl": "is called by workers; tests/cluster",
    "xmcjax.cluster.Part": _MADE,
    "xmcjax.data.Archive": _MADE,
    "xmcjax.data.Transform": "is an entry of TRANSFORMS",
    "xmcjax.datasets.DataSet": "is an entry of SETS",
    "xmcjax.inits.Init": _BASE,
    "xmcjax.inits.Labels": _MADE,
    "xmcjax.inits.Pretrained": "takes a path; the reader of models is attacked",
    "xmcjax.inits.Starts": _MADE,
    "xmcjax.inits.TrainingSet": _MADE,
    "xmcjax.inits.Zero": "takes no argument",
    "xmcjax.kernels.Factored": _BASE,
    "xmcjax.kernels.GivenProducts": _MADE,
    "xmcjax.kernels.Independent": "takes no argument",
    "xmcjax.kernels.Kernel": _BASE,
    "xmcjax.kernels.Loadings": _MADE,
    "xmcjax.kernels.Points": _MADE,
    "xmcjax.kernels.Tree": _MADE,
    "xmcjax.lanes.Job": _MADE,
    "xmcjax.lanes.Lanes": _PARTS,
    "xmcjax.estimators.Checkpoint": "takes a path; tests/cli/test_cli_resume.py",
    "xmcjax.estimators.FitFile": "takes a path; tests/estimators/test_fit_file.py",
    "xmcjax.lanes.StepFile": "takes a path, and steps of a training; tests/lanes/test_step_file.py",
    "xmcjax.lanes.Summary": _MADE,
    "xmcjax.losses.LaneLoss": _BASE,
    "xmcjax.losses.MarginLoss": _BASE,
    "xmcjax.models.Outside": _MADE,
    "xmcjax.penalties.Penalty": _BASE,
    "xmcjax.solvers.admm.Problem": _MADE,
    "xmcjax.solvers.multiclass_dual.LabelHinges": _RUN,
    "xmcjax.solvers.multiclass_dual.Formulation": "is an entry of FORMULATIONS",
    "xmcjax.solvers.multiclass_dual.MulticlassProblem": _MADE,
    "xmcjax.solvers.multinomial.Problem": _MADE,
    "xmcjax.solvers.kernel_multinomial.Chains": _MADE,
    "xmcjax.solvers.kernel_multinomial.KernelProblem": _MADE,
    "xmcjax.solvers.kernel_multinomial.OneVsRest": _MADE,
    "xmcjax.solvers.kernel_multinomial.PartialLabels": _MADE,
    "xmcjax.solvers.kernel_multinomial.Softmax": _MADE,
    "xmcjax.solvers.kernel_multinomial.SomeClasses": _MADE,
    "xmcjax.solvers.instance_dual.Gram": _MADE,
    "xmcjax.solvers.instance_dual.HParams": "of the calls of topk_sdca.run",
    "xmcjax.solvers.instance_dual.Problem": _MADE,
}
# What was taken, or refused by what NumPy or JAX says, before it was checked.
REFUSED = {
    "xmcjax.data.Dataset.fingerprint": {"y": ["None", "one number"]},
    "xmcjax.losses.HuberHinge.value": {"delta": ["1e-300"]},
    "xmcjax.models.ArrayModel": {"first": ["nan", "a word"], "last": ["0.5", "None"]},
    "xmcjax.models.is_trained": {"status": ["a ragged list"]},
    "xmcjax.solvers.instance_dual.problem": {"set_name": ["a dictionary"], "bound": ["complex numbers"]},
    "xmcjax.solvers.kernel_multinomial.CvObjective": {
        "v": ["a NaN"],
        "sigma2": ["a word"],
        "folds": ["negative numbers", "one row more", "strings"],
        "weight": ["complex numbers", "negative numbers", "one row more"],
        "free": ["a word"],
        "tolerance": ["nan", "a word"],
        "max_iter": ["0.5"],
    },
    "xmcjax.solvers.kernel_multinomial.fit_chains": {"variance": ["None"], "tolerance": ["an array"]},
    "xmcjax.solvers.kernel_multinomial.partial_labels": {"allowed": ["strings", "complex numbers"]},
    "xmcjax.solvers.kernel_multinomial.fold_weights": {"folds": ["strings", "complex numbers"]},
    "xmcjax.solvers.kernel_multinomial.kernel_problem": {"y": ["negative numbers"]},
    "xmcjax.solvers.kernel_multinomial.most_likely": {
        "u": ["a NaN", "one row more"],
        "lengths": ["no rows", "negative numbers"],
        "transitions": ["complex numbers"],
    },
    "xmcjax.solvers.kernel_multinomial.marginals": {
        "u": ["a NaN", "one row more"],
        "lengths": ["no rows", "negative numbers"],
        "transitions": ["complex numbers"],
    },
    "xmcjax.solvers.multiclass_dual.run_over_mesh": {"seed": ["0.5"], "shrinking": ["None"]},
    "xmcjax.solvers.multinomial.multinomial_problem": {
        "W0": ["a NaN", "complex numbers"],
        "b0": ["an infinity"],
        "tolerance": ["a word", "nan"],
        "max_steps": ["0.5", "1000000000000"],
    },
    "xmcjax.solvers.topk_sdca.run": {
        "checks": ["0", "0.5"],
        "lane": ["-1", "0.5", "a word"],
        "max_epochs": ["a word"],
        "slots": ["nan"],
        "tol": ["1j"],
        "tolerance": ["None"],
    },
}


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    return table.calls(tmp_path_factory.mktemp("calls"))


def of(name: str, calls) -> list[str]:
    return [call for call in calls if call == name or call.startswith((f"{name}(", f"{name}."))]


@pytest.mark.parametrize(
    ("public", "exempt"),
    [(table.public_functions(), EXEMPT), (table.public_classes(), EXEMPT_CLASSES)],
    ids=["functions", "classes"],
)
def test_everything_public_is_called_or_exempt(public, exempt, calls):
    """What two packages export is called once."""
    called = {thing for name, thing in public.items() if of(name, calls)}
    missing = {name for name, thing in public.items() if thing not in called}
    assert {public[name] for name in missing - set(exempt)} <= {public[name] for name in exempt}
    assert set(exempt) <= missing


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_arguments_are_refused_in_a_sentence(name, calls):
    call = calls[name]
    for argument, values in REFUSED[name].items():
        wrong = dict(arguments.wrong_ones(call.arguments[argument]))
        for value in values:
            found = arguments.replace(name, call, argument, value, wrong[value], False, lambda: [])
            assert found == "refused", (argument, value)


def test_the_tests_that_are_sanitized_are_there():
    named = {
        *sanitizers.KERNELS,
        *sanitizers.OTHERS,
        *(f for files in sanitizers.SHORT.values() for f in files),
    }
    assert not [file for file in sorted(named) if not (sanitizers.ROOT / "tests" / file).exists()]
