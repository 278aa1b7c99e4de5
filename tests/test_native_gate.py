"""Nothing reaches native code or a conversion of scipy past the check of matrices: the code is walked.

A call that is new fails here until it stands in a table below, with why what it is given was checked.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import xmcjax

PACKAGE = Path(xmcjax.__file__).parent
GATE = "_sparse"
# Who may load the library, and what each gives to it.
LOADS = {
    "_exit": "loads the C library alone",
    "cli._environment": "asks for its version",
    "data._text_native": "bytes of a text, whose end is given",
    "models._predictor": "asks whether it is there",
    "models._weights": "asks whether it is there",
    "native._abort_note": "texts, which are ended by a null, and a number",
    "native._calls": "arrays that are compared with calls.def, see CALLS",
    "native._ffi": "the same",
    "native._cuda": "another library; its calls take the arrays of an operator Grouped, see CALLS",
    "native._dual_point": "a matrix of the check, see test_handles_take_checked_matrices_only",
}
# Calls of kernels that follow the indices of a sparse matrix, by the function that makes them. Each takes
# the arrays of an operator Csr, which from_scipy alone makes, or those of csr_arrays.
CALLS = {
    "csr_matmat": {
        *("linops._csr.Csr._matmat", "models._weights._product", "solvers._products.product"),
        "solvers._instance_problem._squared_norms",
    },
    "csr_rmatmat": {"linops._csr.Csr._rmatmat", "solvers._products.transposed"},
    "csr_inner": {"linops._csr.Csr._inner"},
    "csr_gram_matmat": {"linops._csr.Csr._gram_matmat"},
    "predict_few": {"models._weights._scores_of_few"},
    "predict_topk": {"models._weights.ByFeature.best"},
    "predict_scores": {"models._weights.ByFeature.scores"},
    "newton_step": {"solvers.newton_cg._native_step", "lanes._blocks.HostBlock.__init__"},
    "risen_losses": {"lanes._blocks.HostBlock.__init__"},
    "instance_dual": {
        *("solvers._instance_native.native_epochs", "solvers._instance_native.epochs_in_place"),
    },
    "instance_gap": {"solvers._instance_native.native_gap"},
    "softmax_product": {"solvers.multinomial._scores.SparseScores._product"},
    "softmax_diagonal": {"solvers.multinomial._scores.SparseScores.native_diagonal"},
    "softmax_solve_csr": {"solvers.multinomial._scores.SparseScores.solve"},
    "softmax_exponentials": {"solvers.multinomial._problem._evaluate_in_parts"},
    "softmax_gradient": {"solvers.multinomial._problem._evaluate_in_parts"},
    "softmax_pass": {"solvers.multinomial._problem.evaluate"},
    "softmax_round": {"solvers.multinomial.dual.step"},
}
# What gives them these arrays: `.arrays` of a Csr, or `.csr`, which is the same of a multinomial problem.
ARRAYS = {"arrays", "csr", "csr_arrays"}
BEHIND = {"instance_dual": "native_fields", "instance_gap": "native_fields"}
# Kernels of dense arrays, and of trees and columns, whose places their reader checks.
DENSE_KERNELS = {
    *("project_box", "project_topk", "project_weighted", "symmetric_matmat"),
    *("softmax_hessian", "softmax_along", "softmax_along_by_class", "softmax_solve", "softmax_blocks"),
    *("softmax_right_side", "softmax_moved", "softmax_scores_by_class", "softmax_gradient_by_class"),
    *("softmax_residuals", "softmax_stepped", "softmax_distances"),
    *("lane_losses", "best_labels", "tree_mix", "tree_sums_below", "tree_sums_of_paths"),
    *("take_columns", "put_columns"),
}

CONVERSIONS = {"tocsr", "tocsc", "tocoo", "tobsr", "todia", "tolil", "todok", "asformat"}
CONSTRUCTORS = {
    f"{form}_{kind}"
    for form in ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")
    for kind in ("array", "matrix")
}
OWN, CHECKED, DENSE = "made here, of arrays that are its own", "checked before", "of an array"
# Conversions of what is no tuple of arrays, by the function that makes them.
CONVERTED = {
    "cli._classes.train": "of a reader, which checks",
    "cli._data.read": "of a reader, which checks",
    "cli._data._class_matrix": OWN,
    "cli.evaluate._print_thresholds": "of a reader, which checks",
    "cli.evaluate._score_matrix": "of a reader, which checks",
    "cli.evaluate._thresholds": "of a reader, which checks",
    "cli.evaluate._without_pairs": "of a reader, which checks",
    "cli.report._hits": "of a reader, which checks, and of predictions that are the report's own",
    "cli.report._worst": "of a reader, which checks",
    "cli._training.prepare": "of a reader, which checks",
    "cluster._train._fingerprint": CHECKED,
    "data._scipy_npz._several": "of arrays compared before",
    "data._scipy_npz._matrix": "of canonical_csr, and of arrays compared before",
    "data._separate._npy_labels": DENSE,
    "data._separate.join_features": "checked by matrix",
    "data._transforms._floats": CHECKED,
    "estimators._calibration.splits_of_classes": OWN,
    "estimators._continuation.Continued.prepare.starts": OWN,
    "estimators._continuation.Weights.at": OWN,
    "estimators._continuation.weights_of": CHECKED,
    "estimators._kernel_precision._norms2": CHECKED,
    "estimators._kernel_scores._points": DENSE,
    "estimators._kernel_parts.least_expected_loss": DENSE,
    "estimators._label_rows.BestLabelScore.score": "checked by checked_truth",
    "estimators._one_vs_all.OneVsAllClassifier._store": OWN,
    "estimators._stored._fill": "of a model, whose reader checks",
    "estimators._targets._of_classes": OWN,
    "estimators._targets.targets": "checked by checked_targets",
    "inits._multi_pos.MultiPos.prepare": "the trainer's, checked",
    "models._dismec._dense_text": OWN,
    "models._dismec._weights": "of a reader, which checks",
    "models._dismec.read_dismec": "of readers, which check",
    "models._foreign.without_bias": "of a reader, which checks",
    "models._liblinear._Reader.weights": OWN,
    "models._liblinear.read_liblinear": "of its reader, whose own they are",
    "models._liblinear.write_liblinear": "of a model, whose reader checks",
    "models._matrix_model.read_matrix_model": "of a reader, which checks",
    "models._matrix_model.write_matrix_model": "of a model, whose reader checks",
    "inits._multi_pos.MultiPos.prepare.starts": OWN,
    "inits._ova_primal.label_tree": CHECKED,
    "inits._pretrained.Pretrained.prepare": OWN,
    "inits._pretrained.Pretrained.prepare.starts": "of a model, whose reader checks",
    "kernels._points._less": OWN,
    "lanes._calibrate.calibrate_one_vs_all": CHECKED,
    "lanes._label_features.LabelFeatures._by_gradients": "the trainer's, checked",
    "lanes._certifier._Certifier._operator": "the trainer's, checked",
    "lanes._dual_end.with_bias": "the trainer's, checked",
    "lanes._dual_starts.DualStarts.__call__": "weights that are made here",
    "lanes._hinge_trainer.HingeTrainer._results": "the trainer's, checked",
    "lanes._training_data.label_columns": CHECKED,
    "lanes._sparsify.Sparsifier.__init__": "the trainer's, checked",
    "lanes._stopping.StoppingRule.sums": OWN,
    "lanes._stopping.StoppingRule._sums": OWN,
    "linops._csr.Csr.to_scipy": "of an operator",
    "linops._grouped.from_scipy.transposed": CHECKED,
    "metrics._binary._of_stored": CHECKED,
    "metrics._f1._counts": CHECKED,
    "metrics._labels.as_label_matrix": CHECKED,
    "metrics._thresholds.above_thresholds": OWN,
    "metrics._thresholds.f1_thresholds": OWN,
    "metrics._labels.stored_once": CHECKED,
    "models._arrays.ArrayModel.__init__": CHECKED,
    "models._calibrator.Calibrator.add": CHECKED,
    "models._calibrator._label_matrix": CHECKED,
    "models._predict.scores_above": OWN,
    "models._index._entries": "of a model, which checks",
    "models._weights.ByFeature.of": CHECKED,
    "models._weights.ByFeature.serving": OWN,
    "solvers._certified.certified": OWN,
    "solvers._certified.certified_kernel": OWN,
    "solvers._lbfgs_weights.Method._steps.accepted": DENSE,
    "solvers._lbfgs_weights.Method.in_passes": DENSE,
    "solvers._lbfgs_weights._Coordinates.__init__": CHECKED,
    "solvers._admm_blocks.Blocks.best": OWN,
    "solvers._certified._of_the_better": OWN,
    "solvers._admm_dense.Dense.best": OWN,
    "solvers._interior.Method._sparse": OWN,
    "solvers.admm._run.dual_variables": OWN,
    "solvers.admm._run.proof": OWN,
    "solvers.multiclass_dual._processes._Alone.alpha": OWN,
    "solvers.multiclass_dual._processes._gathered": OWN,
    "solvers.multiclass_dual._threads.Together.alpha": OWN,
    "solvers._progress.checked_start": "checked by matrix",
    "solvers.multiclass_dual._solve._InJax._tell": OWN,
    "solvers.multiclass_dual._solver._proved": OWN,
    "solvers.multiclass_dual._solve._InJax.epochs": OWN,
    "solvers.multiclass_dual._solve._InJax.polish": OWN,
    "solvers.multiclass_dual._labels.LabelHinges._ascended": OWN,
    "solvers.multiclass_dual._labels.LabelHinges._by_newton": OWN,
    "solvers.multiclass_dual._labels.LabelHinges._by_one": OWN,
    "solvers.multiclass_dual._labels._Best.of": OWN,
    "solvers.multiclass_dual._labels.LabelHinges._parts": "the trainer's, checked",
    "solvers.multiclass_dual._labels.LabelHinges._by_steps": OWN,
    "solvers.multiclass_dual._labels.Labels.some": "the trainer's, checked",
    "solvers.multiclass_dual._multilabel._Methods._in_jax": OWN,
    "solvers.multiclass_dual._multilabel._checked_labels": CHECKED,
    "solvers.multiclass_dual._multilabel._feasible": CHECKED,
    "solvers.multinomial._exact_products._squared": "of an operator",
    "solvers.multinomial._scores.SparseScores.__init__": "of an operator",
}


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {module_of(path): ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}


def functions(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    """Every node with the dotted name of the function that it stands in."""
    for child in ast.iter_child_nodes(node):
        inside = name
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            inside = f"{name}.{child.name}"
        yield inside, child
        yield from functions(child, inside)


NODES = [(where, node) for module, tree in TREES.items() for where, node in functions(tree, module)]


def called(node: ast.AST) -> str | None:
    """The last name of what is called; None where nothing is."""
    if not isinstance(node, ast.Call):
        return None
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)


def named(node: ast.AST) -> str | None:
    """The last name of an attribute or a name."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)


