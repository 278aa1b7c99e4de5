"""Models of dismecpp: what is written is read by a parser of the format that shares no code with ours."""

import json

import numpy as np
import pytest

from tests.support.foreign_models import ROWS, D, model_of
from xmcjax.data import DataFormatError
from xmcjax.estimators import OneVsAllClassifier
from xmcjax.models import ModelError, decision_function, export_model, import_model


def dismec_says(path, X) -> np.ndarray:
    """Scores of a model of dismecpp by its format (`io/model-io.h`), whose last feature is a bias of 1."""
    content = json.loads(path.read_text())
    W = np.full((content["num-labels"], content["num-features"]), np.nan)
    for entry in content["files"]:
        lines = (path.parent / entry["file"]).read_text().splitlines()
        assert len(lines) == entry["count"] and entry["weight-format"] == "SparseTXT"
        for label, line in enumerate(lines, entry["first"]):
            W[label] = 0
            for pair in line.split():
                j, value = pair.split(":")
                W[label, int(j)] = float(value)
    return np.hstack([X, np.ones((len(X), content["num-features"] - X.shape[1]))]) @ W.T


def test_dismec_scores_as_the_model_does(tmp_path, weights, monkeypatch):
    monkeypatch.setattr("xmcjax.models._dismec._LABELS", 2)
    model = model_of(tmp_path / "m", *weights)
    assert "give dismecpp --augment-for-bias=1" in export_model(model, tmp_path / "out.json", "dismec")[0]
    names = sorted(path.name for path in tmp_path.glob("out*"))
    assert names == ["out.json", *(f"out.json.weights-{i}" for i in ("0-1", "2-3", "4-4"))]
    assert np.allclose(dismec_says(tmp_path / "out.json", ROWS), decision_function(model, ROWS), atol=1e-6)
    back = import_model(tmp_path / "out.json", tmp_path / "back", "dismec", bias=1)
    assert back.dtype == np.float32 and (back.coef() != model.coef()).nnz == 0
    assert np.array_equal(back.intercept(), model.intercept())
    assert OneVsAllClassifier.load(tmp_path / "back").predict(ROWS).shape == (50, 5)
    plain = model_of(tmp_path / "plain", weights[0], np.zeros(5))
    said = "no label has a bias, and no feature stands for one: give dismecpp no --augment-for-bias"
    assert export_model(plain, tmp_path / "plain.json", "dismec") == [said]
    assert np.allclose(dismec_says(tmp_path / "plain.json", ROWS), decision_function(plain, ROWS), atol=1e-6)
    assert import_model(tmp_path / "plain.json", tmp_path / "b", "dismec").n_features == D


@pytest.mark.parametrize("format", ["DenseTXT", "SparseTXT", "DenseNPY"])
def test_files_of_dismec(tmp_path, weights, format):
    """As the program writes them, which ends each pair with a blank and each number but the last."""
    W = np.hstack([weights[0], weights[1][:, None]])
    files = []
    for first, last in ((0, 3), (3, 5)):
        name, part = f"w-{first}", W[first:last]
        if format == "DenseNPY":  # version 3.0 of npy
            head = f'{{"descr": "<f4", "fortran_order": False, "shape": ({len(part)}, {D + 1})}}'.encode()
            head += b" " * (64 - (13 + len(head)) % 64) + b"\n"
            size = len(head).to_bytes(4, "little")
            (tmp_path / name).write_bytes(b"\x93NUMPY\x03\x00" + size + head + part.tobytes())
        elif format == "DenseTXT":
            (tmp_path / name).write_text("".join(" ".join(f"{v:.9g}" for v in row) + "\n" for row in part))
        else:
            rows = ("".join(f"{j}:{v:.9g} " for j, v in enumerate(row) if v) + "\n" for row in part)
            (tmp_path / name).write_text("".join(rows))
        files.append({"first": first, "count": last - first, "file": name, "weight-format": format})
    content = {"num-features": D + 1, "num-labels": 5, "date": "2022-09-28 - 12:00:00", "files": files[::-1]}
    (tmp_path / "in.json").write_text(json.dumps(content))
    model = import_model(tmp_path / "in.json", tmp_path / "m", "dismec", bias=2.0)
    assert np.array_equal(model.coef().toarray(), weights[0])
    assert np.array_equal(model.intercept(), 2 * weights[1])


def _dismec(**changes):
    entry = {"first": 0, "count": 2, "file": "w", "weight-format": "SparseTXT"} | changes.pop("entry", {})
    return {"num-features": 3, "num-labels": 2, "files": [entry]} | changes


