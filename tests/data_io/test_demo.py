"""The data set that ships with the package."""

from pathlib import Path

import numpy as np

import xmcjax.data
from xmcjax.data import load_demo


def test_demo_is_what_its_description_says():
    demo = load_demo()
    assert (demo.X_train.shape, demo.X_test.shape) == ((16108, 8216), (3949, 8216))
    assert (demo.Y_train.shape, demo.Y_test.shape) == ((16108, 1055), (3949, 1055))
    assert {matrix.dtype for matrix in demo[:4]} == {np.dtype(np.float32)}
    rows_of_class = np.bincount(demo.Y_train.indices, minlength=1055)
    assert (rows_of_class.min(), rows_of_class.max(), np.median(rows_of_class)) == (1, 207, 10)
    assert (np.diff(demo.Y_test.indptr) == 1).all()
    assert (np.diff(demo.X_test.indptr) == 0).sum() == 14
    assert round(demo.X_train.nnz / 16108, 1) == 5.2
    assert len(demo.class_names) == len(set(demo.class_names)) == 1055
    assert (demo.class_names[0], demo.class_names[-1]) == ("111110", "928120")
    assert len(demo.words) == len(set(demo.words)) == 8216
    row = demo.X_train[[0]]
    assert all(demo.words[word].isalnum() for word in row.indices)


def test_demo_is_small():
    folder = Path(xmcjax.data.__file__).parent / "naics2017"
    names = {path.name for path in folder.iterdir()}
    assert names == {"train.libsvm.xz", "test.libsvm.xz", "classes.txt", "vocab.txt.xz", "README.md"}
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 300_000
