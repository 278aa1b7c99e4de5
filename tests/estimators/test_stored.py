"""Every classifier can be saved and loaded: arguments, weights and predictions to the bit."""

import copy
import hashlib
import json
import pickle
import re
import shutil

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.numpy import load_file, save_file
from sklearn.base import clone

import xmcjax
from tests.support.internals import SYSTEMS, manifest
from xmcjax import kernels
from xmcjax.data import fit_transforms
from xmcjax.estimators import save_with_numbers
from xmcjax.inits import MultiPos
from xmcjax.losses import HuberHinge, MarginLoss
from xmcjax.models import LinearModel, ModelError, ModelFormatError, ShardWriter

TREE = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)]
SUM = kernels.RBF(0.5) + kernels.Scaled(2.0, kernels.Linear())
CLASSIFIERS = {
    "one-vs-all": lambda: xmcjax.OneVsAllClassifier(loss="logistic", n_jobs=1),
    "one-vs-all of objects": lambda: xmcjax.OneVsAllClassifier(
        HuberHinge(delta=0.5), MultiPos(max_positives=3, ridge=0.1), clip=0, propensities=(0.5, 1.5)
    ),
    "multiclass": lambda: xmcjax.MulticlassSVC("cs", fit_intercept=True),
    "multinomial": lambda: xmcjax.MultinomialLogisticRegression(
        class_weight={3: 1.0, 4: 2.0, 5: 1.0, 6: 1.0}
    ),
    "top-k": lambda: xmcjax.TopKSVC(k=2, C=0.1),
    "kernel": lambda: xmcjax.KernelLogisticClassifier("matern", v=2.0),
    "kernel of rank 20": lambda: xmcjax.KernelLogisticClassifier(rank=20),
    "kernel of waves": lambda: xmcjax.KernelLogisticClassifier(rank=20, approximation="fourier"),
    "kernel in a tree": lambda: xmcjax.KernelLogisticClassifier(hierarchy=TREE, v=[1.0, 2, 3, 4, 5, 6]),
    "kernel with loadings": lambda: xmcjax.KernelLogisticClassifier(loadings=np.eye(4).tolist()),
    "kernel object": lambda: xmcjax.KernelLogisticClassifier(
        kernels.RBF(0.5) + kernels.Scaled(2.0, kernels.Linear())
    ),
    "kernel of one against the rest": lambda: xmcjax.KernelLogisticClassifier(likelihood="one_vs_rest"),
}


def problem(dtype=np.float32):
    rng = np.random.default_rng(0)
    y = rng.integers(3, 7, 90)
    return (np.eye(7)[y] @ rng.normal(size=(7, 5)) + 0.3 * rng.normal(size=(90, 5))).astype(dtype), y


def same(one, other, X) -> None:
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    if hasattr(one, "predict_proba"):
        np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_loaded_predicts_alike(tmp_path, name, dtype):
    X, y = problem(dtype)
    classifier = CLASSIFIERS[name]().fit(X, y)
    classifier.save(tmp_path / "m")
    loaded = type(classifier).load(tmp_path / "m")
    same(classifier, loaded, X)
    wanted, found = classifier.get_params(), loaded.get_params()
    for argument in wanted:
        if not isinstance(wanted[argument], kernels.Kernel):
            value = wanted[argument]
            expected = [list(pair) for pair in value] if argument == "hierarchy" and value else value
            expected = list(value) if isinstance(value, tuple) else expected
            assert found[argument] == expected, argument
    lost = {"history_", "search_", "reason_"}
    assert classifier.__dict__.keys() - lost == loaded.__dict__.keys() - lost
    for attribute in ("status_", "n_iter_", "objective_", "dual_gap_", "v_", "sigma2_"):
        if hasattr(classifier, attribute):
            np.testing.assert_array_equal(getattr(loaded, attribute), getattr(classifier, attribute))
    loaded.save(tmp_path / "again")
    files = sorted(path.name for path in (tmp_path / "m").iterdir())
    for file in files:
        if file != "manifest.json" or "kernel" not in name:
            assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "m" / file).read_bytes(), file


