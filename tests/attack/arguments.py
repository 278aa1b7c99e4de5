"""Wrong arguments to every public function, and right ones in unusual forms; see harness.py."""

from __future__ import annotations

import itertools
import linecache
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tests.attack.harness import Wrong, main
from tests.support import calls

PURPOSE = (
    "Public functions with an argument replaced: the same value in another form gives the same result; a "
    "wrong one is refused by a raise of the library with one sentence, or gives finite numbers."
)

ENTRY = (0, 1)  # of a matrix, where a wrong value is put


def prepare(folder: Path):
    """All calls, with how often each is taken, and the results of those that were made."""
    os.chdir(folder)  # where a wrong path may be written
    found = {name: call for name, call in calls.given(folder).items() if call.arguments}
    chances = np.array([1 / call.cost for call in found.values()])
    return list(found.items()), chances / chances.sum(), {}


def case(context, rng: np.random.Generator) -> str:
    """One argument of one call replaced."""
    found, chances, results = context
    name, call = found[rng.choice(len(found), p=chances)]
    argument = list(call.arguments)[rng.integers(len(call.arguments))]
    same, other = forms(call.arguments[argument]), wrong_ones(call.arguments[argument])
    number = int(rng.integers(len(same) + len(other)))

    def result():
        if name not in results:
            results[name] = numbers(run(call, {}))
        return results[name]

    what, replaced = [*same, *other][number]
    if f"{argument} = {what}" in call.unasked:
        return "not asked for"
    return replace(name, call, argument, what, replaced, number < len(same), result)


def replace(name: str, call: calls.Call, argument: str, what: str, replaced, must_work: bool, result) -> str:
    """What comes of a call with an argument replaced; `result` gives that of the call as it was."""
    where = f"{name}, {argument} = {what}"
    value = replaced()
    try:
        found = numbers(run(call, {argument: value}))
    except (Exception, SystemExit) as error:
        return _refused(where, error, call, must_work)
    if must_work:
        _check_equal(where, result(), found)
        return "the same value in another form: equal"
    if {argument, f"{argument} = {what}"} & set(call.free):
        return "accepted, as it may be"
    if call.host and what in MUST_REFUSE:
        raise Wrong(f"{where}: accepted")
    if what not in NONFINITE:
        # a function of JAX arrays may overflow, and is infinite outside a domain
        good = np.isfinite if call.host else lambda a: ~np.isnan(a)
        wrong = [a[~good(a)][0] for a in found if not good(a).all()]
        if wrong and all(good(a).all() for a in result()):
            raise Wrong(f"{where}: accepted, and gives {wrong[0]}")
    return "accepted: finite numbers"


def run(call: calls.Call, replaced: dict[str, Any]):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that stop early; what counts is the result
        return call.function(**(call.arguments | replaced))


def forms(value) -> list[tuple[str, Any]]:
    """The same value in forms that must give the same result: what it is, and how it is made."""
    if sp.issparse(value):
        kinds = [sp.csr_array, sp.csc_matrix, sp.coo_array]
        found: list[tuple[str, Any]] = [(kind.__name__, lambda kind=kind: kind(value)) for kind in kinds]
        return [
            *found,
            ("CSR of unsorted rows", lambda: _unsorted(value)),
            ("read only", lambda: _frozen(value)),
        ]
    if isinstance(value, np.ndarray):
        return [
            ("a strided view", lambda: np.repeat(value, 2, axis=-1)[..., ::2]),
            ("Fortran order", lambda: np.asfortranarray(value)),
            ("read only", lambda: _locked(value.copy())),
        ]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return []
    if isinstance(value, int):
        kinds = [kind for kind in (np.int64, np.int32) if abs(value) <= np.iinfo(kind).max]
        return [(f"np.{kind.__name__}", lambda kind=kind: kind(value)) for kind in kinds]
    if isinstance(value, float):
        return [("np.float64", lambda: np.float64(value))]
    return []


# names of values of which a function on the host must not take any, and of those that are not finite
MUST_REFUSE = (
    *("a NaN", "an infinity", "complex numbers", "strings", "a dictionary"),
    *("one row more", "three axes"),
)
NONFINITE = ("a NaN", "an infinity", "nan", "inf")


