"""How calibrations are stored."""

import dataclasses
import json
import os

import numpy as np
import pytest
from scipy.special import expit

from tests.support.processes import python
from xmcjax.data import atomic_write
from xmcjax.models import (
    Calibration,
    IncompleteModelError,
    LinearModel,
    ModelError,
    ModelFormatError,
    Predictor,
    ShardWriter,
    merge_models,
    write_calibration,
)

D, L = 6, 5
META = {"n_features": D, "n_labels": L, "dtype": "float32"}
NUMBERS = np.arange(1.0, L + 1)
CALIBRATION = Calibration(NUMBERS, -NUMBERS, NUMBERS > 3)


def write(directory, label_range=None, meta=META, **more):
    rng = np.random.default_rng(0)
    W, b = rng.normal(size=(L, D)).astype(np.float32), rng.normal(size=L)
    with ShardWriter(directory, meta, label_range, 2, **more) as writer:
        for label in writer.missing().tolist():
            writer.add(label, np.arange(D), W[label], float(b[label]), 5 if label == 1 else 1)
    return directory


@pytest.mark.parametrize(
    ("system", "method"),
    [
        ({}, "sigmoid"),
        ({"target": "classes"}, "temperature"),
        ({"system": "multiclass"}, "temperature"),
        ({"system": "top-k"}, "temperature"),
    ],
)
def test_a_model_says_what_its_calibration_is(tmp_path, system, method):
    write(tmp_path / "m", meta=META | system)
    same = Calibration(np.full(L, 2.0), np.zeros(L), np.zeros(L, bool))
    for made, said in ((same, method), (CALIBRATION, "sigmoid"), (same, method)):
        write_calibration(tmp_path / "m", made)
        assert LinearModel.load(tmp_path / "m").meta["calibration"] == {"method": said}


def test_it_is_read_as_it_was_written_by_both_ways(tmp_path):
    write(tmp_path / "at once", calibration=CALIBRATION, meta=META | {"calibration": {"method": "sigmoid"}})
    write_calibration(write(tmp_path / "later"), CALIBRATION)
    for name in ("at once", "later"):
        model = LinearModel.load(tmp_path / name, verify="full")
        found = model.calibration()
        assert model.calibrated
        for field in ("slope", "offset", "shared"):
            np.testing.assert_array_equal(getattr(found, field), getattr(CALIBRATION, field))
        content = json.loads((tmp_path / name / "manifest.json").read_text())
        assert content["schema_version"] == 3 and content["calibration"]["file"] == "calibration.safetensors"
    one, two = (
        {p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("at once", "later")
    )
    assert one == two


def test_models_without_one_are_of_the_older_schema(tmp_path):
    content = json.loads((write(tmp_path / "m") / "manifest.json").read_text())
    assert content["schema_version"] == 1 and "calibration" not in content
    model = LinearModel.load(tmp_path / "m")
    assert model.calibration() is None and not model.calibrated
    with pytest.raises(ValueError, match="or that is calibrated, found another one"):
        Predictor(model).predict_topk(np.ones((1, D), np.float32), 1, probabilities=True)


def test_probabilities_are_those_of_the_definition_and_labels_those_of_the_scores(tmp_path):
    model = LinearModel.load(write(tmp_path / "m", calibration=CALIBRATION, meta=META | {"calibration": {}}))
    X = np.random.default_rng(1).normal(size=(40, D)).astype(np.float32)
    best, z = Predictor(model).predict_topk(X, L)
    labels, p = Predictor(model).predict_topk(X, L, probabilities=True)
    np.testing.assert_array_equal(labels, best)
    assert (labels[:, -1] == -1).all() and (p[:, -1] == 0).all()  # one label is never predicted
    expected = expit(CALIBRATION.slope[labels] * z + CALIBRATION.offset[labels])
    np.testing.assert_allclose(p[:, :-1], expected[:, :-1], rtol=1e-6)


def test_a_part_has_those_of_its_labels_and_merges_to_the_whole(tmp_path):
    meta = META | {"calibration": {"method": "sigmoid", "cv": 5}}
    whole = write(tmp_path / "whole", meta=meta, calibration=CALIBRATION)
    for name, low, high in (("a", 0, 2), ("b", 2, L)):
        write(tmp_path / name, (low, high), meta=meta)
        write_calibration(tmp_path / name, CALIBRATION.at(np.arange(low, high)))
    part = LinearModel.load(tmp_path / "b").calibration()
    assert part is not None
    np.testing.assert_array_equal(part.slope, [1, 1, 3, 4, 5])
    merge_models([tmp_path / "b", tmp_path / "a"], tmp_path / "merged")
    one, two = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in (whole, tmp_path / "merged"))
    assert one == two
    write(tmp_path / "without", (0, 2), meta=meta)
    with pytest.raises(IncompleteModelError, match="expected a calibration, found none yet"):
        merge_models([tmp_path / "without", tmp_path / "b"], tmp_path / "other")
    write(tmp_path / "another", (0, 2))
    with pytest.raises(ModelError, match=r"expected calibration = "):
        merge_models([tmp_path / "another", tmp_path / "b"], tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("damage", ["flip", "cut", "missing", "folder"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    file = write(tmp_path / "m", calibration=CALIBRATION) / "calibration.safetensors"
    raw = file.read_bytes()
    if damage == "flip":
        file.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    elif damage == "cut":
        file.write_bytes(raw[:-5])
    else:
        file.unlink()
        if damage == "folder":
            file.mkdir()
    with pytest.raises(ModelFormatError, match=r"calibration\.safetensors: expected "):
        LinearModel.load(tmp_path / "m")
    with pytest.raises(ModelFormatError, match=r"calibration\.safetensors: expected "):
        LinearModel.load(tmp_path / "m", verify="none").calibration()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(slope=np.zeros(L)), "slopes above 0 and finite offsets"),
        (dict(offset=np.full(L, np.inf)), "slopes above 0 and finite offsets"),
        (dict(slope=np.ones(L, np.float32)), r"slope as float64 \[5\], found float32"),
        (dict(shared=np.ones(L)), r"shared as bool \[5\], found float64"),
        (dict(offset=np.ones(L - 1)), r"offset as float64 \[5\], found float64 \[4\]"),
        (dict(offset=None), r"offset as float64 \[5\], found none"),
    ],
)
def test_a_file_with_other_arrays_is_refused(tmp_path, change, said, monkeypatch):
    from safetensors.numpy import save

    arrays = {"slope": np.ones(L), "offset": np.ones(L), "shared": np.zeros(L, bool)} | change
    content = save({name: array for name, array in arrays.items() if array is not None})
    monkeypatch.setattr(Calibration, "encode", lambda self: content)
    write(tmp_path / "m", calibration=CALIBRATION)
    with pytest.raises(ModelFormatError, match=said):
        LinearModel.load(tmp_path / "m").calibration()