@pytest.mark.parametrize("name", ["one-vs-all", "multiclass", "multinomial", "top-k", "kernel"])
@pytest.mark.parametrize("classes", [["no", "yes"], [3, 4, 5], ["a", "bb", "ccc", "d"]])
def test_classes_of_any_kind_and_sparse_features(tmp_path, name, classes):
    X, y = problem()
    y = np.array(classes)[y % len(classes)]
    classifier = CLASSIFIERS[name]()
    classifier.set_params(**({"class_weight": None} if name == "multinomial" else {}))
    classifier.set_params(**({"k": 1} if name == "top-k" else {}))
    classifier.fit(sp.csr_matrix(X), y).save(tmp_path / "m")
    loaded = type(classifier).load(tmp_path / "m")
    same(classifier, loaded, sp.csr_matrix(X))
    np.testing.assert_array_equal(loaded.classes_, classifier.classes_)
    assert loaded.classes_.dtype == classifier.classes_.dtype


@pytest.mark.parametrize("sparse", [False, True])
def test_label_matrices(tmp_path, sparse):
    X, y = problem()
    Y = np.eye(7, dtype=int)[y] | np.eye(7, dtype=int)[(y + 1) % 7]
    classifier = xmcjax.OneVsAllClassifier(loss="logistic")
    with pytest.warns(UserWarning, match="no positive rows"):
        classifier.fit(X, sp.csr_matrix(Y) if sparse else Y)
    classifier.save(tmp_path / "m")
    loaded = xmcjax.OneVsAllClassifier.load(tmp_path / "m")
    found = loaded.predict(X)
    assert sp.issparse(found) == sparse
    assert (found != classifier.predict(X)).sum() == 0
    np.testing.assert_array_equal(loaded.predict_topk(X, 3)[0], classifier.predict_topk(X, 3)[0])
    p = loaded.predict_proba(X)
    z = classifier.decision_function(X)
    np.testing.assert_allclose(p, 1 / (1 + np.exp(-np.maximum(z.astype(float), -700))), rtol=1e-5, atol=1e-30)


