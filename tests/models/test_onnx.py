"""Models as ONNX graphs, run by onnxruntime or the reference; skipped where onnx is not installed."""

import sys

import numpy as np
import pytest

import xmcjax
from tests.support.foreign_models import HAS_ONNX, ROWS, best, model_of
from xmcjax.data import fit_transforms
from xmcjax.models import LinearModel, Names, Predictor, ShardWriter, decision_function, export_model
from xmcjax.solvers import Status

TRANSFORMS = ["", "log,idf,unit", "tfidf", "sqrt,unit,frequency"]
needs_onnx = pytest.mark.skipif(not HAS_ONNX, reason="the extra onnx is not installed")


def onnx_gives(path, X) -> dict[str, np.ndarray]:
    """The outputs of a graph: of onnxruntime, or of the reference where that is not installed."""
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        session = ReferenceEvaluator(str(path))
        names = list(session.output_names)
    else:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
    found = zip(names, session.run(None, {"X": X}), strict=True)
    return {str(name): np.asarray(output) for name, output in found}


@needs_onnx
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("transforms", TRANSFORMS)
def test_onnx_predicts_as_the_model_does(tmp_path, weights, dtype, transforms):
    X = np.abs(ROWS).astype(dtype)
    X[3] = 0
    fitted = fit_transforms(transforms, X)
    more = dict(transforms=list(fitted.names), arrays=dict(fitted.arrays) or None)
    status = [Status.CONVERGED] * 4 + [Status.NO_POSITIVES]
    bias = np.append(weights[1][:4], 0)
    model = model_of(tmp_path / "m", weights[0].astype(dtype), bias, status=status, **more)
    told = export_model(model, tmp_path / "m.onnx", "onnx")
    assert len(told) == any(name in ("log", "sqrt") for name in fitted.names)
    found = onnx_gives(tmp_path / "m.onnx", X)
    assert found.keys() == {"label", "scores"} and found["scores"].dtype == dtype
    Z = fitted.apply(X)
    assert np.array_equal(found["label"], best(model, Z)) and found["label"].dtype == np.int64
    wanted = decision_function(model, Z)
    assert np.allclose(found["scores"][:, :4], wanted[:, :4], rtol=1e-5, atol=1e-5)
    assert (found["scores"][:, 4] == dtype(-1e30)).all() and np.isneginf(wanted[:, 4]).all()


@needs_onnx
@pytest.mark.parametrize("link", ["sigmoid", "softmax", "one_of", None])
@pytest.mark.parametrize("classes", [None, [9, 11, 14, 20, 21], ["a", "b", "d", "e", "ç"]])
def test_onnx_gives_classes_and_probabilities(tmp_path, weights, link, classes):
    names = None if classes is None else Names(np.array(classes))
    model = model_of(tmp_path / "m", *weights, names=names, link=link)
    export_model(model, tmp_path / "m.onnx", "onnx")
    X = ROWS.astype(np.float32)
    found = onnx_gives(tmp_path / "m.onnx", X)
    assert found["label"].tolist() == best(model, X).tolist()
    assert ("probabilities" in found) == (link is not None)
    if link is not None:
        places, p = Predictor(model).predict_topk(X, 5, probabilities=True)
        assert np.allclose(np.take_along_axis(found["probabilities"], places, 1), p, atol=1e-6)


@needs_onnx
def test_onnx_gives_truth_values(tmp_path):
    X, y = ROWS.astype(np.float32), np.arange(len(ROWS)) % 2 == 0
    classifier = xmcjax.MulticlassSVC().fit(X, y)
    classifier.save(tmp_path / "m")
    export_model(LinearModel.load(tmp_path / "m"), tmp_path / "m.onnx", "onnx")
    label = onnx_gives(tmp_path / "m.onnx", X)["label"]
    assert label.dtype == bool and np.array_equal(label, classifier.predict(X))