def module_names(where: str) -> str:
    return max((module for module in TREES if where == module or where.startswith(module + ".")), key=len)


def test_the_library_is_loaded_where_it_is_said():
    loads = {
        module_names(where)
        for where, node in NODES
        if called(node) == "load_library"
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "ctypes.CDLL")
    }
    assert loads - {"native._library"} == set(LOADS)
    # native._interrupts gives the library functions and flags, and no array of a caller
    known = {"native._library", "native._interrupts", *LOADS}
    imports = {
        module_names(where)
        for where, node in NODES
        if isinstance(node, ast.Import) and any(alias.name == "ctypes" for alias in node.names)
    }
    assert imports <= known, "native code is called where no one looks"
    targets = {where for where, node in NODES if called(node) == "ffi_call"}
    assert {module_names(where) for where in targets} == {"native._ffi", "native._cuda"}


def test_kernels_in_cuda_take_the_arrays_of_an_operator():
    """Of the operator Grouped, see test_operators_are_made_of_checked_matrices_only."""
    made = {
        where
        for where, node in NODES
        if called(node) in ("cuda_matmat", "cuda_rmatmat", "cuda_gram_matmat")
        or named(node) in ("cuda_matmat", "cuda_rmatmat", "cuda_gram_matmat")
    }
    assert {where for where in made if not where.startswith("native.")} == {
        *(f"linops._grouped.Grouped.{product}" for product in ("_matmat", "_rmatmat", "_gram_matmat")),
        "linops._grouped.ScoredRows.matmat",
    }
    assert {where for where, node in NODES if called(node) == "ScoredRows"} == {"linops._grouped.scored_rows"}
    body = function("linops._grouped._rows_of_height").body
    assert ast.unparse(body[1]) == "X = canonical_csr(X)"