def test_probabilities_of_one_vs_all():
    X, y = problem(np.float64)
    classifier = xmcjax.OneVsAllClassifier(loss="logistic").fit(X, y)
    p, z = classifier.predict_proba(X), classifier.decision_function(X)
    sigma = 1 / (1 + np.exp(-z))
    np.testing.assert_allclose(p, sigma / sigma.sum(axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(classifier.predict_log_proba(X), np.log(p), rtol=1e-9)
    two = xmcjax.OneVsAllClassifier(loss="logistic").fit(X, y > 4)
    np.testing.assert_allclose(
        two.predict_proba(X)[:, 1], 1 / (1 + np.exp(-two.decision_function(X))), rtol=1e-12
    )
    assert not hasattr(xmcjax.OneVsAllClassifier(), "predict_proba")


def test_names_of_features_are_kept(tmp_path):
    X, y = problem()
    classifier = xmcjax.MultinomialLogisticRegression().fit(X, y)
    classifier.feature_names_in_ = np.array(list("abcde"), object)
    classifier.save(tmp_path / "m")
    loaded = xmcjax.MultinomialLogisticRegression.load(tmp_path / "m")
    assert loaded.feature_names_in_.tolist() == list("abcde")
    assert LinearModel.load(tmp_path / "m").names().features == tuple("abcde")


def test_a_loaded_classifier_has_the_transforms_of_its_model(tmp_path):
    X, y = problem()
    classifier = xmcjax.MulticlassSVC().fit(np.abs(X), y)
    classifier.transforms_ = fit_transforms("log,unit", np.abs(X))
    classifier.save(tmp_path / "m")
    loaded = xmcjax.MulticlassSVC.load(tmp_path / "m")
    same(classifier, loaded, np.abs(X))
    assert loaded.transforms_.names == ("log", "unit")
    for again in (pickle.loads(pickle.dumps(loaded)), copy.deepcopy(loaded)):
        same(classifier, again, np.abs(X))


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("one-vs-all", sp.csr_matrix),
        ("multiclass", np.asarray),
        ("multinomial", sp.csr_matrix),
        ("top-k", np.asarray),
        ("kernel", sp.csr_matrix),
    ],
)
def test_a_loaded_classifier_fits_its_transforms_anew(tmp_path, name, form):
    X, y = problem()
    X = np.where(X > 0.5, X, 0)

    def make():
        return CLASSIFIERS[name]().set_params(random_state=0)

    first, other = form(X[:45]), form(X[45:])
    names = "log,idf,frequency,unit"
    classifier = make().fit(fit_transforms(names, first).apply(first), y[:45])
    classifier.transforms_ = fit_transforms(names, first)
    classifier.save(tmp_path / "m")
    loaded = type(classifier).load(tmp_path / "m")
    kept = loaded.predict(first)
    with pytest.raises(ValueError, match="'log' is for values that are not negative, got -1"):
        loaded.fit(-np.ones((45, 5)), y[45:])
    np.testing.assert_array_equal(loaded.predict(first), kept)  # the transforms are as they were
    loaded.fit(other, y[45:])
    expected, fitted = make().fit(fit_transforms(names, other).apply(other), y[45:]), loaded.transforms_
    np.testing.assert_array_equal(loaded.predict(other), expected.predict(fitted.apply(other)))
    same(expected, clone(loaded).fit(fitted.apply(other), y[45:]), fitted.apply(other))
    if hasattr(loaded, "coef_"):
        for one, two in ((loaded.coef_, expected.coef_), (loaded.intercept_, expected.intercept_)):
            np.testing.assert_array_equal(
                *(np.asarray(a.todense() if sp.issparse(a) else a) for a in (one, two))
            )
    assert fitted.names == tuple(names.split(","))


def test_a_warm_start_of_a_loaded_classifier_is_of_transformed_features(tmp_path):
    X, y = problem()
    X = np.where(X > 0.5, X, 0)
    classifier = xmcjax.OneVsAllClassifier(warm_start=True)
    classifier.fit(fit_transforms("log,idf,unit", X).apply(X), y)
    classifier.transforms_ = fit_transforms("log,idf,unit", X)
    classifier.save(tmp_path / "m")
    loaded = xmcjax.OneVsAllClassifier.load(tmp_path / "m")
    # a fit of no step keeps its starts
    same(classifier, loaded.set_params(max_iter=0).fit(X, y), X)


def test_a_warm_start_moves_with_the_order_of_features(tmp_path):
    X, y = problem()
    # what is frequent in the first rows is rare in the others
    first, other = (np.where(bounds < X, X, 0) for bounds in (np.linspace(-1, 1, 5), np.linspace(1, -1, 5)))
    classifier = xmcjax.OneVsAllClassifier(warm_start=True)
    classifier.transforms_ = fit_transforms("frequency", first)
    classifier.fit(first, y).save(tmp_path / "m")
    loaded = xmcjax.OneVsAllClassifier.load(tmp_path / "m").set_params(max_iter=0)
    loaded.fit(other, y)
    assert (loaded.transforms_.order != classifier.transforms_.order).any()
    np.testing.assert_allclose(
        loaded.decision_function(other), classifier.decision_function(other), rtol=1e-5, atol=1e-6
    )


