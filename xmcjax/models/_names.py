"""The names of classes and features of a model: ``names.json``."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from xmcjax import _sparse
from xmcjax.models._errors import ModelFormatError

#: The Python type that JSON values have for each dtype kind of classes.
_PLAIN = {"b": bool, "i": int, "u": int, "f": float, "U": str, "O": str}
#: The item sizes, in bytes, that a dtype of numbers may have.
_WIDTHS = (1, 2, 4, 8, 16)
_DTYPE = re.compile(r"[<>|]?([biufU])(\d{1,6})|object")


@dataclasses.dataclass(frozen=True)
class Names:
    """What the labels and features of a model are called.

    Attributes:
        classes: of the labels, ascending, [L]: numbers, texts or truth values; None where labels are numbers.
        features: texts, [d]; None where they have none.

    Example:
        >>> Names(classes=np.array(["left", "right"])).classes.tolist()
        ['left', 'right']
    """

    classes: np.ndarray | None = None
    features: tuple[str, ...] | None = None

    def encode(self) -> bytes:
        """The bytes of the file: a function of the names alone.

        Raises:
            TypeError: classes that are neither numbers nor texts, or features that are no texts.
            ValueError: classes that do not ascend, or are not finite; texts with a lone surrogate.
        """
        content: dict[str, Any] = {}
        if self.classes is not None:
            classes = _sparse.array(self.classes, "classes")
            values = classes.tolist()
            kind = _PLAIN.get(classes.dtype.kind)
            if classes.ndim != 1 or kind is None or not all(type(value) is kind for value in values):
                found = f"{classes.dtype} {classes[:3].astype(str).tolist()}: such as y.astype(str)"
                raise TypeError(f"classes: expected numbers or texts [L], found {found}")
            _check_order(classes)
            if classes.dtype.kind == "U":  # no wider than it must be
                classes = np.array(values, str)
            content |= {"dtype": _name(classes.dtype), "classes": values}
        if self.features is not None:
            several = isinstance(self.features, (list, tuple))
            if not several or not all(isinstance(name, str) for name in self.features):
                raise TypeError("features: expected texts as names, found others")
            content["features"] = list(self.features)
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            found = f"{error.object[error.start]!r}, half of a character"
            raise ValueError(f"names: expected texts of whole characters, found {found}") from None


def decode(path: Path, raw: bytes, n_labels: int, n_features: int) -> Names:
    """The names of a file, checked against the sizes of its model.

    Raises:
        ModelFormatError: other content than `Names.encode` writes for such a model.
    """

    def need(condition: bool, expected: str, found: Any) -> None:
        if not condition:
            raise ModelFormatError(path, expected, str(found)[:80])

    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(path, "names in JSON", str(error)) from error
    need(isinstance(content, dict), "a JSON object", type(content).__name__)
    classes, features = content.get("classes"), content.get("features")
    if features is not None:
        need(isinstance(features, list) and len(features) == n_features, f"{n_features} features", "others")
        need(all(isinstance(name, str) for name in features), "texts as names of features", "others")
    if classes is None:
        return Names(None, None if features is None else tuple(features))
    need(isinstance(classes, list) and len(classes) == n_labels, f"{n_labels} classes", "another number")
    dtype = content.get("dtype")
    form = _DTYPE.fullmatch(dtype) if isinstance(dtype, str) else None
    need(form is not None, "the type of the classes", dtype)
    kind = _PLAIN[form[1] or "O"]  # type: ignore[index]
    need(all(type(value) is kind for value in classes), f"classes of type {kind.__name__}", classes[:3])
    longest = max((len(value) for value in classes if isinstance(value, str)), default=0)
    width = int(form[2] or 0)  # type: ignore[index]
    need(width <= max(longest, 1) if kind is str else width in _WIDTHS, "a type of the classes' width", dtype)
    try:
        if kind is str:
            "".join(classes).encode()  # fails on a lone surrogate
        array = np.array(classes, dtype)
        _check_order(array)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelFormatError(path, f"classes of type {dtype}", str(error)) from error
    need(array.tolist() == classes, f"classes of type {dtype}", "longer ones")
    return Names(array, None if features is None else tuple(features))


def _name(dtype: np.dtype) -> str:
    return "object" if dtype.kind == "O" else dtype.str


def _check_order(classes: np.ndarray) -> None:
    if classes.dtype.kind == "f" and not np.isfinite(classes).all():
        raise ValueError("classes: expected finite numbers, found others")
    if not (classes[1:] > classes[:-1]).all():
        raise ValueError("classes: expected ascending ones, each once, found another order")
