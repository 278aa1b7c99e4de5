"""Section 3.1 of Gopal and Yang, 2013: piecewise linear bounds of log Σ_k e^{γ_k}, which the paper rejects.

    python -m experiments.papers.p002.piecewise [--small|--full] [--out results]

The paper has no experiment; it gives three reasons, which are measured here. First, a constructive solution
is known for K = 2 alone (Hsiung, Kim and Boyd, 2008), and derivative-free methods have to find the slopes
for more classes. Two terms: the best r pieces from below, tangents of log(1 + e^x) whose largest errors are
equal; an upper bound is as good, as it is a lower one moved by its error. K terms: two at a time in a
balanced tree, whose errors add up by level, with the number of pieces that one maximum over linear
functions would have; and slopes by Nelder and Mead, beside the K classes themselves, of points drawn at
random, with the best offset of each, the entropy of its slopes. Second and third, the bound couples the
classes and has kinks: the objective with the upper bound of the tree is minimised by scipy's L-BFGS, and G
at its weights is compared with the minimum of G.

Writes p002_piecewise.json, .md and, where matplotlib is installed, .png with the bounds of two terms.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable

import numpy as np
import scipy.optimize
import scipy.special

from experiments import _multiclass, _report

NAME = "p002_piecewise"
SPREAD = 3.0  # standard deviation of the random points of Nelder and Mead
HALVINGS = 100


@dataclasses.dataclass(frozen=True)
class Options(
    _report.Sized,
    small=dict(searched=(2, 3), points=200, evaluations=500, iterations=50),
    full=dict(evaluations=200_000),
):
    """Piecewise linear bounds.

    Attributes:
        pieces: r, of a bound of two terms.
        classes: K of the trees.
        searched: K of which Nelder and Mead look for slopes, as many as there are classes.
        points: random ones on which they measure the error.
        evaluations: most of each search, over all its starts.
        starts: at random, of which the best end counts.
        data: of experiments._multiclass, of which the objective is minimised.
        lam: λ.
        iterations: most of L-BFGS.
        small: few evaluations and iterations.
        full: ten times as many evaluations.
    """

    pieces: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16, 32)
    classes: tuple[int, ...] = (2, 8, 64, 1_024)
    searched: tuple[int, ...] = (2, 3, 5, 10, 20)
    points: int = 2_000
    evaluations: int = 20_000
    starts: int = 5
    data: str = "digits"
    lam: float = 1.0
    iterations: int = 200


@functools.cache
def two_terms(pieces: int) -> tuple[np.ndarray, np.ndarray, float]:
    """The best lower bound max_j (s_j x + b_j) of log(1 + e^x): slopes, offsets, and its largest error.

    A tangent begins where the previous one is below the function by the error, and ends where it is itself
    below by the error. The error is chosen so that the last tangent is x.
    """

    def tangents(error: float) -> tuple[list[float], float]:
        """Where the tangents between 0 and x touch, and where the last one is below by the error."""
        at, touches = float(np.log(np.expm1(error))), []
        for _ in range(pieces - 2):
            # a tangent is below by the error at its start, then comes nearer, and is so again at its end
            touches.append(_root(functools.partial(_above, start=at, error=error), at))
            at = _root(functools.partial(_left, touch=touches[-1], error=error), touches[-1])
        return touches, at

    low, high = 1e-9, float(np.log(2.0))
    for _ in range(HALVINGS):
        error = (low + high) / 2
        # beyond this point x itself is below by less than the error
        enough = tangents(error)[1] >= -np.log(np.expm1(error))
        low, high = (low, error) if enough else (error, high)
    touch = np.array(tangents(high)[0])
    slopes = scipy.special.expit(touch)
    offsets = np.logaddexp(0, touch) - slopes * touch
    return np.concatenate([[0.0], slopes, [1.0]]), np.concatenate([[0.0], offsets, [0.0]]), high


def _above(touch: float, start: float, error: float) -> float:
    """How far, at `start`, the tangent at `touch` is above log(1 + e^x) minus the error."""
    tangent = np.logaddexp(0, touch) + scipy.special.expit(touch) * (start - touch)
    return tangent - np.logaddexp(0, start) + error


def _left(x: float, touch: float, error: float) -> float:
    """The error minus the distance, at x, of the tangent at `touch` below log(1 + e^x)."""
    return np.logaddexp(0, touch) + scipy.special.expit(touch) * (x - touch) - np.logaddexp(0, x) + error


def _root(falling: Callable[[float], float], start: float) -> float:
    """The zero of a function that falls from a value above 0 at `start`; far away if it stays above 0."""
    stride = 1.0
    while falling(start + stride) > 0:
        stride *= 2
        if stride > 1e3:
            return start + stride
    return float(scipy.optimize.brentq(falling, start, start + stride, xtol=1e-13))


def upper(Z: np.ndarray, pieces: int) -> tuple[np.ndarray, np.ndarray]:
    """An upper bound of log Σ_k e^{z_k} for each row of Z, two terms at a time, and its subgradient."""
    slopes, offsets, error = two_terms(pieces)
    values, parts = [Z[:, k] for k in range(Z.shape[1])], [np.eye(Z.shape[1])[k] for k in range(Z.shape[1])]
    parts = [np.broadcast_to(part, Z.shape) for part in parts]
    while len(values) > 1:
        above, below = [], []
        for first in range(0, len(values) - 1, 2):
            (u, v), (P, Q) = values[first : first + 2], parts[first : first + 2]
            lines = slopes * (u - v)[:, None] + offsets
            best = lines.argmax(axis=1)
            s = slopes[best][:, None]
            above.append(v + lines[np.arange(len(v)), best] + error)
            below.append(s * P + (1 - s) * Q)
        odd = len(values) % 2
        values, parts = above + values[len(values) - odd :], below + parts[len(parts) - odd :]
    return values[0], parts[0]


def log10_of_pieces(pieces: int, classes: int) -> float:
    """log₁₀ of the number of linear functions whose maximum a tree's bound is; classes are a power of two."""
    count = 0.0  # log10 of 1
    for _ in range(int(np.ceil(np.log2(classes)))):
        # two of the pieces are one side as it is; each other piece combines all pairs of both sides
        both = 2 * count + np.log10(pieces - 2) if pieces > 2 else -np.inf
        count = float(np.logaddexp(np.log(10) * both, np.log(10) * (np.log10(2) + count)) / np.log(10))
    return count


