"""``xmcjax report``: the page has what is known of a model, and needs no other file."""

import base64
import json
import math
import os
import re
import shutil

import numpy as np
import pytest

from tests.support.internals import SYSTEMS, Page
from xmcjax.data import load_xmc, save_xmc
from xmcjax.metrics import RANKING_METRICS, precision_at_k
from xmcjax.models import LinearModel, Predictor

pytest.importorskip("matplotlib")


def cells(page, title):
    """The rows of the table of a section, without its head."""
    section = page.partition(f"<h2>{title}")[2].partition("<h2>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", section)[1:]
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]


def pictures(page):
    """Their titles; each has to be a whole PNG of its own."""
    found = re.findall(r'<img alt="([^"]*)" src="data:image/png;base64,([^"]*)">', page)
    for _, data in found:
        image = base64.b64decode(data, validate=True)
        assert image.startswith(b"\x89PNG") and image.endswith(b"IEND\xaeB`\x82")
    return [title for title, _ in found]


def test_a_model_alone(xmcjax, model, tmp_path):
    out = tmp_path / "r.html"
    told = xmcjax("report", "--model", model, "--out", out).done()
    assert told.out.startswith(f"written     {out} (")
    page = out.read_text()
    assert page.startswith("<!doctype html>") and not re.search(r"(src|href)=\"(?!data:)", page)
    assert dict(cells(page, "Training")[:4])["labels"] == "30"
    assert [row[:2] for row in cells(page, "How the labels ended")] == [
        ["converged", "29"],
        ["no_positives", "1"],
    ]
    assert [title.partition(" ")[0] for title in pictures(page)] == ["Newton", "Weights"]
    stored = LinearModel.load(model)
    weights = stored.weights(0, 30)
    most = int(np.argmax(np.diff(weights.indptr)))
    row = cells(page, "Largest weights")[0]
    first = np.argmax(np.abs(weights[[most]].data))
    assert row[0] == str(most)
    assert row[3].startswith(f"{weights[[most]].indices[first]} {weights[[most]].data[first]:+.3g}")


def test_with_data_and_names(xmcjax, files, model, tmp_path):
    out, words = tmp_path / "r.html", tmp_path / "words.txt"
    words.write_text("".join(f"<word{k}>\n" for k in range(80)))
    data = ("--test", files / "test.txt", "--train", files / "train.txt", "--vocabulary", words)
    xmcjax("report", "--model", model, "--out", out, *data, "--label", 3, 4).done()
    page = out.read_text()
    X, Y = load_xmc(files / "test.txt")
    labels = Predictor(model).predict_topk(LinearModel.load(model).transforms().apply(X), 5)[0]
    table = cells(page, "Prediction of 60 rows")
    assert table[0][:2] == ["precision (P)", f"{100 * precision_at_k(Y, labels, 1):.1f}"]
    assert [re.findall(r"\((\w+)\)$", row[0]) for row in table] == [[name] for name in RANKING_METRICS]
    worst = cells(page, "Labels that are found least")
    recall = [float(row[1]) for row in worst]
    assert recall == sorted(recall)
    frequent = np.bincount(load_xmc(files / "train.txt")[1].indices, minlength=30)
    for label, found, positives, rows in worst:
        true = Y[:, [int(label)]].toarray().ravel() > 0
        hit = (labels[true] == int(label)).any(axis=1).mean()
        assert (float(found), int(positives)) == (pytest.approx(100 * hit, rel=0.01), true.sum())
        assert int(rows) == frequent[int(label)]
    assert "Labels by their rows in the training data" in pictures(page)
    shown = cells(page, "Largest weights")
    assert [row[0] for row in shown] == ["3", "4"] and shown[0][3].startswith("&lt;word")


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        ([64.19, 27.0, 100.0], ["64", "27", "100"]),
        ([64.19, 27.0, 99.0], ["64.2", "27.0", "99.0"]),
        ([-2.06, 0.5], ["-2.06", "0.50"]),
        ([12345.6, 0.0], ["12,346", "0"]),
        ([1e-9, 0.0], ["1e-09", "0"]),
        ([0.0, 0.0], ["0", "0"]),
        ([math.nan, 2.0], ["nan", "2.00"]),
    ],
)
def test_numbers_of_a_column_have_the_same_decimals(column, shown):
    page = Page("title")
    page.table(["x"], [[x] for x in column])
    assert re.findall(r"<td class=number>(.*?)</td>", page.html()) == shown


CURVES = ["Objective", "Gradient", "Active", "Multiple"]


