"""Training, prediction and evaluation through the command, against the library."""

import json
import re
import time
import types

import numpy as np
import pytest
from scipy import sparse as sp

from tests.support.lanes import train as lanes_train
from xmcjax import OneVsAllClassifier, data, lanes, losses, metrics
from xmcjax.cli import train as train_command
from xmcjax.inits import INITS
from xmcjax.models import LinearModel, predict_topk, read_predictions
from xmcjax.penalties import L1, ElasticNet, HuberPenalty
from xmcjax.solvers import Status

pytestmark = pytest.mark.usefixtures("no_wait_for_the_disk")
TRANSFORMS = "log,idf,unit"


AMAZON = ("--propensities", "Amazon")
# What the command is told, what the library is told, and what the manifest keeps of it.
OPTIONS = [
    (("--C", 2, "--clip", 0.02), dict(C=2.0, clip=0.02), dict(C=2.0, clip=0.02)),
    (("--no-fit-intercept", "--max-iter", 3), dict(fit_intercept=False, max_iter=3), dict(max_iter=3)),
    (("--loss", "logistic", "--init", "zero"), dict(loss=losses.logistic, init=INITS["zero"]()), {}),
    (("--loss", "hinge", "--C", 3), dict(loss=losses.hinge, C=3.0), dict(loss={"name": "hinge"})),
    (("--penalty", "l1"), dict(penalty=L1()), dict(penalty={"name": "l1"})),
    (
        ("--penalty", "elastic_net", "--l1-ratio", 0.9),
        dict(penalty=ElasticNet(0.9)),
        dict(penalty={"name": "elastic_net", "l1_ratio": 0.9}),
    ),
    (
        ("--penalty", "huber", "--huber-width", 0.01),
        dict(penalty=HuberPenalty(0.01)),
        dict(penalty={"name": "huber", "huber_width": 0.01}),
    ),
    (("--sparsify-rise", 0.1), dict(sparsify_rise=0.1), dict(sparsify=0.1)),
    (("--dtype", "float64", "--tol", 1e-9), dict(tol=1e-9), dict(dtype="float64")),
    *(
        (
            ("--weighting", name, *AMAZON),
            dict(weighting=name),
            dict(weighting={"name": name, "a": 0.6, "b": 2.6}),
        )
        for name in lanes.WEIGHTINGS
    ),
    (("--class-weight", "balanced"), dict(balanced=True), dict(class_weight="balanced", weighting=None)),
    (
        ("--class-weight", "balanced", "--weighting", "propensity", *AMAZON),
        dict(balanced=True, weighting="propensity"),
        dict(class_weight="balanced", weighting={"name": "propensity", "a": 0.6, "b": 2.6}),
    ),
]