def searched(classes: int, options: Options) -> dict:
    """Slopes by Nelder and Mead: the largest error on the points before and after, and the cost."""
    rng = np.random.default_rng(0)
    points = SPREAD * rng.standard_normal((options.points, classes))
    exact = scipy.special.logsumexp(points, axis=1)
    own = points.max(axis=1)

    def error(logits: np.ndarray) -> float:
        a = scipy.special.softmax(logits.reshape(classes, classes), axis=1)
        lines = points @ a.T + scipy.special.entr(a).sum(axis=1)  # the best offset is the entropy
        return float((exact - np.maximum(own, lines.max(axis=1))).max())

    starts = rng.standard_normal((options.starts, classes * classes))
    most = options.evaluations // options.starts
    limits = {"maxfev": most, "maxiter": most, "xatol": 1e-8, "fatol": 1e-8}
    begin = time.process_time()
    ends = [scipy.optimize.minimize(error, one, method="Nelder-Mead", options=limits) for one in starts]
    return {
        "classes": classes,
        "pieces": 2 * classes,
        "numbers": classes * classes,
        "by_classes": float((exact - own).max()),
        "start": min(error(one) for one in starts),
        "end": min(float(end.fun) for end in ends),
        "evaluations": sum(int(end.nfev) for end in ends),
        "ended": all(bool(end.success) for end in ends),
        "seconds": time.process_time() - begin,
    }


def minimised(rows: Callable, X, y: np.ndarray, lam: float, iterations: int) -> tuple[np.ndarray, dict]:
    """Weights of least ½λ‖W‖² + Σ_i (bound of row i − z_iy) that L-BFGS finds, and how it ends.

    Args:
        rows: function of scores [n, K] that gives the bound of each row and its subgradient.
        X, y, lam, iterations: the problem, and the most iterations.
    """
    classes = int(y.max()) + 1
    own = np.arange(len(y))

    def objective(point: np.ndarray):
        W = point.reshape(-1, classes)
        Z = np.asarray(X @ W)
        values, P = rows(Z)
        P = np.array(P)
        P[own, y] -= 1
        return lam / 2 * float(point @ point) + float((values - Z[own, y]).sum()), (lam * W + X.T @ P).ravel()

    limits = {"maxiter": iterations, "maxfun": 5 * iterations, "ftol": 0.0, "gtol": 1e-6}
    start = np.zeros(X.shape[1] * classes)
    found = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=limits)
    kept = {"value": float(found.fun), "iterations": int(found.nit), "evaluations": int(found.nfev)}
    kept["slope"] = float(np.abs(found.jac).max())
    return found.x.reshape(-1, classes), kept


