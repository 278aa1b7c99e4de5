"""Features and classes are called by what the data call them, wherever the weights have their places."""

import json
import re

import numpy as np
import pytest

from xmcjax import OneVsAllClassifier, plots
from xmcjax.cli.main import main
from xmcjax.data import fit_transforms, save
from xmcjax.models import LinearModel

pytestmark = pytest.mark.usefixtures("no_wait_for_the_disk")

# df of the features falls in another order: 2, 0, 3, 1
ROWS = "6 3 1\n0 0:1 2:3\n0 2:2\n 1:1 2:1\n 0:2 1:2\n 1:1 2:4\n0 0:1 2:1\n"
MORE = [[0], [0], [0.5], [0], [0], [0.25]]
WORDS = ("alpha", "beta", "gamma", "of the second file")


def cells(page, title):
    """The rows of the table of a section, without its head."""
    section = page.read_text().partition(f"<h2>{title}")[2].partition("<h2>")[0]
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", section)[1:]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two models of the same features, in their order and in that of their frequencies."""
    folder = tmp_path_factory.mktemp("reordered")
    (folder / "t.txt").write_text(ROWS)
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in WORDS))
    np.save(folder / "more.npy", np.array(MORE, np.float32))
    data = ("--train", folder / "t.txt", "--more-features", folder / "more.npy")
    for name, transforms in (("plain", "sqrt"), ("reordered", "sqrt,frequency")):
        train = ("train", *data, "--model", folder / name, "--transform", transforms)
        assert main([str(argument) for argument in train]) == 0
    return folder


def test_weights_of_reordered_features_have_the_names_of_the_raw_ones(xmcjax, folder):
    def told(name, *vocabulary):
        inspect = ("inspect", "--model", folder / name, "--label", 0, *vocabulary)
        known = json.loads(xmcjax(*inspect, "--json").done().out)["largest_weights"]["0"]["weights"]
        text = xmcjax(*inspect).done().out.splitlines()[-1].partition("weights: ")[2]
        words = [entry.rpartition(" ")[0] for entry in text.split(", ")]
        assert words == [entry["feature"] for entry in known] and len(words) == 4
        return {entry["feature"]: entry["weight"] for entry in known}

    named = ("--vocabulary", folder / "words.txt")
    plain, words = told("plain"), told("plain", *named)
    assert told("reordered") == pytest.approx(plain, rel=0.02)
    assert told("reordered", *named) == pytest.approx(words, rel=0.02)
    assert {WORDS[int(number)]: weight for number, weight in plain.items()} == words
    assert len({f"{weight:.1f}" for weight in words.values()}) == 4  # none can stand for another


def test_the_page_has_the_names_of_the_raw_features(xmcjax, folder):
    pytest.importorskip("matplotlib")

    def told(name, *vocabulary):
        page = folder / f"{name}.html"
        xmcjax("report", "--model", folder / name, "--out", page, *vocabulary).done()
        return [entry.rpartition(" ")[0] for entry in cells(page, "Largest weights")[-1][3].split(", ")]

    assert sorted(told("reordered")) == ["0", "1", "2", "3"]
    for vocabulary in ((), ("--vocabulary", folder / "words.txt")):
        assert told("reordered", *vocabulary) == told("plain", *vocabulary)


@pytest.mark.parametrize("before", ["plain", "reordered"])
@pytest.mark.parametrize("after", ["sqrt", "sqrt,frequency"])
def test_a_pretrained_start_is_of_the_same_raw_features(xmcjax, folder, before, after):
    """In the further rows the feature that was the rarest is the most frequent."""
    (folder / "more.txt").write_text(ROWS.replace("6 3 1", "10 3 1") + "0 1:1\n" * 4)
    more = np.array(MORE + [[0]] * 4, np.float32)
    np.save(folder / "more-rows.npy", more)
    data = ("--train", folder / "more.txt", "--more-features", folder / "more-rows.npy")
    start = ("--init", "pretrained", "--pretrained", folder / before, "--max-iter", 0)
    name = folder / f"from-{before}-{len(after)}"
    xmcjax("train", *data, "--model", name, "--transform", after, *start).done()
    models = [LinearModel.load(path) for path in (folder / before, name)]
    orders = [model.transforms().order for model in models]
    assert all((order != np.arange(4)).any() for order in orders if order is not None)
    if before == "reordered" and after == "sqrt,frequency":
        assert (orders[0] != orders[1]).any()
    of_raw = [
        model.coef().toarray()[:, np.argsort(np.arange(4) if order is None else order)]
        for model, order in zip(models, orders, strict=True)
    ]
    np.testing.assert_array_equal(*of_raw)
    assert len(np.unique(of_raw[0])) == 4


def test_transforms_tell_their_order():
    X = np.array([[0, 1, 0], [0, 1, 2], [0, 1, 0]], np.float32)
    transforms = fit_transforms("frequency,unit", X)
    np.testing.assert_array_equal(X[:, transforms.order] > 0, transforms.apply(X) > 0)
    assert fit_transforms("unit", X).order is None


def test_the_page_has_classes_where_data_number_them(xmcjax, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    seen = []
    monkeypatch.setattr(plots, "steps_by_positives", lambda steps, positives, ax: seen.append(positives))
    counts = {1: 8, 2: 7, 4: 6, 5: 5}
    y = np.repeat(list(counts), list(counts.values()))
    X = np.eye(6, dtype=np.float32)[y]
    OneVsAllClassifier().fit(X, y).save(tmp_path / "m")
    save(tmp_path / "train.npz", X, y)
    tested = np.append(y, [3] * 5)  # a class that training has not seen
    save(tmp_path / "test.npz", np.eye(6, dtype=np.float32)[tested], tested)
    report = ("report", "--model", tmp_path / "m", "--out", tmp_path / "page.html", "--train")
    xmcjax(*report, tmp_path / "train.npz", "--test", tmp_path / "test.npz").done()
    names = ["0 (1)", "1 (2)", "2 (4)", "3 (5)"]
    unseen, *others = cells(tmp_path / "page.html", "Labels that are found least")
    assert unseen == ["3, which the model does not have", "0", "5", "0"]
    known = [[name, str(rows), str(rows)] for name, rows in zip(names, counts.values(), strict=True)]
    assert [[row[0], *row[2:]] for row in others] == known
    shown = cells(tmp_path / "page.html", "Largest weights")
    # the classes with the most rows first, and each has its own feature
    assert [(row[0], row[3].partition(" ")[0]) for row in shown] == list(zip(names, "1245", strict=True))
    assert [positives.tolist() for positives in seen] == [list(counts.values())]