def test_a_resumed_writer_takes_a_damaged_one_out_and_the_old_one_is_replaced(tmp_path):
    directory = write(tmp_path / "m")
    write_calibration(directory, CALIBRATION)
    write_calibration(directory, CALIBRATION.opposite())
    found = LinearModel.load(directory).calibration()
    assert found is not None and (found.offset > 0).all()
    (file,) = directory.glob("calibration-*.safetensors")
    file.write_bytes(b"other")
    meta = META | {"calibration": {"method": "sigmoid"}}
    write(directory, meta=meta, resume=True)
    model = LinearModel.load(directory)
    assert not model.calibrated
    with pytest.raises(IncompleteModelError, match="finish the training with --resume"):
        model.calibration()


def test_a_model_has_the_old_one_or_the_new_one_and_who_has_it_open_keeps_its_own(tmp_path, monkeypatch):
    directory = write(tmp_path / "m", calibration=CALIBRATION)
    model, names = LinearModel.load(directory), set(os.listdir(directory))

    def slope() -> float:
        found = LinearModel.load(directory).calibration()
        assert found is not None
        return found.slope[0]

    def killed(path):
        if path.name == "manifest.json":
            raise KeyboardInterrupt
        return atomic_write(path)

    with monkeypatch.context() as patch:
        patch.setattr("xmcjax.models._calibration.atomic_write", killed)
        with pytest.raises(KeyboardInterrupt):
            write_calibration(directory, CALIBRATION.opposite())
    assert slope() == CALIBRATION.slope[0]
    for factor in (2.0, 3.0):
        write_calibration(directory, dataclasses.replace(CALIBRATION, slope=factor * CALIBRATION.slope))
        assert slope() == factor * CALIBRATION.slope[0]
        manifest = (directory / "manifest.json").read_bytes()
        write_calibration(directory, dataclasses.replace(CALIBRATION, slope=factor * CALIBRATION.slope))
        assert (directory / "manifest.json").read_bytes() == manifest  # an index stays that of the model
        if factor == 2:
            found = model.calibration()
            assert found is not None and found.slope[0] == CALIBRATION.slope[0]
    assert len(set(os.listdir(directory)) - names) == 2  # the one before the last stays, others are gone


def test_what_cannot_be_calibrated_is_refused(tmp_path):
    write(tmp_path / "m")
    with pytest.raises(ValueError, match=r"calibration: expected 5 labels as in .*, found 4"):
        write_calibration(tmp_path / "m", CALIBRATION.at(np.arange(4)))
    with pytest.raises(ValueError, match="calibration: expected 5 labels, found 4"):
        ShardWriter(tmp_path / "n", META, calibration=CALIBRATION.at(np.arange(4)))
    with pytest.raises(TypeError, match=r"^calibration: expected "):
        write_calibration(tmp_path / "m", None)
    with pytest.raises(FileNotFoundError, match="expected a model, found no manifest"):
        write_calibration(tmp_path, CALIBRATION)
    with ShardWriter(tmp_path / "part", META, shard_size=2) as writer:
        writer.add(0, [0], np.ones(1, np.float32))
    with pytest.raises(ValueError, match="expected a complete model, found labels missing"):
        write_calibration(tmp_path / "part", CALIBRATION)
    assert not (tmp_path / "part" / "calibration.safetensors").exists()


def test_it_opens_and_predicts_without_jax(tmp_path):
    write(tmp_path / "m", calibration=CALIBRATION, meta=META | {"calibration": {}})
    code = f"""
import sys
sys.modules["jax"] = None
import numpy as np
from xmcjax.models import Predictor
X = np.ones((2, {D}), np.float32)
labels, p = Predictor({str(tmp_path / "m")!r}).predict_topk(X, 2, probabilities=True)
assert (0 < p).all() and (p < 1).all()
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
