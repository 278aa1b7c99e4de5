"""What is wrong with the indices of a matrix, which scipy and native code follow without a look."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Fault(NamedTuple):
    """What is wrong with a matrix, to be said in a sentence."""

    expected: str
    found: str


def compressed_fault(
    indptr: np.ndarray, indices: np.ndarray, entries: int, major: int, minor: int, line: str = "row"
) -> Fault | None:
    """What is wrong with compressed rows, or columns; None where their indices may be followed.

    Args:
        indptr: where each line starts, [major + 1].
        indices: places in the lines.
        entries: number of values.
        major, minor: number of lines, and of places in each.
        line: what a line is called.
    """
    for what, array in (("indptr", indptr), ("indices", indices)):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            return Fault(f"{what} of whole numbers in one dimension", f"{array.dtype} {list(array.shape)}")
    if len(indptr) != major + 1:
        return Fault(f"{major + 1} offsets in indptr, one more than {line}s", str(len(indptr)))
    if len(indices) != entries:
        return Fault(f"as many indices as values, {entries}", str(len(indices)))
    if indptr[0] != 0:
        return Fault("an indptr that begins with 0", str(indptr[0]))
    # neighbours are compared: their differences may wrap around in a narrow or a signed type
    falls = indptr[1:] < indptr[:-1]
    if falls.any():
        at = int(np.argmax(falls))
        return Fault("an indptr that does not fall", f"{indptr[at + 1]} after {indptr[at]} at {line} {at}")
    if indptr[-1] > entries:
        return Fault(f"an indptr that ends with at most {entries}, the number of values", str(indptr[-1]))
    outside = first_outside(indices[: int(indptr[-1])], minor)
    if outside is None:
        return None
    at = int(np.searchsorted(indptr, outside, side="right")) - 1
    return Fault(f"indices from 0 to {minor - 1}", f"{indices[outside]} in {line} {at}")


def first_outside(places: np.ndarray, size: int) -> int | None:
    """The first place that is below 0 or not below `size`; None where there is none."""
    if not places.size:
        return None
    # one pass for both: as unsigned, what is below 0 is above all else
    unsigned = places.view(places.dtype.str.replace("i", "u"))
    # beside a size below 2^(bits − 1) nothing else can be as large
    if size <= np.iinfo(places.dtype).max and unsigned.max() < size:
        return None
    outside = (places < 0) | (places >= size)
    return int(np.argmax(outside)) if outside.any() else None