@pytest.mark.parametrize(
    ("flags", "options", "meta"), OPTIONS, ids=[" ".join(map(str, o[0])) for o in OPTIONS]
)
def test_the_weights_are_those_of_the_library(train, files, flags, options, meta):
    directory, result = train(*flags, transform=TRANSFORMS)
    result.done()
    X, Y = data.load_xmc(files / "train.txt", meta.get("dtype", "float32"))
    options = dict(options)
    if name := options.pop("weighting", None):
        options["label_weights"] = lanes.WEIGHTINGS[name](metrics.inverse_propensities(Y, 0.6, 2.6))
    if options.pop("balanced", False):
        options["label_weights"] = lanes.balanced_weights(Y).times(options.get("label_weights"))
    expected, _ = lanes_train(data.fit_transforms(TRANSFORMS, X).apply(X), Y, **options)
    model = LinearModel.load(directory)
    assert model.dtype == X.dtype and {key: model.meta[key] for key in meta} == meta
    assert model.n_labels == len(expected) == 30
    for label, wanted in expected.items():
        weights = model.weights(label, label + 1)
        np.testing.assert_array_equal(weights.indices, wanted.indices)
        np.testing.assert_array_equal(weights.data, wanted.values)
        assert model.intercept()[label] == X.dtype.type(wanted.bias)
        assert model.status[label] == wanted.status


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_predict_and_evaluate_do_what_the_library_does(train, xmcjax, files, tmp_path, dtype):
    directory, _ = train("--dtype", dtype, transform=TRANSFORMS)
    model, out, file = LinearModel.load(directory), tmp_path / "top.txt", files / "train.txt"
    xmcjax("predict", "--model", directory, "--data", files / "test.txt", "--out", out).done()
    X, Y = data.load_xmc(file, dtype)
    X_test, Y_test = data.load_xmc(files / "test.txt", dtype)
    labels, scores = predict_topk(model, data.fit_transforms(TRANSFORMS, X).apply(X_test), 5)
    found, found_scores = read_predictions(out)
    np.testing.assert_array_equal(found, labels)
    np.testing.assert_array_equal(found_scores, scores.astype(np.float32))

    evaluate = ("evaluate", "--data", files / "test.txt", "--predictions", out, "--k", 1, 4, "--train", file)
    table = xmcjax(*evaluate).done()
    rows = {line.split()[0]: line.split()[1:] for line in table.out.splitlines()[1:]}
    assert rows["@1"] == ["@4"]
    for name, metric in metrics.RANKING_METRICS.items():
        assert rows[name] == [f"{100 * metric(Y_test, labels, k):.2f}" for k in (1, 4)]
    q = metrics.inverse_propensities(Y)
    for name, metric in metrics.PROPENSITY_METRICS.items():
        values = [metric(Y_test, labels, k, inverse_propensities=q) for k in (1, 4)]
        assert rows[name] == [f"{100 * value:.2f}" for value in values]
    amazon, same = (xmcjax(*evaluate, "--propensities", name) for name in ("Amazon", "amazon-titles_670k"))
    assert same == amazon and amazon.out != table.out  # any spelling that Python takes


def test_manifest_says_how_the_model_was_made_and_nothing_of_the_run(train):
    options = ("--loss", "huber_hinge", "--delta", 0.5, "--init", "multi_pos", "--msi-s", 2, "--n-jobs", 2)
    directory, _ = train(*options)
    meta = LinearModel.load(directory).meta
    fingerprint = meta.pop("data")
    assert len(fingerprint) == 64
    assert meta == {
        "xmcjax_version": "0.1.0",
        "n_features": 80,
        "n_labels": 30,
        "dtype": "float32",
        "transforms": ["unit"],
        "penalty": {"name": "l2"},
        "weighting": None,
        "sparsify": None,
        "loss": {"name": "huber_hinge", "delta": 0.5},
        "init": {"name": "multi_pos", "msi_s": 2.0, "msi_t": None, "max_positives": 5, "ridge": 0.01},
        "C": 1.0,
        "eps": 0.01,
        "clip": None,
        "bias": "regularised",
        "max_iter": 100,
    }
    run = json.loads((directory / "run.json").read_text())[-1]
    assert run["options"]["n_jobs"] == 2 and run["labels_trained"] == 30
    assert run["statuses"] == {"converged": 29, "no_positives": 1}


@pytest.mark.parametrize("init", [name for name in INITS if name != "pretrained"])
def test_bytes_do_not_depend_on_threads_or_block_size(train, contents, init):
    models = []
    for threads, size in ((1, 16), (2, 3), (2, 64)):
        options = ("--init", init, "--n-jobs", threads, "--block-size", size)
        models.append(contents(train(*options, name=f"m{threads}-{size}")[0]))
    assert models[0] == models[1] == models[2]