def smooth(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log Σ_k e^{z_k} of each row, and its gradient."""
    values = scipy.special.logsumexp(Z, axis=1)
    return values, np.exp(Z - values[:, None])


def run(options: Options) -> dict:
    """All parts."""
    two = [{"pieces": r, "error": two_terms(r)[2]} for r in options.pieces]
    trees = [
        {
            "pieces": r,
            "classes": classes,
            "error": float(np.ceil(np.log2(classes))) * two_terms(r)[2],
            "log10_of_pieces": log10_of_pieces(r, classes),
        }
        for classes in options.classes
        for r in options.pieces
    ]
    searches = []
    for classes in options.searched:
        searches.append(searched(classes, options))
        print(searches[-1], flush=True)
    parts = _multiclass.load(options.data)
    X, y = parts.X.astype(np.float64), parts.y
    _, best = minimised(smooth, X, y, options.lam, options.iterations)
    fits = []
    for r in options.pieces:
        W, found = minimised(lambda Z, r=r: upper(Z, r), X, y, options.lam, options.iterations)
        Z = X @ W
        value = options.lam / 2 * float(np.vdot(W, W)) + float((smooth(Z)[0] - Z[np.arange(len(y)), y]).sum())
        error = 100 * float(np.mean((parts.X_test @ W).argmax(axis=1) != parts.y_test))
        fits.append({"pieces": r, **found, "G": value, "test_error": error})
        print(fits[-1], flush=True)
    problem = {"set": options.data, "lam": options.lam, "classes": int(y.max()) + 1, "best": best}
    return {"two": two, "trees": trees, "searches": searches, "problem": problem, "fits": fits}


def markdown(result: dict) -> str:
    """A table for each part."""
    text = (
        "Largest error of a bound by r pieces, two terms, and K terms two at a time in a tree, with log₁₀ of "
        "the number of linear functions of which it is the maximum:\n\n"
    )
    some = list(dict.fromkeys(row["classes"] for row in result["trees"]))
    by = {(row["classes"], row["pieces"]): row for row in result["trees"]}
    rows = []
    for one in result["two"]:
        cells = [by[K, one["pieces"]] for K in some]
        rows.append([one["pieces"], *(f"{c['error']:.4f} / {c['log10_of_pieces']:.1f}" for c in cells)])
    text += _report.markdown_table(("r", *(f"K = {K:,}" for K in some)), rows)
    text += (
        "\nLargest error on random points, slopes by Nelder and Mead beside those of the classes alone:\n\n"
    )
    rows = [
        [
            s["classes"],
            s["pieces"],
            s["numbers"],
            *(f"{s[key]:.3f}" for key in ("by_classes", "start", "end")),
            f"{s['evaluations']:,}" + ("" if s["ended"] else ", not ended"),
            f"{s['seconds']:.1f}",
        ]
        for s in result["searches"]
    ]
    header = ("K", "pieces", "numbers searched for", "by the classes alone", "best start", "best end")
    header += ("evaluations",)
    text += _report.markdown_table((*header, "processor s"), rows)
    problem = result["problem"]
    best = problem["best"]["value"]
    text += (
        f"\nThe objective with the upper bound of a tree, {problem['set']}, {problem['classes']} classes, "
        f"λ = {problem['lam']:g}; L-BFGS takes {problem['best']['iterations']} iterations to the minimum of "
        f"G itself, {best:.5g}, where the largest slope is {problem['best']['slope']:.0e}:\n\n"
    )
    rows = [
        [
            f["pieces"],
            f"{f['value'] / best - 1:.4f}",
            f"{f['G'] / best - 1:.4f}",
            f"{f['iterations']} / {f['evaluations']}",
            f"{f['slope']:.1g}",
            f"{f['test_error']:.2f}",
        ]
        for f in result["fits"]
    ]
    header = ("r", "bound over min G, − 1", "G at its weights over min G, − 1", "iterations / evaluations")
    return text + _report.markdown_table((*header, "largest slope at the end", "test error, %"), rows)


def draw(result: dict, axes) -> None:
    """How far the bounds of two terms are below log(1 + e^x)."""
    x = np.linspace(-6, 6, 601)
    for one in result["two"][:4]:
        slopes, offsets, _ = two_terms(one["pieces"])
        axes.plot(
            x, np.logaddexp(0, x) - (slopes * x[:, None] + offsets).max(axis=1), label=f"r = {one['pieces']}"
        )
    axes.set(xlabel="x", ylabel="log(1 + eˣ) less its bound by r pieces")
    axes.legend()


if __name__ == "__main__":
    _report.main(NAME, Options, __doc__, run, markdown, {NAME: draw})