def test_every_kernel_is_in_a_table():
    declared = re.findall(r"^XMCJAX_CALL\((\w+)", (PACKAGE / "native/interface/calls.def").read_text(), re.M)
    assert set(declared) == {*CALLS, *DENSE_KERNELS}


@pytest.mark.parametrize("kernel", CALLS)
def test_kernels_of_sparse_matrices_take_the_arrays_of_an_operator(kernel):
    made = {
        where
        for where, node in NODES
        if isinstance(node, ast.Call)
        and called(node) in ("call", "InPlace", "once")
        and any(isinstance(a, ast.Constant) and a.value == kernel for a in node.args)
    }
    assert made == CALLS[kernel]
    for where in made:
        body = function(where)
        if kernel in BEHIND:
            module = module_names(where)
            assert BEHIND[kernel] in {called(node) for node in ast.walk(body)}
            body = function(f"{module}.{BEHIND[kernel]}")
        starred = {named(node.value) for node in ast.walk(body) if isinstance(node, ast.Starred)} | {
            named(node) for node in ast.walk(body) if isinstance(node, ast.Attribute)
        }
        assert starred & ARRAYS, f"{where} gives {kernel} other arrays than those of an operator"
        assert not {"indices", "indptr"} & starred, f"{where} takes the arrays of a matrix of scipy"