def test_a_pretrained_model_is_known_by_its_content_not_by_its_place(train, contents, tmp_path):
    first, _ = train("--tol", 0.1)
    moved = first.rename(tmp_path / "elsewhere")
    again, result = train("--tol", 0.1, "--init", "pretrained", "--pretrained", moved, name="again")
    result.done()
    moved = moved.rename(tmp_path / "third")
    once_more, _ = train("--tol", 0.1, "--init", "pretrained", "--pretrained", moved, name="once-more")
    assert contents(again) == contents(once_more)
    # it starts at the optimum, so that hardly a step is left
    assert LinearModel.load(again).newton_steps.sum() < LinearModel.load(moved).newton_steps.sum() / 2


def test_label_ranges_are_parts_of_the_whole(train):
    whole = LinearModel.load(train()[0])
    for first, last in ((0, 7), (7, 30)):
        directory, result = train("--labels", f"{first}:{last}", name=f"part{first}")
        result.done()
        part = LinearModel.load(directory)
        assert part.label_range == (first, last)
        difference = part.weights(first, last) != whole.weights(first, last)
        assert difference.nnz == 0
        np.testing.assert_array_equal(part.intercept()[first:last], whole.intercept()[first:last])


@pytest.mark.parametrize("init", ["mean_separating", "ova_primal_pp", "zero", "multi_pos"])
def test_resume_trains_what_is_missing_and_ends_with_the_same_bytes(train, contents, init):
    options = ("--shard-size", 4, "--init", init)
    whole, _ = train(*options)
    directory, _ = train(*options, name="part")
    for number in (1, 5):
        (directory / f"shard-{number:06d}.safetensors").unlink()
    (directory / ".shard-000002.safetensors.0123456789abcdef.tmp").write_bytes(b"half")
    _, result = train(*options, "--resume", "--n-jobs", 2, "--block-size", 5, name="part")
    result.done()
    assert "8 converged; 22 were stored before" in result.out
    assert contents(directory) == contents(whole)
    # and once more, with nothing left to do
    _, result = train(*options, "--resume", name="part")
    assert result.code == 0 and "none left to train; 30 were stored before" in result.out
    assert contents(directory) == contents(whole)


@pytest.mark.parametrize("threads", [1, 2])
def test_after_the_timeout_no_shard_is_begun(train, contents, files, xmcjax, tmp_path, monkeypatch, threads):
    whole, _ = train("--shard-size", 4)
    options = ("--shard-size", 4, "--n-jobs", threads, "--block-size", 2)
    with monkeypatch.context() as patch:
        hours = iter(range(10_000))
        # looked at when the command begins, then before every shard; other threads keep their clock
        clock = types.SimpleNamespace(monotonic=lambda: 3600.0 * next(hours), perf_counter=time.perf_counter)
        for module in ("train", "_training"):
            patch.setattr(f"xmcjax.cli.{module}.time", clock)
        more = ("--timeout", 3.5 * 3600, "--test", files / "test.txt")
        directory, result = train(*options, *more, name="part")
    assert result.code == 75, result.err
    assert "labels      12 converged, 18 not begun\n" in result.out and "per cent" not in result.out
    assert "18 of 30 labels were not begun when the time was over" in result.err.splitlines()[0]
    stored = LinearModel.load(directory, partial=True)
    assert stored.missing() == [(12, 30)]
    run = json.loads((directory / "run.json").read_text())[-1]
    assert (run["labels_trained"], run["labels_missing"]) == (12, 18)
    predict = ("predict", "--model", directory, "--data", files / "test.txt", "--out", tmp_path / "p")
    xmcjax(*predict).refused("finish the training with --resume")
    _, result = train(*options, "--timeout", 3600, "--resume", name="part")
    assert "17 converged, 1 no_positives; 12 were stored before" in result.done().out
    assert contents(directory) == contents(whole)


