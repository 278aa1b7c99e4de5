"""The calls that calls.def declares: one reader refuses the same arguments for XLA and for calls in place."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

from xmcjax.native import InPlace, _schema, available, call, put_columns, take_columns
from xmcjax.solvers import instance_dual, newton_cg

native = pytest.mark.skipif(not available(), reason="no native kernels")
SIZES = {"n": 5, "d": 3, "lanes": 2, "classes": 4, "k": 2, "batch": 5, "m": 4, "columns": 3, "nodes": 6}
SIZES |= {"leaves": 3, "rows": 5, "length": 5, "count": 2, "ends": 6, "entries": 2}
# of CSR features, with which the features that are an array are not looked at
INSTANCES = {"csr_rows": 5, "first": 3, "second": 4, "kept": 2, "slots": 2, "records": 4}
SIZES_OF_CALLS = {
    "merge_topk": {"lanes": 16},
    "take_columns": {"columns": 4},
    "instance_dual": INSTANCES,
    "instance_gap": INSTANCES,
}
# Those that XLA makes too.
OF_XLA = [name for name in _schema.CALLS if name not in _schema.METHODS]


def length(name, size):
    return int(size) if size.isdigit() else {**SIZES, **SIZES_OF_CALLS.get(name, {})}[size]


def array(name, field, real=np.float64):
    """An array that the declaration of a field allows."""
    dtype = real if field.type == "real" else np.dtype(field.type.removesuffix("_t"))
    if field.name == "parent":
        return np.arange(-1, SIZES["nodes"] - 1, dtype=dtype)
    if field.name == "k":
        return np.ones(length(name, "lanes"), dtype)
    return np.zeros([length(name, size) for size in field.sizes], dtype)


def arguments(name, real=np.float64):
    """All fields of a call but its results; X has no entries."""
    fields = {}
    for field in _schema.CALLS[name]:
        if field.kind == "CSR":
            n = length(name, field.sizes[0])
            fields[field.name] = np.zeros(0, real), np.zeros(0, np.int32), np.zeros((n + 1, 2), np.int32)
        elif field.kind in ("OPTION", "ID"):
            fields[field.name] = SIZES["classes"] if field.name == "classes" else 1
        elif field.kind != "OUT":
            fields[field.name] = array(name, field, real)
    return fields


def results(name):
    return {f.name: array(name, f) for f in _schema.CALLS[name] if f.kind == "OUT"}


def in_xla(name, fields):
    sizes = {"d": SIZES["d"]} if name == "csr_rmatmat" else {}
    return jax.block_until_ready(call(name, sizes=sizes, **fields))


def in_place(name, fields):
    InPlace(name, **{**results(name), **fields})


ENTRIES = {"xla": in_xla, "in place": in_place}


@native
@pytest.mark.parametrize("name", sorted(_schema.METHODS))
def test_what_a_method_declares_is_taken(name):
    in_place(name, arguments(name))


@native
@pytest.mark.parametrize("name", OF_XLA)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_declared_is_taken(name, dtype):
    out = in_xla(name, arguments(name, dtype))
    written = [f for f in _schema.CALLS[name] if f.kind in ("INOUT", "OUT")]
    assert list(out) == [f.name for f in written]
    for field in written:
        ours = array(name, field, dtype)
        assert (out[field.name].shape, out[field.name].dtype) == (ours.shape, ours.dtype), field.name
    if dtype == np.float64:
        in_place(name, arguments(name))


def arrays(name):
    return [field for field in _schema.CALLS[name] if field.kind in (*_schema.ARRAYS, "OUT")]


def of_another_kind(good, wrong):
    if wrong == "dtype":
        return good.astype(np.int32 if good.dtype == np.int8 else np.int8)
    return good[..., None, None] if wrong == "axes" else np.concatenate([good, good], axis=-1)


# XLA compiles each call: it is given the first array that is wrong, and the last
CASES = [
    (entry, name, field)
    for name in _schema.CALLS
    for entry, fields in (
        ("in place", arrays(name)),
        (
            "xla",
            [f for f in arrays(name) if f.kind != "OUT" and name in OF_XLA][:: max(1, len(arrays(name)) - 1)],
        ),
    )
    for field in fields
]


@native
@pytest.mark.parametrize(("entry", "name", "field"), CASES, ids=lambda part: getattr(part, "name", part))
def test_an_array_of_another_kind_is_one_sentence(entry, name, field):
    good = array(name, field)
    fields = _schema.CALLS[name]
    told = {size for f in fields[: fields.index(field)] for size in f.sizes}
    wrongs = ["dtype"]
    if "batch" not in field.sizes:
        wrongs.append("axes")
    if told.intersection(field.sizes[-1:]):
        wrongs.append("length")
    for wrong in wrongs:
        with pytest.raises((ValueError, jax.errors.JaxRuntimeError)) as caught:
            ENTRIES[entry](name, {**arguments(name), field.name: of_another_kind(good, wrong)})
        sentence = str(caught.value)
        kind = r"[a-z]+\d+ \[[\w, ]*\]"
        expected = rf"{name}: expected {field.name} as {kind}( = \[[\w, ]*\])?( or with .*)?, got {kind}"
        assert re.search(expected, sentence), sentence


@native
@pytest.mark.parametrize(
    ("name", "entry"),
    [(name, entry) for name in _schema.CALLS for entry in ENTRIES if entry != "xla" or name in OF_XLA],
)
def test_a_field_that_is_missing_or_too_much_is_named(name, entry):
    for field in _schema.CALLS[name]:
        fields = arguments(name)
        if field.kind != "OUT":
            del fields[field.name]
            with pytest.raises(TypeError, match=rf"{name}: expected the fields .*, got no {field.name}"):
                ENTRIES[entry](name, fields)
    with pytest.raises(TypeError, match=rf"{name}: expected the fields .*, got wrong, which there is not"):
        ENTRIES[entry](name, {**arguments(name), "wrong": np.zeros(2)})


@native
def test_offsets_that_end_elsewhere_are_refused():
    fields = arguments("csr_matmat")
    fields["X"] = np.ones(2), np.zeros(2, np.int32), fields["X"][2]
    for entry in ENTRIES.values():
        with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="offsets of X that end at 2"):
            entry("csr_matmat", fields)


@native
def test_places_that_are_none_are_refused():
    for wrong in (-1, SIZES["classes"]):
        fields = arguments("softmax_pass")
        fields["y"] = np.full(SIZES["n"], wrong, np.int32)
        for entry in ENTRIES.values():
            with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=f"y from 0 to 3, got {wrong}"):
                entry("softmax_pass", fields)


def test_the_ascent_over_instances_declares_the_state_of_the_solver():
    written = [field.name for field in _schema.CALLS["instance_dual"] if field.kind == "INOUT"]
    assert [*written, "seed"] == [*(f for f in instance_dual.State._fields if f != "seed"), "seed"]


def test_the_newton_step_declares_the_fields_of_the_solver():
    """Each name once: what the declaration has beside the problem is HParams and State."""
    declared = [field.name for field in _schema.CALLS["newton_step"]]
    problem = {"X", "y", "weight", "shift", "tolerance", "loss", "penalty"}
    parameters = {"loss_parameter", "penalty_parameter"}
    assert len(set(declared)) == len(declared)
    assert set(declared) == problem | parameters | {*newton_cg.HParams._fields, *newton_cg.State._fields}


@native
@pytest.mark.parametrize("place", range(3))
def test_the_arrays_of_a_matrix_are_checked(place):
    fields = arguments("csr_matmat")
    for wrong in (fields["X"][place].astype(np.int8), fields["X"][place][..., None]):
        X = [*fields["X"]]
        X[place] = wrong
        for entry in ENTRIES.values():
            with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="csr_matmat: expected X as "):
                entry("csr_matmat", {**fields, "X": tuple(X)})


@native
def test_what_is_read_only_is_not_changed():
    matrix = np.zeros((4, 3))
    matrix.flags.writeable = False
    with pytest.raises(
        ValueError, match=r"^put_columns: expected arrays that may be changed, got a read-only"
    ):
        put_columns(matrix, [2], np.ones((1, 4)))
    assert not matrix.any()


@native
@pytest.mark.parametrize("columns", [[2**32 + 1], [-1], [4]])
def test_columns_that_are_none_are_refused(columns):
    with pytest.raises(
        ValueError, match=rf"(expected which from 0 to 3|expected the number of a column), got {columns[0]}$"
    ):
        take_columns(np.zeros((5, 4)), np.array(columns))


@native
def test_what_is_no_array_of_numpy_is_one_sentence():
    with pytest.raises(TypeError, match=r"^take_columns: expected arrays of NumPy, results too, got None"):
        InPlace("take_columns", matrix=np.zeros((5, 4)), which=np.zeros(1, np.int32))


def test_the_declarations_are_read_in_any_locale():
    environment = os.environ | {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", "import xmcjax.native"], env=environment, check=True, timeout=120)