@needs_onnx
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("link", ["sigmoid", "softmax", "one_of"])
@pytest.mark.parametrize("lower", [-200, 12, 17, 30, 130])
def test_probabilities_of_scores_that_are_all_low_or_high(tmp_path, weights, link, dtype, lower):
    model = model_of(tmp_path / "m", weights[0].astype(dtype), weights[1] - lower, link=link)
    export_model(model, tmp_path / "m.onnx", "onnx")
    found = onnx_gives(tmp_path / "m.onnx", ROWS.astype(dtype))
    places, p = Predictor(model).predict_topk(ROWS.astype(dtype), 5, probabilities=True)
    # the scores, of some 100, are sums of another order
    rtol = 1e3 * np.finfo(dtype).eps
    probabilities = np.take_along_axis(found["probabilities"], places, 1)
    np.testing.assert_allclose(probabilities, p, rtol=rtol, atol=np.finfo(dtype).tiny)


@needs_onnx
@pytest.mark.parametrize("form", [2, 4, "labels"])
@pytest.mark.parametrize("name", ["OneVsAllClassifier", "MulticlassSVC", "TopKSVC"])
def test_a_calibrated_model_has_the_probabilities_of_the_estimator(tmp_path, name, form):
    if form == "labels" and name != "OneVsAllClassifier":
        pytest.skip("classes alone")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6)).astype(np.float32)
    z = X @ rng.normal(size=(6, 4)) + rng.normal(size=(200, 4))
    y = (z > 0.5).astype(int) if form == "labels" else z[:, :form].argmax(axis=1)
    method = "sigmoid" if name == "OneVsAllClassifier" else "temperature"
    classifier = getattr(xmcjax, name)(calibration=method, cv=3, random_state=0).fit(X, y)
    classifier.save(tmp_path / "m")
    export_model(LinearModel.load(tmp_path / "m"), tmp_path / "m.onnx", "onnx")
    found = onnx_gives(tmp_path / "m.onnx", X)
    np.testing.assert_allclose(found["probabilities"], classifier.predict_proba(X), rtol=1e-4, atol=1e-6)
    if form != "labels":
        assert found["label"].tolist() == classifier.predict(X).tolist()


@needs_onnx
def test_weights_that_are_too_many_for_onnx(tmp_path):
    meta = dict(n_features=50_000, n_labels=20_000, dtype="float32")
    with ShardWriter(tmp_path / "m", meta, shard_size=20_000) as writer:
        for label in range(20_000):
            writer.add(label, [0], np.ones(1, np.float32))
    with pytest.raises(ValueError, match=r"expected weights of at most 2\.1 GB as a dense .* found 4\.0 GB"):
        export_model(tmp_path / "m", tmp_path / "m.onnx", "onnx")
    assert not (tmp_path / "m.onnx").exists()


def test_a_missing_package_is_said_in_a_sentence(tmp_path, weights, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "onnx"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    model = model_of(tmp_path / "m", *weights)
    with pytest.raises(ImportError, match=r"^ONNX files need onnx: pip install 'xmcjax\[onnx\]'$"):
        export_model(model, tmp_path / "m.onnx", "onnx")


@needs_onnx
@pytest.mark.parametrize("transform", ["log", "sqrt"])
def test_numbers_below_0_give_no_scores_where_the_library_refuses_them(tmp_path, weights, transform):
    W, bias = (np.float32(part) for part in weights)
    model = model_of(tmp_path / "m", W, bias, transforms=[transform])
    told = export_model(model, tmp_path / "m.onnx", "onnx")
    assert told == [
        f"a graph refuses nothing: where the transform {transform} meets a number below 0 all scores are NaN"
    ]
    X = np.abs(np.float32(ROWS))
    X[1, 2] = -0.5
    scores = onnx_gives(tmp_path / "m.onnx", X)["scores"]
    assert np.isnan(scores[1]).all() and np.isfinite(np.delete(scores, 1, axis=0)).all()
    with pytest.raises(ValueError, match="not negative"):
        model.transforms().apply(X)


@needs_onnx
def test_classes_beyond_int64_are_texts(tmp_path, weights):
    classes = np.array([5, 2**63, 2**63 + 1, 2**63 + 2, 2**64 - 1], np.uint64)
    model = model_of(tmp_path / "m", *weights, names=Names(classes))
    export_model(model, tmp_path / "m.onnx", "onnx")
    X = ROWS.astype(np.float32)
    found = onnx_gives(tmp_path / "m.onnx", X)["label"]
    assert found.tolist() == [str(one) for one in best(model, X).tolist()]