def test_resume_with_other_options_is_refused_by_name(train, contents):
    directory, _ = train()
    before = contents(directory)
    for option, value, key in (
        ("--C", 3, "C"),
        ("--weighting", "propensity", "weighting"),
        ("--class-weight", "balanced", "class_weight (--class-weight)"),
        ("--sparsify-rise", 0.1, "sparsify (--sparsify-rise)"),
        ("--tol", 0.1, "eps (--tol)"),
        ("--no-fit-intercept", None, "bias (--no-fit-intercept, --no-regularise-intercept)"),
        ("--shard-size", 7, "shard_size"),
        ("--init", "zero", "init"),
        ("--dtype", "float64", "dtype"),  # in which the data have another hash
    ):
        _, result = train(*[word for word in (option, value) if word is not None], "--resume")
        result.refused(f"cannot resume, the model was started with {key} = ")
        assert result.out.count("\n") <= 2  # of the data and the plan
    assert contents(directory) == before


def test_an_existing_model_is_never_written_over(train, contents):
    directory, _ = train()
    before = contents(directory)
    _, result = train("--C", 5)
    result.refused("found a model; --resume continues it (nothing was changed)")
    assert result.out == ""  # told before the data are read
    assert contents(directory) == before


def test_summary_and_warnings(train, files):
    _, result = train("--test", files / "test.txt")
    for part in (
        "29 converged, 1 no_positives",
        "Newton steps and",
        "of the rows active",
        "s of it the first step, which compiles",
        "per cent of 60 rows",
    ):
        assert part in result.done().out
    assert result.err.splitlines() == [
        "xmcjax: warning: 1 of 30 labels have no positive row: they are never predicted"
    ]


def test_test_scores_are_those_of_evaluate(train, xmcjax, files, tmp_path):
    directory, result = train("--test", files / "test.txt")
    out = tmp_path / "top.txt"
    xmcjax("predict", "--model", directory, "--data", files / "test.txt", "--out", out)
    table = xmcjax("evaluate", "--data", files / "test.txt", "--predictions", out).out
    precision = next(line for line in table.splitlines() if line.startswith("P "))
    assert result.out.splitlines()[-1] == precision
    assert float(precision.split()[1]) > 30  # of chance: some 10


@pytest.mark.parametrize("init", ["mean_separating", "zero"])
def test_features_that_overflow_are_one_warning_with_a_remedy(xmcjax, tmp_path, init):
    (tmp_path / "large.txt").write_text("3 2 2\n0 0:3e38\n1 1:3e38\n0 0:3e38 1:3e38\n")
    train = ["train", "--train", tmp_path / "large.txt", "--model", tmp_path / "m", "--init", init]
    warnings = [line for line in xmcjax(*train).done().err.splitlines() if "arning" in line]
    assert len(warnings) == 1 and "(2 nonfinite)" in warnings[0] and "huge feature values" in warnings[0]


def test_labels_that_do_not_converge_are_one_warning_with_a_remedy(train):
    directory, result = train("--max-iter", 1, "--tol", 1e-6)
    assert result.code == 0
    warning = result.err.splitlines()[1]
    status = LinearModel.load(directory).status
    count = (status == Status.MAX_STEPS).sum()
    assert count > 20
    assert f"{count} of 30 labels did not converge ({count} max_steps), the worst is label " in warning
    assert warning.endswith(": raise max_iter or tol, or scale the features")
    assert len(result.err.splitlines()) == 2


def test_a_clip_that_raises_objectives_is_warned_of_in_one_line(train, files, tmp_path):
    X, Y = data.load_xmc(files / "train.txt")
    X = (30 * X).astype(np.float32)  # weights are small where features are large
    large = tmp_path / "large.txt"
    data.save_xmc(large, X, Y)

    def said(*options, name):
        _, result = train(*options, name=name, file=large, transform="")
        result.done()
        return [line for line in result.err.splitlines() if "clip" in line]

    [line] = said("--clip", 0.01, name="fixed")
    assert line.startswith("xmcjax: warning: dropping weights below clip = 0.01 raised the objective of ")
    assert re.search(r" by more than 1%, that of label \d+ most, by \d", line) and "leave clip out" in line
    assert said(name="default") == said("--clip", 1e-7, name="tiny") == []
    _, result = train("--clip", 0.01, name="unit")  # rows of norm 1
    assert "clip" not in result.err