@pytest.mark.parametrize("name", ["steps.jsonl", "steps.parquet"])
def test_curves_of_the_steps(xmcjax, files, tmp_path, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    stats, out = tmp_path / name, tmp_path / "r.html"
    xmcjax("train", "--train", files / "train.txt", "--model", tmp_path / "m", "--stats", stats).done()
    ask = ("report", "--model", tmp_path / "m", "--out")
    xmcjax(*ask, out, "--stats", stats).done()
    page = out.read_text()
    titles = pictures(page.partition("<h2>Newton steps")[2].partition("<h2>")[0])
    assert [title.partition(" ")[0] for title in titles] == CURVES
    xmcjax(*ask, stats, "--stats", stats).refused("--out", name)
    xmcjax(*ask, tmp_path / "n.html", "--stats", files / "train.txt").refused(
        "expected statistics of training", "train.txt"
    )
    xmcjax(*ask, tmp_path / "n.html", "--stats", tmp_path / "none.jsonl").refused("none.jsonl")
    if name.endswith("jsonl"):
        rows = [json.loads(line) for line in stats.read_text().splitlines()]
        lost = "".join(json.dumps(row | {"objective": None}) + "\n" for row in rows)
        (tmp_path / "lost.jsonl").write_text(lost)
        xmcjax(*ask, out, "--stats", tmp_path / "lost.jsonl").done()
        page = out.read_text().partition("<h2>Newton steps")[2].partition("<h2>")[0]
        assert "Objective by Newton step: steps: expected finite numbers" in page
        assert [title.partition(" ")[0] for title in pictures(page)] == CURVES[1:]
        stats.write_text(stats.read_text().replace('"label": 3,', '"label": 300,'))
        xmcjax(*ask, tmp_path / "n.html", "--stats", stats).refused(
            "--stats: expected labels from 0 to 29 as in the model, found 0 to 300"
        )
        stats.write_text("")
        xmcjax(*ask, tmp_path / "n.html", "--stats", stats).refused("--stats: expected steps of a training")
    assert not (tmp_path / "n.html").exists()


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system(xmcjax, files, tmp_path, system):
    X, Y = load_xmc(files / "train.txt")
    one = np.flatnonzero(np.diff(Y.indptr) > 0)
    Y = Y[one].tolil()
    for row in range(Y.shape[0]):
        Y[row, Y.rows[row][1:]] = 0
    save_xmc(tmp_path / "data.txt", X[one], Y.tocsr())
    train = ("train", "--system", system, "--train", tmp_path / "data.txt", "--model", tmp_path / "m")
    xmcjax(*train, "--transform", "unit").done()
    out = tmp_path / "r.html"
    xmcjax("report", "--model", tmp_path / "m", "--out", out, "--test", tmp_path / "data.txt").done()
    page = out.read_text()
    assert f"<h1>m: {system}</h1>" in page
    knows = system in ("multinomial", "kernel")
    assert any("right" in title for title in pictures(page)) == knows
    assert ("<h2>Largest weights" in page) == (system != "kernel")


def test_what_is_refused(xmcjax, files, model, tmp_path):
    out = tmp_path / "r.html"
    ask = ("report", "--model", model, "--out")
    xmcjax(*ask, out, "--label", 30).refused("--label: expected numbers from 0 to 29, got 30")
    xmcjax(*ask, out, "--top-k", 0).refused("--top-k")
    xmcjax(*ask, out, "--test-labels-file", files / "test.txt").refused("--test-labels-file needs --test")
    xmcjax(*ask, files / "test.txt", "--test", files / "test.txt").refused("--out", "test.txt")
    xmcjax(*ask, out, "--vocabulary", files / "test.txt").refused("expected 80 lines, one per feature")
    assert not out.exists()


def test_the_page_replaces_no_input(xmcjax, files, model, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("".join(f"word{k}\n" for k in range(80)))
    before = words.read_bytes()
    ask = ("report", "--model", model, "--vocabulary", words, "--out")
    xmcjax(*ask, words).refused("--out: expected another file than the data")
    assert words.read_bytes() == before


@pytest.mark.parametrize("flag", ["--train", "--test"])
@pytest.mark.parametrize("stated", [29, 31])
def test_data_of_another_number_of_labels(xmcjax, files, model, tmp_path, flag, stated):
    data = tmp_path / "other.txt"
    X, Y = load_xmc(files / "test.txt")
    Y.resize(Y.shape[0], stated)
    save_xmc(data, X, Y)
    ask = ("report", "--model", model, "--out", tmp_path / "r.html", flag, data)
    xmcjax(*ask).refused(f"{data}:1: expected 30 labels as in {model}, found {stated}")
    assert not (tmp_path / "r.html").exists()


def test_data_that_state_no_number_of_labels_have_those_of_the_model(xmcjax, model, tmp_path):
    data = tmp_path / "few.svm"
    data.write_text("0,2 1:1\n1 80:1\n")
    given = ("--format", "svmlight", "--multilabel", "--test", data, "--train", data)
    xmcjax("report", "--model", model, "--out", tmp_path / "r.html", *given).done()


def test_data_of_fewer_labels_than_the_classes_of_a_model(xmcjax, tmp_path):
    rows = "".join(f"{label} {label}:1\n" for label in (1, 3, 1, 3))
    model, out, wide, narrow = (tmp_path / name for name in ("m", "r.html", "wide.txt", "narrow.txt"))
    wide.write_text(f"4 5 6\n{rows}")
    narrow.write_text(f"4 5 3\n{rows.replace('3', '2')}")
    xmcjax("train", "--system", "kernel", "--train", wide, "--model", model).done()
    xmcjax("report", "--model", model, "--out", out, "--test", wide, "--train", wide).done()
    for flag in ("--test", "--train"):
        said = f"{narrow}: expected at least 4 labels as in {model}, found 3"
        xmcjax("report", "--model", model, "--out", out, flag, narrow).refused(said)


@pytest.mark.parametrize("system", ["one-vs-all", "multinomial"])
def test_statistics_whose_names_are_no_utf_8(xmcjax, tmp_path, system):
    pytest.importorskip("pyarrow")
    data, stats, wrong = tmp_path / "d.txt", tmp_path / "s.parquet", tmp_path / "wrong.parquet"
    data.write_text("4 2 2\n0 0:1\n1 1:1\n0 0:2\n1 1:2\n")
    train = ("train", "--system", system, "--train", data, "--model", tmp_path / "m", "--stats")
    xmcjax(*train, stats).done()
    wrong.write_bytes(
        stats.read_bytes().replace(b"passes", b"\xff\xfesses").replace(b"label", b"\xff\xfebel")
    )
    before = wrong.read_bytes()
    report = ("report", "--model", tmp_path / "m", "--stats", wrong, "--out", tmp_path / "r.html")
    said = (f"{wrong}: expected statistics of", "no Parquet file, or a damaged one")
    xmcjax(*report).refused(*said)
    shutil.rmtree(tmp_path / "m")
    ended = xmcjax(*train, wrong, "--resume")
    assert ended.code == 2 and "\n" not in ended.err.strip() and all(part in ended.err for part in said)
    assert wrong.read_bytes() == before


def test_a_model_whose_name_is_no_utf_8(xmcjax, model, tmp_path):
    named = tmp_path / os.fsdecode(b"w\xfd")
    try:
        shutil.copytree(model, named)
    except OSError:
        pytest.skip("the disk takes names in UTF-8 alone")
    xmcjax("report", "--model", named, "--out", tmp_path / "r.html").done()
    assert r"<h1>w\udcfd: one-vs-all</h1>" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("column", ["objective", "gradient_norm", "multiplier", "seconds", "cg_steps"])
def test_huge_numbers_of_steps(xmcjax, files, model, tmp_path, column):
    stats, out = tmp_path / "s.jsonl", tmp_path / "r.html"
    row = dict(label=3, step=0, objective=1e-10, gradient_norm=1e-10, active=2, cg_steps=2)
    row |= dict(multiplier=1.0, seconds=0.1, status=0)
    huge = 2**31 - 1 if column == "cg_steps" else 1e308
    rows = [row, *(row | {"label": label, "step": 1, column: huge} for label in (3, 3, 4, 4))]
    stats.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = xmcjax("report", "--model", model, "--stats", stats, "--out", out)
    if column == "cg_steps":
        told.refused(
            f"{stats}: expected statistics of training", "2,147,483,649 CG steps of label 3 together"
        )
    else:
        told.done()
        assert len(pictures(out.read_text().partition("<h2>Newton steps")[2].partition("<h2>")[0])) >= 3


@pytest.mark.parametrize("column", ["passes", "gap"])
def test_huge_numbers_of_a_joint_fit(xmcjax, tmp_path, column):
    data, stats, out = (tmp_path / name for name in ("d.txt", "s.jsonl", "r.html"))
    data.write_text("4 2 2\n0 0:1\n1 1:1\n0 0:2\n1 1:2\n")
    train = ("train", "--system", "multiclass", "--train", data, "--model", tmp_path / "m", "--stats", stats)
    xmcjax(*train).done()
    row = json.loads(stats.read_text().splitlines()[0])
    report = ("report", "--model", tmp_path / "m", "--stats", stats, "--out", out)
    for others in ([1e308], [1e308, 2.0], [-1e308]):
        rows = [row | {column: number} for number in others]
        stats.write_text("".join(json.dumps(row) + "\n" for row in rows))
        xmcjax(*report).done()
        shown = out.read_text().partition("<h2>Progress of the fit")[2].partition("<h2>")[0]
        assert len(pictures(shown)) == (2.0 in others)
        assert ("Relative duality gap by passes: rows: expected some" in shown) == (2.0 not in others)