BAD_DISMEC = [
    ("{", "0:1\n\n", "expected a model of dismecpp in JSON, found "),
    ("[" * 100_000, "", "expected a model of dismecpp in JSON, found "),
    ("[]", "", "expected a JSON object, found 'list'"),
    (_dismec(**{"num-labels": True}), "", "expected 'num-labels' from 1 to 2147483647, found True"),
    (_dismec(**{"num-features": 0}), "", "expected 'num-features' from 1 to 2147483647, found 0"),
    (_dismec(files={}), "", "expected a list 'files', found {}"),
    (_dismec(files=[1]), "", "expected an object for each file, found 1"),
    (_dismec(files=[]), "", "expected weights of 2 labels, found 0"),
    (_dismec(entry=dict(first=1)), "", "expected weights of label 0 once, of 0 next, found 'label 1 in w'"),
    (_dismec(entry=dict(count=3)), "", "expected weights of 2 labels, found 3"),
    (_dismec(entry=dict(count=-1)), "", "expected 'count' as a number of labels, found -1"),
    (_dismec(entry=dict(file="../w")), "", "expected 'file' as a name beside the JSON, found '../w'"),
    (_dismec(entry=dict(file="..")), "", "expected 'file' as a name beside the JSON, found '..'"),
    (_dismec(entry=dict(file="none")), "", "expected a file none with the labels from 0 on, found none"),
    (_dismec(entry={"weight-format": "<NULL>"}), "", "expected 'weight-format' of DenseTXT, SparseTXT"),
    (_dismec(), "0:1\n", "w:2:1: expected 2 rows as in the header, found the end of the file after 1"),
    (_dismec(), "0:1\n3:1\n", "w:2:1: expected a column index from 0 to 2, found '3'"),
    (_dismec(), "0:1\n1:inf\n", "w:2:3: expected a finite float32 number, found 'inf'"),
    (_dismec(entry={"weight-format": "DenseTXT"}), "1 2 3\n1 2\n", "w:2:1: expected 3 weights, found 2"),
    (
        _dismec(entry={"weight-format": "DenseTXT"}),
        "1 2 3\n",
        "w:2:1: expected 2 lines, one per label, found",
    ),
    (_dismec(entry={"weight-format": "DenseTXT"}), "1 2 3\n" * 3, "w:3:1: expected 2 lines, one per label"),
    (
        _dismec(entry={"weight-format": "DenseTXT"}),
        "1 2 3\n1 2 1e39\n",
        "weights that float32 can hold, found",
    ),
    (
        _dismec(entry={"weight-format": "DenseTXT"}),
        "1 2 3\n1 2 1.5",
        "w: expected a line break after the last",
    ),
    (_dismec(), "0:1\n1:0.5", "w: expected a line break after the last weight"),
    (_dismec(entry={"weight-format": "DenseNPY"}), "1 2 3\n", "w: expected an npy file, found another one"),
]


@pytest.mark.parametrize(("content", "weights_text", "said"), BAD_DISMEC)
def test_files_that_are_no_model_of_dismec(tmp_path, content, weights_text, said):
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "in").write_text(text)
    (tmp_path / "w").write_text(weights_text)
    with pytest.raises((ModelError, DataFormatError)) as caught:
        import_model(tmp_path / "in", tmp_path / "m", "dismec")
    assert said in str(caught.value) and str(caught.value).startswith(str(tmp_path)), caught.value
    assert not (tmp_path / "m").exists()


def test_a_bias_needs_a_feature(tmp_path):
    (tmp_path / "in").write_text(json.dumps(_dismec(**{"num-features": 1})))
    with pytest.raises(ModelError, match="two features at least, the last of them the bias, found 1"):
        import_model(tmp_path / "in", tmp_path / "m", "dismec", bias=1)
    with pytest.raises(ValueError, match=r"bias: a file of liblinear says it itself, got 1"):
        import_model(tmp_path / "in", tmp_path / "m", "liblinear", bias=1)
    with pytest.raises(ValueError, match=r"bias: expected a finite number, got inf"):
        import_model(tmp_path / "in", tmp_path / "m", "dismec", bias=np.inf)


def test_dismec_replaces_all_files_or_none(tmp_path, weights, monkeypatch):
    monkeypatch.setattr("xmcjax.models._dismec._LABELS", 2)
    W, bias = weights
    out = tmp_path / "out.json"
    export_model(model_of(tmp_path / "a", W, bias), out, "dismec")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert len(before) == 1 + -(-len(W) // 2)
    other = model_of(tmp_path / "b", 2 * W, bias)
    real, seen = type(other).weights, []

    def failing(self, first, last):
        seen.append(first)
        if len(seen) == len(before) - 1:
            raise OSError("the disk is full")
        return real(self, first, last)

    monkeypatch.setattr(type(other), "weights", failing)
    with pytest.raises(OSError, match="the disk is full"):
        export_model(other, out, "dismec")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    with pytest.raises(ValueError, match="files of weights stand beside it, found a device"):
        export_model(other, "/dev/null", "dismec")