def test_starting_weights_alone_are_no_failure(train):
    directory, result = train("--max-iter", 0)
    assert result.code == 0 and len(result.err.splitlines()) == 1
    model = LinearModel.load(directory)
    assert model.newton_steps.sum() == 0
    assert 0 < np.abs(model.coef().data).min() < 1e-3  # nothing was dropped


def test_classes_of_svmlight_and_npz_start_where_the_user_says(train, xmcjax, tmp_path):
    rng = np.random.default_rng(0)
    X = sp.csr_matrix((rng.random((60, 12)) * (rng.random((60, 12)) < 0.5)).astype(np.float32))
    classes = np.arange(60) % 4 + 1
    X = X + sp.csr_matrix((np.full(60, 3, np.float32), (np.arange(60), classes)), X.shape)
    data.save_svmlight(tmp_path / "c.svm", X, classes)
    svmlight = ("--format", "svmlight")
    npz = tmp_path / "c.npz"
    xmcjax("convert", "--data", tmp_path / "c.svm", "--out", npz, *svmlight).done()
    models = []
    for name, file, options in (("s", tmp_path / "c.svm", svmlight), ("n", npz, ())):
        directory, result = train(*options, "--first-label", 1, name=name, file=file)
        result.done()
        models.append(LinearModel.load(directory))
        assert models[-1].n_labels == 4 and (models[-1].status == Status.CONVERGED).all()
    assert models[0].meta == models[1].meta
    # without it, class 0 would be a label that no row has
    directory, result = train(*svmlight, name="zero", file=tmp_path / "c.svm")
    assert "1 of 5 labels have no positive row" in result.err
    _, result = train(*svmlight, "--first-label", 2, name="two", file=tmp_path / "c.svm")
    assert result.code == 2 and "expected classes from 2 on" in result.err

    out = tmp_path / "top"
    xmcjax("predict", "--model", tmp_path / "s", "--data", tmp_path / "c.svm", "--out", out, *svmlight).done()
    scored = ("evaluate", "--data", tmp_path / "c.svm", "--predictions", out, *svmlight, "--first-label", 1)
    assert "top      100.00" in xmcjax(*scored, "--k", 1).out


def test_rows_evaluated_need_not_show_every_class(train, xmcjax, tmp_path):
    X, classes = sp.csr_matrix(np.eye(4, dtype=np.float32)[np.arange(40) % 4]), np.arange(40) % 4
    data.save_svmlight(tmp_path / "all.svm", X, classes)
    data.save_svmlight(tmp_path / "two.svm", X[classes < 2], classes[classes < 2])
    svmlight = ("--format", "svmlight")
    convert = ("convert", "--data", tmp_path / "two.svm", "--out", tmp_path / "two.npz", *svmlight)
    assert xmcjax(*convert, "--n-features", 4).code == 0
    assert train(*svmlight, name="m", file=tmp_path / "all.svm")[1].code == 0
    tables = []
    for file, options in ((tmp_path / "two.svm", svmlight), (tmp_path / "two.npz", ())):
        out = tmp_path / f"{file.name}.top"
        predict = ("predict", "--model", tmp_path / "m", "--data", file, "--out", out, "--top-k", 4)
        assert xmcjax(*predict, *options).code == 0
        scored = xmcjax("evaluate", "--data", file, "--predictions", out, "--k", 1, *options)
        assert scored.code == 0, scored.err
        tables.append(scored.out)
    assert tables[0] == tables[1] and "100.00" in tables[0]


def test_lists_of_labels_in_svmlight(train, xmcjax, files, tmp_path):
    X, Y = data.load_xmc(files / "train.txt")
    path = tmp_path / "lists.svm"
    data.save_svmlight(path, X, Y)
    options = ("--format", "svmlight", "--multilabel", "--n-features", 80, "--n-labels", 30)
    directory, result = train(*options, file=path)
    result.done()
    reference, _ = train(name="xmc")
    assert LinearModel.load(directory).meta == LinearModel.load(reference).meta


