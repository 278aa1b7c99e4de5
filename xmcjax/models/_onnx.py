"""Models as ONNX graphs, for onnxruntime and others."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from xmcjax import __version__
from xmcjax._links import ONE_OF, SIGMOID, link_of
from xmcjax.data import atomic_write
from xmcjax.models._foreign import trained_biases
from xmcjax.models._linear import LinearModel

# Versions of 2023: the operators used here are older, and current runtimes read them.
_OPSET, _IR = 17, 8
# The most bytes of weights: a protocol buffer holds 2 GB, of which 16 MB are left for the rest of the graph.
_MOST_BYTES = (2 << 30) - (16 << 20)


def write_onnx(path: str | os.PathLike[str], model: LinearModel) -> list[str]:
    """Writes a graph with its weights as a dense matrix. Returns what a user should be told about it.

    | input, output | type | shape | |
    |---|---|---|---|
    | ``X`` | of the weights | [n, d] | features before the transforms of the model |
    | ``label`` | int64, bool, or texts | [n] | the class with the largest score, the lower one of equals |
    | ``scores`` | of the weights | [n, L] | −1e30 for labels that are never predicted |
    | ``probabilities`` | of the weights | [n, L] | only of models whose loss is a likelihood, or calibrated |

    Raises:
        ValueError: weights of more than 2 GB as a dense matrix.
        ImportError: onnx is not installed (the extra ``onnx``).
        OSError: the file cannot be written.
    """
    try:
        import onnx  # pyright: ignore[reportMissingImports] – an extra
    except ImportError:
        raise ImportError("ONNX files need onnx: pip install 'xmcjax[onnx]'") from None
    size = model.n_features * model.n_labels * model.dtype.itemsize
    if size > _MOST_BYTES:
        raise ValueError(
            f"{model.directory}: expected weights of at most {_MOST_BYTES / 1e9:.1f} GB as a dense matrix, "
            f"which is what an ONNX file holds, found {size / 1e9:.1f} GB"
        )
    graph = _Graph(onnx, model)
    features = graph.transformed("X")
    graph.scores(features)
    graph.label()
    outputs = ["label", "scores"]
    link = link_of(model.meta)
    if link is not None:
        graph.probabilities(link)
        outputs.append("probabilities")
    made = onnx.helper.make_model(
        graph.proto(outputs),
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
        producer_name="xmcjax",
        producer_version=__version__,
    )
    onnx.checker.check_model(made)
    with atomic_write(path) as file:
        file.write(made.SerializeToString(deterministic=True))
    of_positive = [name for name in model.transforms().names if name in ("log", "sqrt")]
    if not of_positive:
        return []
    names = " and ".join(of_positive)
    return [f"a graph refuses nothing: where the transform {names} meets a number below 0 all scores are NaN"]


def _given(classes: np.ndarray) -> np.ndarray:
    """Classes in a type that a graph can return: truth values, whole numbers, or else texts."""
    if classes.dtype.kind == "b":
        return classes
    if classes.dtype.kind in "iu" and int(classes.max(initial=0)) <= np.iinfo(np.int64).max:
        return classes.astype(np.int64)
    return np.array([str(one) for one in classes.tolist()], object)


class _Graph:
    def __init__(self, onnx: Any, model: LinearModel):
        self._onnx, self._model = onnx, model
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._type = onnx.helper.np_dtype_to_tensor_dtype(model.dtype)

    def proto(self, outputs: list[str]) -> Any:
        helper, L = self._onnx.helper, self._model.n_labels
        classes = self._model.names().classes
        of_label = np.dtype(np.int64) if classes is None else _given(classes).dtype
        kinds = {
            "label": (helper.np_dtype_to_tensor_dtype(of_label), ["n"]),
            "scores": (self._type, ["n", L]),
            "probabilities": (self._type, ["n", L]),
        }
        return helper.make_graph(
            self._nodes,
            "linear",
            [helper.make_tensor_value_info("X", self._type, ["n", self._model.n_features])],
            [helper.make_tensor_value_info(name, *kinds[name]) for name in outputs],
            self._constants,
        )

    def constant(self, name: str, array: np.ndarray) -> str:
        if array.dtype.kind in "UO":
            texts = [str(text).encode() for text in array.tolist()]
            made = self._onnx.helper.make_tensor(name, self._onnx.TensorProto.STRING, array.shape, texts)
        else:
            made = self._onnx.numpy_helper.from_array(array, name)
        self._constants.append(made)
        return name

    def number(self, name: str, value: float) -> str:
        return self.constant(name, np.array(value, self._model.dtype))

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._nodes.append(self._onnx.helper.make_node(kind, inputs, [output], **attributes))
        return output

    def transformed(self, x: str) -> str:
        """The features after the transforms of the model, which are applied in their order."""
        transforms, dtype = self._model.transforms(), self._model.dtype
        for name in transforms.names:
            match name:
                case "log":  # x → 1 + ln x, 0 stays 0, and a number below 0 gives NaN
                    empty = self.node("Equal", [x, self.number("log.zero", 0)], "log.empty")
                    safe = self.node("Where", [empty, self.number("log.one", 1), x], "log.safe")
                    raised = self.node("Add", [self.node("Log", [safe], "log.ln"), "log.one"], "log.raised")
                    x = self.node("Where", [empty, "log.zero", raised], name)
                case "idf" | "tfidf":
                    weight = transforms.arrays[f"{name}.weight"].astype(dtype)
                    x = self.node("Mul", [x, self.constant(f"{name}.weight", weight)], name)
                case "sqrt":
                    x = self.node("Sqrt", [x], name)
                case "unit":
                    # relative to the largest value, so that no square overflows or vanishes
                    size = self.node("Abs", [x], "unit.size")
                    largest = self.node("ReduceMax", [size], "unit.largest", axes=[1], keepdims=1)
                    empty = self.node("Equal", [largest, self.number("unit.zero", 0)], "unit.empty")
                    one = self.number("unit.one", 1)
                    scale = self.node("Where", [empty, one, largest], "unit.scale")
                    scaled = self.node("Div", [x, scale], "unit.scaled")
                    norm = self.node("ReduceL2", [scaled], "unit.norm", axes=[1], keepdims=1)
                    length = self.node("Where", [empty, one, norm], "unit.length")
                    x = self.node("Div", [scaled, length], name)
                case "frequency":
                    order = self.constant(
                        "frequency.order", transforms.arrays["frequency.order"].astype(np.int64)
                    )
                    x = self.node("Gather", [x, order], name, axis=1)
                case other:
                    raise ValueError(f"{self._model.directory}: the transform {other!r} has no form in ONNX")
        return x

    def scores(self, x: str) -> None:
        trained, bias = trained_biases(self._model)
        W, _ = self._model.dense_block(0, self._model.n_labels)
        W[:, ~trained] = 0
        product = self.node("MatMul", [x, self.constant("W", W)], "product")
        self.node("Add", [product, self.constant("b", bias)], "scores")

    def label(self) -> None:
        classes = self._model.names().classes
        place = "label" if classes is None else "place"
        self.node("ArgMax", ["scores"], place, axis=1, keepdims=0)
        if classes is not None:
            self.node("Gather", [self.constant("classes", _given(classes)), place], "label", axis=0)

    def probabilities(self, link: str) -> None:
        scores, calibration = "scores", self._model.calibration()
        if calibration is not None:
            dtype = self._model.dtype
            most = float(np.finfo(dtype).max)
            slope = self.constant("calibration.slope", np.clip(calibration.slope, 0, most).astype(dtype))
            offset = np.clip(calibration.offset, -most, most).astype(dtype)
            offset = self.constant("calibration.offset", offset)
            scores = self.node("Add", [self.node("Mul", [scores, slope], "scaled"), offset], "calibrated")
        if link == SIGMOID:
            self.node("Exp", [self.log_sigmoid(scores)], "probabilities")
        elif link == ONE_OF:
            self.node("Softmax", [self.log_sigmoid(scores)], "probabilities", axis=1)
        else:
            self.node("Softmax", [scores], "probabilities", axis=1)

    def log_sigmoid(self, z: str) -> str:
        """log σ(z) = min(z, 0) − log(1 + e^{−|z|}): onnxruntime's Sigmoid has few exact digits below −10."""
        below = self.node("Min", [z, self.number("log_sigmoid.zero", 0)], "log_sigmoid.below")
        size = self.node("Neg", [self.node("Abs", [z], "log_sigmoid.abs")], "log_sigmoid.size")
        raised = self.node("Exp", [size], "log_sigmoid.exp")
        one_more = self.node("Add", [raised, self.number("log_sigmoid.one", 1)], "log_sigmoid.one_more")
        return self.node("Sub", [below, self.node("Log", [one_more], "log_sigmoid.log")], "log_sigmoid")