def test_arrays_of_a_matrix_are_those_of_a_checked_one():
    first = function("native._csr.csr_arrays").body[1]  # behind the docstring
    assert ast.unparse(first) == "require_checked(X)"


def test_weights_by_feature_are_those_of_a_checked_matrix_or_of_an_index():
    makers = {where for where, node in NODES if "ByFeature" in (called(node), named(node))}
    assert {where for where in makers if where != module_names(where)} == {
        *("models._weights.weights_of", "models._weights.ByFeature.of", "models._index.StoredIndex")
    }
    made = ast.unparse(function("models._weights.ByFeature.of").body[1])
    assert made == "weights = _sparse.canonical_csr(coef.T.tocsr())"
    # what an index has not looked at yet is looked at before it is used
    for method, rows in (("scores", "X"), ("best", "rows")):
        body = ast.unparse(function(f"models._weights.ByFeature.{method}"))
        assert body.index(f"self.check({rows})") < body.index(f"X=native.csr_arrays({rows})")


def function(where: str) -> ast.FunctionDef:
    return next(
        node
        for name, node in NODES
        if name == where and isinstance(node, ast.FunctionDef) and where.endswith(node.name)
    )


def test_operators_are_made_of_checked_matrices_only():
    makers = {
        where
        for where, node in NODES
        if called(node) in ("Csr", "Rows", "Grouped") and "multiclass" not in where
    }
    # of an operator, with the arrays that it has, for products in plain JAX
    makers.remove("linops._grouped.Grouped.in_jax")
    assert makers == {"linops._csr.from_scipy", "linops._grouped.from_scipy"}
    for where in makers:
        first = function(where).body[1]  # behind the docstring
        assert ast.unparse(first) == "X = canonical_csr(X)", where
    checked = ast.unparse(function("linops._checks.canonical_csr").body[1])
    assert checked == "X = _sparse.canonical_csr(X)"


def test_rows_of_the_multinomial_regression_are_those_of_an_operator_or_of_a_checked_matrix():
    maker = "solvers.multinomial._scores.SparseScores._rows"
    assert {where for where, node in NODES if called(node) == "_CsrRows"} == {maker}
    source = "arrays = X.arrays if isinstance(X, linops.Csr) else native.csr_arrays(_sparse.csr(X))"
    assert source in ast.unparse(function(maker))


def test_handles_take_checked_matrices_only():
    body = ast.unparse(function("native._dual_point.DualPoint._make"))
    assert "X=csr_arrays(X)" in body and "indptr" not in body


def test_the_check_alone_says_that_a_matrix_is_checked():
    marks = {
        module_names(where)
        for where, node in NODES
        if named(node) in ("_passed", "_MARK")
        or (isinstance(node, ast.Constant) and node.value == "_xmcjax_checked")
        or (isinstance(node, ast.alias) and node.name in ("_passed", "_MARK"))
    }
    assert marks == {GATE}


def test_scipy_converts_nothing_that_was_not_checked():
    found = set()
    for where, node in NODES:
        name = called(node)
        of_shape = isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Tuple)
        constructs = name in CONSTRUCTORS and not of_shape
        if (name in CONVERSIONS or constructs) and module_names(where) != GATE:
            found.add(where)
    assert found == set(CONVERTED)