def test_npz_without_a_suffix(train, xmcjax, files, contents, tmp_path):
    out = tmp_path / "data.bin"
    xmcjax("convert", "--data", files / "train.txt", "--out", out, "--out-format", "npz").done()
    directory, result = train("--format", "npz", file=out)
    result.done()
    assert contents(directory) == contents(train(name="text")[0])


def test_predictions_do_not_depend_on_the_pieces(xmcjax, files, tmp_path, monkeypatch):
    """The data are read, and predictions written, some rows at a time."""
    model = tmp_path / "m"
    assert (
        xmcjax("train", "--train", files / "train.txt", "--model", model, "--transform", "log,unit").code == 0
    )
    predict = ("predict", "--model", model, "--data", files / "train.txt")
    assert xmcjax(*predict, "--out", tmp_path / "whole.txt").code == 0
    taken = []
    real = data.load_feature_pieces

    def small(*arguments, **options):
        for piece in real(*arguments, **options | {"piece": 2000}):
            taken.append(piece.shape[0])
            yield piece

    monkeypatch.setattr("xmcjax.data._files.CHUNK", 1000)
    monkeypatch.setattr("xmcjax.cli._data.load_feature_pieces", small)
    result = xmcjax(*predict, "--out", tmp_path / "pieces.txt")
    assert len(taken) > 10 and sum(taken) == 300
    assert "(300 rows, 5 labels per row)" in result.out
    assert (tmp_path / "pieces.txt").read_bytes() == (tmp_path / "whole.txt").read_bytes()


def test_the_hinge_is_trained_resumed_and_opened(xmcjax, files, tmp_path, contents):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    train = ["train", "--train", files / "train.txt", "--transform", "unit", "--loss", "hinge", "--C", 2]
    result = xmcjax(*train, "--model", whole)
    assert result.code == 0 and "passes over the rows per label" in result.out
    model = LinearModel.load(whole)
    assert model.meta["loss"] == {"name": "hinge"}
    part = xmcjax(*train, "--shard-size", 4, "--n-jobs", 2, "--model", resumed, "--timeout", 1e-9)
    assert part.code == 75
    assert xmcjax(*train, "--shard-size", 4, "--n-jobs", 2, "--model", resumed, "--resume").code == 0
    assert (model.coef() != LinearModel.load(resumed).coef()).nnz == 0
    np.testing.assert_array_equal(model.intercept(), LinearModel.load(resumed).intercept())
    for wrong in (["--penalty", "l1"], ["--init", "zero"], ["--no-regularise-intercept"], ["--max-iter", 0]):
        refused = xmcjax(*train, *wrong, "--model", tmp_path / "no")
        assert refused.code == 2 and "with the loss hinge, which is solved by its dual" in refused.err
        assert not (tmp_path / "no").exists()


def test_a_run_that_was_begun_with_clip_beside_what_takes_its_place_goes_on(
    xmcjax, files, tmp_path, monkeypatch, contents
):
    """Earlier versions took both; clip was without effect."""
    train = ("train", "--train", files / "train.txt", "--sparsify-rise", 0.05, "--model", tmp_path / "m")
    made = train_command._training.meta
    with monkeypatch.context() as patch:
        patch.setattr(train_command._training, "meta", lambda *given: made(*given) | {"clip": 0.01})
        xmcjax(*train).done()
    before = contents(tmp_path / "m")
    xmcjax(*train, "--resume").done()
    assert contents(tmp_path / "m") == before
    assert OneVsAllClassifier.load(tmp_path / "m").clip is None
    xmcjax(*train, "--clip", 0.01, "--resume").refused("--clip: expected none beside --sparsify-rise")
