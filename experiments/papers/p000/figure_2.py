"""How far Newton's quadratic model of the squared hinge is from it: figure 2 of Schultheis and Babbar, 2022.

    python -m experiments.papers.p000.figure_2 [--small|--full] [--out results]

e(δ; m₀) = φ̂(δ) − φ(m₀ + δ) with φ̂(δ) = φ(m₀) + δ φ'(m₀) + ½ δ² φ''(m₀) (equations 17 and 18), at a margin
m₀ below 1 and at 1, where φ'' jumps. Above 0 the model asks for too short a step, below 0 for one
that the line search has to cut. Writes p000_figure_2.json, .md and, where matplotlib is installed, .png.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from experiments import _report
from xmcjax.losses import MARGIN_LOSSES

NAME = "p000_figure_2"


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized, small=dict(points=9)):
    """Error of the quadratic model.

    Attributes:
        loss: a smooth margin loss.
        margins: m₀; the paper has 0 and 1.
        longest: δ from −longest to longest.
        points: on that line, an odd number.
        small: nine points.
        full: as it is: it takes a second.
    """

    loss: str = "squared_hinge"
    margins: tuple[float, ...] = (0.0, 1.0)
    longest: float = 3.0
    points: int = 121


def run(options: Options) -> dict:
    """δ, and e(δ; m₀) of each m₀."""
    loss = MARGIN_LOSSES[options.loss]
    step = np.linspace(-options.longest, options.longest, options.points)

    def of(function, m) -> np.ndarray:
        return np.asarray(function(np.asarray(m, np.float32)), float)

    errors = {}
    for margin in options.margins:
        value, slope, curvature = (float(of(f, margin)) for f in (loss.value, loss.grad, loss.curv))
        # φ̂ (eq. 18) − φ (eq. 17)
        model = value + step * slope + step**2 * curvature / 2
        errors[f"{margin:g}"] = (model - of(loss.value, margin + step)).tolist()
    return {"loss": options.loss, "step": step.tolist(), "errors": errors}


def markdown(result: dict) -> str:
    """Some steps of each margin."""
    step = result["step"]
    shown = range(0, len(step), max(1, len(step) // 8))
    rows = [(step[i], *(error[i] for error in result["errors"].values())) for i in shown]
    header = ("δ", *(f"e(δ; {margin})" for margin in result["errors"]))
    return f"{result['loss']}:\n\n" + _report.markdown_table(header, rows)


def draw(result: dict, axes) -> None:
    """Figure 2."""
    for (margin, error), style in zip(result["errors"].items(), ("-", "--", ":", "-."), strict=False):
        axes.plot(result["step"], error, style, label=f"m₀ = {margin}")
    axes.set(xlabel="δ", ylabel="e(δ; m₀)", title=f"quadratic model less {result['loss']}")
    axes.grid(alpha=0.3)
    axes.legend()


if __name__ == "__main__":
    _report.main(NAME, Options, __doc__, run, markdown, {NAME: draw})
