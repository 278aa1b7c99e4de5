"""Names of classes and features: what is stored comes back, and what a file may not hold is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.internals import names as stored_names
from xmcjax.models import LinearModel, ModelFormatError, Names, ShardWriter

FILE = Path("names.json")
CLASSES = [
    np.array(["a", "b", "ö"]),
    np.array(["a", "bb", "c"], object),
    np.array([-3, 0, 7]),
    np.array([1, 2, 3], np.uint8),
    np.array([0.1, 1 / 3, 2.5]),
    np.array([0.1, 0.2, 0.3], np.float32),
    np.array([False, True]),
]


@pytest.mark.parametrize("classes", CLASSES, ids=lambda array: str(array.dtype))
def test_classes_come_back_in_their_dtype(classes):
    found = stored_names.decode(FILE, Names(classes).encode(), len(classes), 4).classes
    assert found is not None and found.dtype == classes.dtype
    np.testing.assert_array_equal(found, classes)


def test_a_model_has_its_names(tmp_path):
    names = Names(np.array(["no", "yes"]), ("size", "age"))
    meta = {"n_features": 2, "n_labels": 2, "dtype": "float32"}
    with ShardWriter(tmp_path / "m", meta, names=names) as writer:
        for label in (0, 1):
            writer.add(label, [label], np.float32([1]))
    model = LinearModel.load(tmp_path / "m")
    found = model.names()
    assert found.features == ("size", "age")
    assert found.classes is not None and found.classes.tolist() == ["no", "yes"]
    assert json.loads((tmp_path / "m" / "manifest.json").read_text())["schema_version"] == 2
    (tmp_path / "m" / "names.json").write_text("{}")
    with pytest.raises(ModelFormatError, match=r"names\.json: expected .*as in the manifest"):
        LinearModel.load(tmp_path / "m")
    with pytest.raises(ModelFormatError, match=r"names\.json: expected SHA-256"):
        LinearModel.load(tmp_path / "m", verify="none").names()


def test_a_model_without_names_is_of_the_first_schema(tmp_path):
    meta = {"n_features": 2, "n_labels": 1, "dtype": "float32"}
    with ShardWriter(tmp_path / "m", meta) as writer:
        writer.add(0, [0], np.float32([1]))
    assert LinearModel.load(tmp_path / "m").names() == Names()
    content = json.loads((tmp_path / "m" / "manifest.json").read_text())
    assert content["schema_version"] == 1 and "names" not in content


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (Names(np.array([2, 1])), ValueError),
        (Names(np.array([1, 1])), ValueError),
        (Names(np.array([0.0, np.nan])), ValueError),
        (Names(np.array([1, "a"], object)), TypeError),
        (Names(np.array([1 + 1j])), TypeError),
        (Names(np.array([[1, 2]])), TypeError),
        (Names(None, ("a", 1)), TypeError),
        (Names(np.array(["a", "\ud800"], object)), ValueError),
        (Names(None, ("\udfff", "a")), ValueError),
    ],
)
def test_names_that_cannot_be_stored(names, kind):
    with pytest.raises(kind, match=r"^(classes|features|names): expected "):
        names.encode()


@pytest.mark.parametrize(
    "content",
    [
        b"[",
        b"[]",
        b"[" * 100_000,
        b'{"classes": ["a"], "dtype": "<U1"}',
        b'{"classes": ["a", 1], "dtype": "<U1"}',
        b'{"classes": ["b", "a"], "dtype": "<U1"}',
        b'{"classes": ["a", "bb"], "dtype": "<U1"}',
        b'{"classes": ["a", "b"], "dtype": "<U999999999"}',
        b'{"classes": ["a", "b"], "dtype": "<U999999"}',
        b'{"classes": ["a", "\\ud800"], "dtype": "<U1"}',
        b'{"classes": [1, 2], "dtype": "<i3"}',
        b'{"classes": ["a", "b"], "dtype": "<M8"}',
        b'{"classes": ["a", "b"]}',
        b'{"classes": [1, 2], "dtype": "<f8"}',
        b'{"classes": [true, false], "dtype": "<i8"}',
        b'{"classes": [1, 300], "dtype": "|u1"}',
        b'{"classes": [1.0, NaN], "dtype": "<f8"}',
        b'{"features": ["a"]}',
        b'{"features": ["a", 1, "c"]}',
        b'{"features": "abc"}',
    ],
)
def test_a_file_that_holds_something_else_is_refused(content):
    with pytest.raises(ModelFormatError, match=r"^names\.json: expected "):
        stored_names.decode(FILE, content, 2, 3)
