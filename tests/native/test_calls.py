"""The calls that calls.def declares: one reader refuses the same arguments for XLA and for calls in place."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest

from tests.support.internals import schema
from tests.support.problems import needs_native
from tests.support.processes import python
from xmcjax.native import InPlace, call, put_columns, take_columns
from xmcjax.solvers import instance_dual, newton_cg

SIZES = {"n": 5, "d": 3, "lanes": 2, "classes": 4, "k": 2, "batch": 5, "m": 4, "columns": 3, "nodes": 6}
SIZES |= {"leaves": 3, "rows": 5, "length": 5, "count": 2, "ends": 6, "entries": 2, "places": 2}
SIZES |= {"blocks": 2, "features": 3, "labels": 3, "size": 4, "moves": 2, "room": 4, "listed": 4}
SIZES |= {"weighted": 5}
# of CSR features, with which the features that are an array are not looked at
INSTANCES = {"csr_rows": 5, "first": 3, "second": 4, "kept": 2, "slots": 2, "records": 4}
SIZES_OF_CALLS = {
    "take_columns": {"columns": 4},
    "multiclass_row_sweep": {"members": 2},
    "instance_dual": INSTANCES,
    "instance_gap": INSTANCES,
    "softmax_hessian": {"rows": 64},
    "softmax_solve": {"rows": 64},
    "softmax_blocks": {"rows": 64},
    "softmax_scores_by_class": {"rows": 64},
    "softmax_gradient_by_class": {"rows": 64},
    "softmax_solve_csr": {"features": 4},
    "softmax_diagonal": {"features": 4},
}
# Those that XLA makes too.
OF_XLA = [name for name in schema.CALLS if name not in schema.METHODS]


def length(name, size):
    return int(size) if size.isdigit() else {**SIZES, **SIZES_OF_CALLS.get(name, {})}[size]


def array(name, field, real=np.float64):
    """An array that the declaration of a field allows."""
    dtype = real if field.type == "real" else np.dtype(field.type.removesuffix("_t"))
    if field.name == "parent":
        return np.arange(-1, SIZES["nodes"] - 1, dtype=dtype)
    if field.name == "k" and field.sizes:
        return np.ones(length(name, field.sizes[0]), dtype)
    return np.zeros([length(name, size) for size in field.sizes], dtype)


def arguments(name, real=np.float64):
    """All fields of a call but its results; X has no entries."""
    fields = {}
    for field in schema.CALLS[name]:
        if field.kind == "CSR":
            n = length(name, field.sizes[0])
            fields[field.name] = np.zeros(0, real), np.zeros(0, np.int32), np.zeros((n + 1, 2), np.int32)
        elif field.kind in ("OPTION", "ID"):
            fields[field.name] = SIZES["classes"] if field.name == "classes" else 1
        elif field.kind != "OUT":
            fields[field.name] = array(name, field, real)
    return fields


def results(name):
    return {f.name: array(name, f) for f in schema.CALLS[name] if f.kind == "OUT"}


def in_xla(name, fields):
    told_by_none = {"csr_rmatmat": "d", "softmax_gradient": "d", "softmax_diagonal": "features"}
    told_by_none["softmax_scores_by_class"] = "n"
    sizes = {size: length(name, size) for call, size in told_by_none.items() if call == name}
    return jax.block_until_ready(call(name, sizes=sizes, **fields))


def in_place(name, fields):
    InPlace(name, **{**results(name), **fields})


ENTRIES = {"xla": in_xla, "in place": in_place}


@needs_native
@pytest.mark.parametrize("name", sorted(schema.METHODS))
def test_what_a_method_declares_is_taken(name):
    in_place(name, arguments(name))


@needs_native
@pytest.mark.parametrize("name", OF_XLA)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_declared_is_taken(name, dtype):
    out = in_xla(name, arguments(name, dtype))
    written = [f for f in schema.CALLS[name] if f.kind in ("INOUT", "OUT")]
    assert list(out) == [f.name for f in written]
    for field in written:
        ours = array(name, field, dtype)
        assert (out[field.name].shape, out[field.name].dtype) == (ours.shape, ours.dtype), field.name
    if dtype == np.float64:
        in_place(name, arguments(name))


def arrays(name):
    return [field for field in schema.CALLS[name] if field.kind in (*schema.ARRAYS, "OUT")]


def of_another_kind(good, wrong):
    if wrong == "dtype":
        return good.astype(np.int32 if good.dtype == np.int8 else np.int8)
    return good[..., None, None] if wrong == "axes" else np.concatenate([good, good], axis=-1)


# XLA compiles each call: it is given the first array that is wrong, and the last
CASES = {
    (entry, name): fields
    for name in schema.CALLS
    for entry, fields in (
        ("in place", arrays(name)),
        (
            "xla",
            [f for f in arrays(name) if f.kind != "OUT" and name in OF_XLA][:: max(1, len(arrays(name)) - 1)],
        ),
    )
    if fields
}


@needs_native
@pytest.mark.parametrize(("entry", "name"), CASES)
def test_an_array_of_another_kind_is_one_sentence(entry, name):
    for field in CASES[entry, name]:
        check_an_array_of_another_kind(entry, name, field)


def check_an_array_of_another_kind(entry, name, field):
    good = array(name, field)
    fields = schema.CALLS[name]
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


@needs_native
@pytest.mark.parametrize("name", schema.CALLS)
def test_a_field_that_is_missing_or_too_much_is_named(name):
    for entry in ("xla", "in place") if name in OF_XLA else ("in place",):
        for field in schema.CALLS[name]:
            fields = arguments(name)
            if field.kind != "OUT":
                del fields[field.name]
                with pytest.raises(TypeError, match=rf"{name}: expected the fields .*, got no {field.name}"):
                    ENTRIES[entry](name, fields)
        too_much = rf"{name}: expected the fields .*, got wrong, which there is not"
        with pytest.raises(TypeError, match=too_much):
            ENTRIES[entry](name, {**arguments(name), "wrong": np.zeros(2)})


def with_part(place, change):
    """A change of one of the arrays of a matrix."""
    return lambda X: tuple(change(part) if k == place else part for k, part in enumerate(X))


WRONG = [
    ("csr_matmat", "X", lambda X: (np.ones(2), np.zeros(2, np.int32), X[2]), "offsets of X that end at 2"),
    ("softmax_pass", "y", lambda y: y - 1, "y from 0 to 3, got -1"),
    ("softmax_pass", "y", lambda y: y + SIZES["classes"], "y from 0 to 3, got 4"),
]
for _place in range(3):
    for _change in (lambda part: part.astype(np.int8), lambda part: part[..., None]):
        WRONG.append(("csr_matmat", "X", with_part(_place, _change), "csr_matmat: expected X as "))


@needs_native
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(("name", "field", "change", "message"), WRONG)
def test_what_arrays_hold_is_checked(name, field, change, message, entry):
    fields = arguments(name)
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=message):
        ENTRIES[entry](name, {**fields, field: change(fields[field])})


def test_the_ascent_over_instances_declares_the_state_of_the_solver():
    written = [field.name for field in schema.CALLS["instance_dual"] if field.kind == "INOUT"]
    assert [*written, "seed"] == [*(f for f in instance_dual.State._fields if f != "seed"), "seed"]


def test_the_newton_step_declares_the_fields_of_the_solver():
    """Each name once: what the declaration has beside the problem is HParams and State."""
    declared = [field.name for field in schema.CALLS["newton_step"]]
    problem = {"X", "y", "weight", "shift", "tolerance", "loss", "penalty"}
    parameters = {"loss_parameter", "penalty_parameter"}
    assert len(set(declared)) == len(declared)
    assert set(declared) == problem | parameters | {*newton_cg.HParams._fields, *newton_cg.State._fields}


@needs_native
def test_what_is_read_only_is_not_changed():
    matrix = np.zeros((4, 3))
    matrix.flags.writeable = False
    with pytest.raises(
        ValueError, match=r"^put_columns: expected arrays that may be changed, got a read-only"
    ):
        put_columns(matrix, [2], np.ones((1, 4)))
    assert not matrix.any()


@needs_native
@pytest.mark.parametrize(
    ("matrix", "got"),
    [
        (np.zeros((5, 4), np.dtype(float).newbyteorder()), r"swapped bytes of float64 \[5, 4\]"),
        (np.zeros(161, np.uint8)[1:].view(np.float64).reshape(5, 4), r"float64 \[5, 4\]"),
        (np.zeros((4, 5)).T, r"float64 \[5, 4\]"),
    ],
    ids=["swapped bytes", "beside the alignment", "columns side by side"],
)
def test_what_is_laid_out_otherwise_is_one_sentence(matrix, got):
    expected = "take_columns: expected contiguous arrays of numbers of this machine, got "
    with pytest.raises(ValueError, match=f"^{expected}{got}$"):
        InPlace("take_columns", matrix=matrix, which=np.zeros(1, np.int32), rows=np.zeros((1, 5)))


@needs_native
@pytest.mark.parametrize("columns", [[2**32 + 1], [-1], [4]])
def test_columns_that_are_none_are_refused(columns):
    with pytest.raises(
        ValueError, match=rf"(expected which from 0 to 3|expected the number of a column), got {columns[0]}$"
    ):
        take_columns(np.zeros((5, 4)), np.array(columns))


@needs_native
def test_what_is_no_array_of_numpy_is_one_sentence():
    with pytest.raises(TypeError, match=r"^take_columns: expected arrays of NumPy, results too, got None"):
        InPlace("take_columns", matrix=np.zeros((5, 4)), which=np.zeros(1, np.int32))


def test_the_declarations_are_read_in_any_locale():
    python("import xmcjax.native", check=True, PYTHONUTF8="0", LC_ALL="C", PYTHONCOERCECLOCALE="0")