def test_a_start_from_a_model_moves_with_the_order_of_features(tmp_path):
    X, y = problem()
    first, other = (np.where(bounds < X, X, 0) for bounds in (np.linspace(-1, 1, 5), np.linspace(1, -1, 5)))
    classifier = xmcjax.OneVsAllClassifier()
    classifier.transforms_ = fit_transforms("frequency", first)
    classifier.fit(first, y).save(tmp_path / "m")
    start = dict(init="pretrained", pretrained=tmp_path / "m", max_iter=0)
    loaded = xmcjax.OneVsAllClassifier.load(tmp_path / "m").set_params(**start)
    loaded.fit(other, y)
    assert (loaded.transforms_.order != classifier.transforms_.order).any()
    scores = classifier.decision_function(other)
    np.testing.assert_allclose(loaded.decision_function(other), scores, rtol=1e-5, atol=1e-6)
    # of parts by labels, the first one
    parts = xmcjax.OneVsAllClassifier(**start)
    parts.transforms_ = fit_transforms("frequency", other)
    parts.partial_fit(other, y)
    np.testing.assert_allclose(parts.decision_function(other), scores, rtol=1e-5, atol=1e-6)
    # and of classes that come later
    later = xmcjax.OneVsAllClassifier.load(tmp_path / "m").set_params(max_iter=100)
    kept = y != y.max()
    later.fit(other[kept], y[kept])
    assert (later.transforms_.order != classifier.transforms_.order).any()
    later.set_params(**start).partial_fit(other, y)
    np.testing.assert_allclose(later.decision_function(other)[:, -1], scores[:, -1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("more", [7, -2])
def test_classes_that_numbers_of_a_model_do_not_have_are_saved_by_name(tmp_path, more):
    X, y = problem()
    few = np.where(y < 5, 1, 3)
    save_with_numbers(xmcjax.OneVsAllClassifier().fit(X, few), tmp_path / "m", n_labels=5, data="of rows")
    loaded = xmcjax.OneVsAllClassifier.load(tmp_path / "m")
    loaded.save(tmp_path / "same")
    assert LinearModel.load(tmp_path / "same").n_labels == 5
    loaded.partial_fit(X, np.where(y == 6, more, few)).save(tmp_path / "more")
    again = xmcjax.OneVsAllClassifier.load(tmp_path / "more")
    assert again.classes_.tolist() == sorted([1, 3, more])
    same(loaded, again, X)


class Mine(MarginLoss):
    name = "mine"


class MyKernel(kernels.RBF):
    pass


jax.tree_util.register_dataclass(MyKernel, ["w"], [])


def test_objects_of_ones_own_are_refused(tmp_path):
    X, y = problem()
    classifier = xmcjax.OneVsAllClassifier().fit(X, y)
    classifier.loss = Mine()
    with pytest.raises(TypeError, match=r"^loss: expected .* found Mine; pickle stores"):
        classifier.save(tmp_path / "m")
    with pytest.raises(TypeError, match=r"^kernel: expected one of xmcjax\.kernels, found MyKernel"):
        xmcjax.KernelLogisticClassifier(MyKernel(0.5)).fit(X, y).save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_classes_that_have_no_form_on_disk_are_refused_as_save_says(tmp_path):
    days = np.array(["2026-11-27", "2026-11-28"], "datetime64[D]")
    classifier = xmcjax.MulticlassSVC().fit(np.eye(2), days)
    said = r"^classes: expected numbers or texts \[L\], found datetime64\[D\] .*: such as y\.astype\(str\)$"
    with pytest.raises(TypeError, match=said):
        classifier.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()
    assert "such as dates: pickle stores these" in (classifier.save.__doc__ or "")
    again = pickle.loads(pickle.dumps(classifier))
    assert again.predict(np.eye(2)).tolist() == days.tolist()


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_not_fitted_or_not_empty_is_refused(tmp_path, system):
    from sklearn.exceptions import NotFittedError

    classifier = CLASSIFIERS[system]()
    with pytest.raises(NotFittedError):
        classifier.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "file").touch()
    with pytest.raises(FileExistsError, match="expected a new or empty directory, found file"):
        classifier.fit(*problem()).save(tmp_path / "m")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A directory with a kernel classifier in a tree, and one with low rank."""
    folder = tmp_path_factory.mktemp("stored")
    for name in ("kernel in a tree", "kernel of rank 20"):
        CLASSIFIERS[name]().fit(*problem()).save(folder / name)
    return folder


@pytest.mark.parametrize("file", ["manifest.json", "arrays.safetensors", "names.json"])
def test_damage_of_a_kernel_model_is_found(stored, tmp_path, file):
    shutil.copytree(stored / "kernel in a tree", tmp_path / "m")
    path = tmp_path / "m" / file
    raw = path.read_bytes()
    for changed in (raw[:-3], raw[:20] + bytes([raw[20] ^ 1]) + raw[21:], b""):
        path.write_bytes(changed)
        with pytest.raises(ModelError, match=file.replace(".", r"\.")):
            xmcjax.KernelLogisticClassifier.load(tmp_path / "m")
    path.unlink()
    with pytest.raises((ModelError, FileNotFoundError)):
        xmcjax.KernelLogisticClassifier.load(tmp_path / "m")


def _rewrite(directory, change) -> None:
    """Changes the manifest and the arrays of a model; the hashes are right again."""
    content, _ = manifest.unsealed(directory / "manifest.json")
    arrays = load_file(directory / "arrays.safetensors")
    change(content["meta"], arrays)
    save_file(arrays, directory / "arrays.safetensors")
    raw = (directory / "arrays.safetensors").read_bytes()
    content["arrays"] = vars(manifest.record("arrays.safetensors", raw))
    content.pop("manifest_sha256")
    (directory / "manifest.json").write_bytes(manifest.sealed(content))


def _set(place: tuple, value):
    def change(meta, arrays):
        for key in place[:-1]:
            meta = meta[key]
        meta[place[-1]] = value

    return change


def _deep():
    value: list = []
    for _ in range(900):
        value = [value]
    return value


HOSTILE = [
    _set(("kernels",), _deep()),
    _set(("kernels", "class"), "os"),
    _set(("kernels", "fields"), {}),
    _set(("kernels", "fields", "gram"), None),
    _set(("kernels", "fields", "n_classes"), 10**9),
    _set(("kernels", "fields", "v", "array"), "none"),
    _set(("kernels",), 3),
    _set(("parameters",), {"kernel": {"object": "system", "fields": {}}}),
    _set(("parameters", "alpha"), 1),
    _set(("fit",), {}),
    _set(("fit", "status_"), 99),
    _set(("fit", "n_iter_"), "5"),
    _set(("fit", "objective_"), [1.0]),
    _set(("fit", "without_rows"), 1),
    _set(("fit", "without_rows"), [0.5]),
    _set(("n_labels",), 5),
    _set(("n_features",), 4),
    lambda meta, arrays: arrays.update(dual_coef=arrays["dual_coef"][:-1]),
    lambda meta, arrays: arrays.update(dual_coef=np.full_like(arrays["dual_coef"], np.nan)),
    lambda meta, arrays: arrays.pop("v"),
    # of what the kernel is made of: hyperparameters, training rows, factors
    *(lambda meta, arrays, n=n: arrays.update({f"{n}": arrays[f"{n}"].reshape(-1)[:0]}) for n in range(3)),
    # one norm, or one offset, for all points
    *(lambda meta, arrays, n=n: arrays.update({f"{n}": arrays[f"{n}"][:1]}) for n in (2, 3)),
]


@pytest.mark.parametrize("change", range(len(HOSTILE)))
@pytest.mark.parametrize("name", ["kernel in a tree", "kernel of rank 20"])
def test_a_kernel_model_that_lies_is_refused(stored, tmp_path, name, change):
    shutil.copytree(stored / name, tmp_path / "m")
    _rewrite(tmp_path / "m", HOSTILE[change])
    with pytest.raises(ModelFormatError):
        xmcjax.KernelLogisticClassifier.load(tmp_path / "m")


@pytest.mark.parametrize("kind", [xmcjax.OneVsAllClassifier, xmcjax.MulticlassSVC])
def test_a_linear_model_with_other_parameters_is_refused(tmp_path, kind):
    kind().fit(*problem()).save(tmp_path / "m")
    content = json.loads((tmp_path / "m" / "manifest.json").read_text())
    content.pop("manifest_sha256")
    for key, value in (
        ("parameters", {"mine": 1}),
        ("parameters", 3),
        ("parameters", {"C": {"object": "os", "fields": {}}}),
        ("parameters", {"C": "deep"}),
        ("target", "mine"),
        ("fit", {"status_": 99}),
        ("fit", {"status_": 1e400}),
        ("fit", {"n_iter_": float("nan")}),
        ("fit", [1]),
        ("system", "mine"),
    ):
        changed = content | {"meta": content["meta"] | {key: value}}
        raw = manifest.sealed(changed)
        if b'"deep"' in raw:  # deeper than any Python reads, and than any writes
            head = raw.rpartition(b'"manifest_sha256": "')[0].replace(b'"deep"', b"[" * 10**5 + b"]" * 10**5)
            head += b'"manifest_sha256": "'
            raw = head + hashlib.sha256(head).hexdigest().encode() + b'"\n}\n'
        (tmp_path / "m" / "manifest.json").write_bytes(raw)
        with pytest.raises(ModelFormatError, match=r"manifest\.json"):
            kind.load(tmp_path / "m")


@pytest.mark.parametrize("n_jobs", ["4", 2.5, [1], 0, True, 10**6], ids=repr)
@pytest.mark.parametrize("kind", [xmcjax.OneVsAllClassifier, xmcjax.MulticlassSVC, xmcjax.TopKSVC])
def test_a_number_of_threads_that_is_none_is_refused_when_a_model_is_loaded(tmp_path, kind, n_jobs):
    kind().fit(*problem()).save(tmp_path / "m")
    path = tmp_path / "m" / "manifest.json"
    content = json.loads(path.read_text())
    content.pop("manifest_sha256")
    for right in (None, 1, -1):
        content["meta"]["parameters"]["n_jobs"] = right
        path.write_bytes(manifest.sealed(content))
        assert kind.load(tmp_path / "m").n_jobs == right
    content["meta"]["parameters"]["n_jobs"] = n_jobs
    path.write_bytes(manifest.sealed(content))
    said = f"{path}: expected parameters.n_jobs as a number of threads, found {n_jobs!r}"
    with pytest.raises(ModelFormatError, match=f"^{re.escape(said)}$"):
        kind.load(tmp_path / "m")


def test_a_save_that_was_interrupted_is_made_again(tmp_path, monkeypatch):
    classifier = xmcjax.MulticlassSVC().fit(*problem())

    def interrupted(self, *shard):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ShardWriter, "_write_shard", interrupted)
        with pytest.raises(KeyboardInterrupt):
            classifier.save(tmp_path / "m")
    assert (tmp_path / "m" / "manifest.json").exists()
    classifier.save(tmp_path / "m")
    same(classifier, xmcjax.MulticlassSVC.load(tmp_path / "m"), problem()[0])
    with pytest.raises(FileExistsError, match=r"found a model \(nothing was changed\)$"):
        classifier.save(tmp_path / "m")  # no run that could be resumed


def test_the_probabilities_are_those_of_the_loss_of_the_fit(tmp_path):
    X, y = problem()
    hinge = xmcjax.OneVsAllClassifier().fit(X, y)
    hinge.set_params(loss="logistic")
    assert not hasattr(hinge, "predict_proba")
    hinge.save(tmp_path / "hinge")
    assert LinearModel.load(tmp_path / "hinge").meta["link"] is None
    assert not hasattr(xmcjax.OneVsAllClassifier.load(tmp_path / "hinge"), "predict_proba")
    logistic = xmcjax.OneVsAllClassifier(loss="logistic").fit(X, y).set_params(loss="squared_hinge")
    assert logistic.predict_proba(X).shape == (90, 4)