def wrong_ones(value) -> list[tuple[str, Any]]:
    """Values that are wrong in this place as a rule: what they are, and how they are made."""
    shared: list[tuple[str, Any]] = [
        ("a dictionary", lambda: {"a": 1}),
        ("an object", object),
        ("an empty list", list),
    ]
    if sp.issparse(value) or isinstance(value, np.ndarray):
        dense = value if isinstance(value, np.ndarray) else value.toarray()
        like = np.asarray if isinstance(value, np.ndarray) else type(value)
        more: list[tuple[str, Any]] = [
            ("complex numbers", lambda: like(dense + 1j)),
            ("one row more", lambda: like(np.concatenate([dense, dense[:1]]))),
            ("no rows", lambda: like(dense[:0])),
            ("strings", lambda: np.full(dense.shape, "a b")),
            ("objects", lambda: dense.astype(object)),
            ("None in an array", lambda: np.full(dense.shape, None)),
            ("three axes", lambda: np.asarray(dense)[None, None]),
            ("one number", lambda: 1.0),
            ("None", lambda: None),
            ("negative numbers", lambda: like(-1 - np.abs(dense))),
            ("huge numbers", lambda: like(np.full(dense.shape, 1e30))),
            ("a ragged list", lambda: [[1, 2], [3]]),
            ("float16", lambda: dense.astype(np.float16)),
            ("int8", lambda: dense.astype(np.int8)),
            ("other byte order", lambda: dense.astype(dense.dtype.newbyteorder())),
            ("a masked array", lambda: np.ma.masked_equal(dense, dense.flat[0])),
        ]
        if dense.dtype.kind == "f":
            more += [
                ("a NaN", lambda: like(_with(dense, np.nan))),
                ("an infinity", lambda: like(_with(dense, np.inf))),
            ]
        return shared + more
    if isinstance(value, bool):
        return [*shared, ("a word", lambda: "yes"), ("None", lambda: None)]
    if isinstance(value, int | float):
        numbers = (0, -1, 0.5, 10**12, 2**70, 1e-300, 1e300, float("nan"), float("inf"), 1j)
        found = [(repr(number), lambda number=number: number) for number in numbers]
        return [
            *shared,
            *found,
            ("a word", lambda: "one"),
            ("an array", lambda: np.ones(3)),
            ("None", lambda: None),
        ]
    if isinstance(value, str):
        return [
            *shared,
            ("another word", lambda: "wrong"),
            ("bytes", lambda: b"x"),
            ("one number", lambda: 1),
        ]
    return [*shared, ("a word", lambda: "wrong"), ("-1", lambda: -1), ("nan", lambda: float("nan"))]


def _with(dense: np.ndarray, wrong: float) -> np.ndarray:
    changed = dense.copy()
    changed[ENTRY if changed.ndim > 1 else ENTRY[1]] = wrong
    return changed


def _locked(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _frozen(matrix):
    frozen = sp.csr_matrix(matrix, copy=True)
    for array in (frozen.data, frozen.indices, frozen.indptr):
        array.flags.writeable = False
    return frozen


def _unsorted(matrix):
    """Each row backwards."""
    csr = sp.csr_matrix(matrix, copy=True)
    for first, last in itertools.pairwise(csr.indptr):
        csr.data[first:last] = csr.data[first:last][::-1]
        csr.indices[first:last] = csr.indices[first:last][::-1]
    csr.has_sorted_indices = False
    return csr


def numbers(result) -> list[np.ndarray]:
    """All arrays of a result, one after the other."""
    if sp.issparse(result):
        return [result.toarray()]
    if isinstance(result, list | tuple):
        return [array for part in result for array in numbers(part)]
    array = np.asarray(result)
    return [array.astype(np.float64)] if array.dtype.kind in "biuf" or array.dtype.name == "bfloat16" else []


def _check_equal(where: str, expected: list[np.ndarray], found: list[np.ndarray]) -> None:
    for a, b in zip(expected, found, strict=True):
        if a.shape != b.shape or not np.allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True):
            raise Wrong(f"{where}: another result than for the value as it was")


def _refused(where: str, error: BaseException, call: calls.Call, must_work: bool) -> str:
    """What a refusal is worth: it has to come from a `raise` that somebody wrote for the user."""
    text = f"{type(error).__name__}: {error}"
    if must_work:
        raise Wrong(f"{where}: refused, {text[:300]}")
    last = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    ours = "/xmcjax/" in last.filename and line.startswith("raise")
    # scikit-learn's checks of X and y; Python's of paths; JAX's of shapes and dtypes
    theirs = "/sklearn/utils/" in last.filename or "os.PathLike" in text
    theirs = theirs or "Seed must be between" in text  # of random_state, as everywhere in scikit-learn
    # JAX leaves its own frames out of some tracebacks
    of_jax = "/jax/" in last.filename or "to JAX functions" in text or isinstance(error, TypeError)
    theirs = theirs or (not call.host and of_jax)
    if isinstance(error, TypeError | ValueError | IndexError | MemoryError) and (ours or theirs):
        return "refused"
    if isinstance(error, OSError) and (ours or error.filename is not None):
        return "refused by the file system"
    raise Wrong(f"{where}: {text[:300]} (from {Path(last.filename).name}:{last.lineno}: {line})")


if __name__ == "__main__":
    sys.exit(main(__spec__))
