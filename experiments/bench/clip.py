"""Whether dropping small weights by default leaves predictions as they are, whatever unit features have.

    python -m experiments.bench.clip [--small|--full] [--out results]

Accuracy of ``OneVsAllClassifier()`` on the test part of satimage, the features as they come and multiplied
by some numbers, beside that of scikit-learn's ``LinearSVC()`` on the same matrices; weights kept, and
what each warned of. Writes clip.json and clip.md.
"""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np

from experiments import _data, _report


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized, small=dict(data="digits", scales=(1.0, 10.0))):
    """Default options on features of several scales.

    Attributes:
        data: "satimage", or a set of ``experiments._data.CLASS_SETS``.
        scales: by which features are multiplied.
        small: scikit-learn's digits at two scales.
        full: as without it.
    """

    data: str = "satimage"
    scales: tuple[float, ...] = (1.0, 255.0, 2550.0, 1e-3)


def run(options: Options) -> dict:
    """Trains both on the features at each scale."""
    from sklearn.svm import LinearSVC

    from xmcjax import OneVsAllClassifier

    X, y, X_test, y_test = _loaded(options.data)
    rows = []
    for scale in options.scales:
        train, test = X * np.float32(scale), X_test * np.float32(scale)
        ours, warned = _fitted(OneVsAllClassifier(), train, y)
        theirs, theirs_warned = _fitted(LinearSVC(random_state=0), train, y)
        rows.append(
            {
                "scale": scale,
                "largest": float(abs(train).max()),
                "accuracy": 100 * float(np.mean(ours.predict(test) == y_test)),
                "kept": float(ours.coef_.nnz / ours.coef_.shape[0]),
                "warned": warned,
                "linear_svc": 100 * float(np.mean(theirs.predict(test) == y_test)),
                "linear_svc_warned": theirs_warned,
            }
        )
    return {"rows": rows}


def _loaded(name: str):
    if name != "satimage":
        split = _data.load_classes(name)
        return split.X, split.y, split.X_test, split.y_test
    found = _data.fetch(name)
    return found.X_train.toarray(), found.Y_train, found.X_test.toarray(), found.Y_test


def _fitted(model, X, y):
    """The fitted model, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return model, [str(w.message) for w in caught]


def markdown(result: dict) -> str:
    """A row of a table for every scale."""
    header = [
        "scale",
        "largest feature",
        "xmcjax, %",
        "weights kept per class",
        "warned",
        "LinearSVC, %",
        "warned",
    ]
    return _report.markdown_table(
        header,
        [
            [
                f"{row['scale']:g}",
                f"{row['largest']:.3g}",
                f"{row['accuracy']:.2f}",
                f"{row['kept']:g}",
                "; ".join(row["warned"]) or "no",
                f"{row['linear_svc']:.2f}",
                "; ".join(row["linear_svc_warned"]) or "no",
            ]
            for row in result["rows"]
        ],
    )


if __name__ == "__main__":
    _report.main("clip", Options, __doc__, run, markdown)
