"""Convergence of multinomial logistic regression by iteration and by time: figures 1 to 4 of Gopal and Yang.

    python -m experiments.papers.p002.figures_1_4 [--small|--full] [--choose-lam] [--out results]

S. Gopal, Y. Yang, "Distributed training of large-scale logistic models", 2013. Figure 1: the objective
and the bound by double majorization on news20. Figures 2 and 3: (G − G*)/G* of the four methods, of LC
extrapolated and of auto, against iterations and against processor seconds. Figure 4: LC alone on the
largest set. naics2017 stands for LSHTC-small. G* comes from a long run in float64. The λ of "set:cv" is that
of the least error of one-vs-rest logistic regression in cross-validation, as in the paper; --choose-lam shows
these errors for all sets. Figure 1 also has the paper's two curves, of L-BFGS on G and on the bound.

Of ADMM, several ρ are tried as in the paper, and "admm, best ρ" is the one that comes nearest to the minimum;
"admm" is that of the library, whose ρ adapts itself.

The paper has 48 cores. What an iteration takes there is worked out from one thread: LC is divided by 48, as
its classes are apart; of L-BFGS, as the paper has it, the products with the features are, and the
two-loop recursion, which is timed here in NumPy, stays on one. Runs are kept in
p002_figures_1_4.cells.json, so that an experiment goes on where one was stopped. Writes
p002_figures_1_4.json, .md and _1.png to _4.png.
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from experiments import _multiclass, _multinomial, _report
from experiments._cells import Cells
from experiments.papers.p002.bound import curves

NAME = "p002_figures_1_4"
GAPS = (1e-2, 1e-3, 1e-4, 1e-5)
TUNED = "admm, best ρ"


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """Convergence of the methods.

    Attributes:
        problems: sets with λ, "set:λ" or "set:cv"; figure 1 is of the second, figure 4 of the last.
        methods: of xmcjax.solvers.multinomial, experiments._block_newton, and "admm, best ρ".
        rhos: that are tried for the best.
        limit: processor seconds of a run.
        gap: at which a run ends.
        rows: of the training part; 0 for all.
        choose_lam: cross-validation of λ by one-vs-rest logistic regression, on each set.
        lams: from which it chooses.
        folds: of it.
        curve: iterations of the two curves of figure 1.
        small: scikit-learn's digits, one second per run, two ρ.
        full: five minutes per run, and the cross-validation.
    """

    problems: tuple[str, ...] = ("clef:cv", "news20_bydate:cv", "naics2017:cv")
    methods: tuple[str, ...] = (
        "auto",
        "newton",
        "block_newton",
        "lbfgs",
        "lc_extrapolated",
        "lc",
        "admm",
        TUNED,
        "dm",
    )
    rhos: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)
    limit: float = 40.0
    gap: float = 1e-6
    rows: int = 0
    choose_lam: bool = False
    lams: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0, 10.0)
    folds: int = 3
    curve: int = 60

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            return dataclasses.replace(self, limit=300.0, choose_lam=True)
        if self.small:
            few = dict(lams=(0.1, 1.0), rhos=(0.1, 1.0))
            return dataclasses.replace(self, problems=("digits:1", "digits:cv"), limit=1.0, **few)
        return self


def run(options: Options) -> dict:
    """The traces by problem and method, what an iteration takes, and the cross-validation."""
    cells = Cells(options, NAME, listed=("problems", "methods", "choose_lam", "lams", "rhos"))
    result: dict = {"limit": options.limit, "problems": {}, "cross_validation": {}}

    def errors(data: str) -> dict[str, dict]:
        if data not in result["cross_validation"]:
            result["cross_validation"][data] = {
                f"{lam:g}": cells.get(
                    lambda v=lam: _one_vs_rest(options, data, v),
                    ("limit", "gap", "curve"),
                    what="one-vs-rest",
                    set=data,
                    lam=lam,
                )
                for lam in options.lams
            }
        return result["cross_validation"][data]

    for place, problem in enumerate(options.problems):
        data, word = problem.split(":")
        lam = float(chosen_lam(errors(data)) if word == "cv" else word)
        best = _multinomial.optimum(
            cells, ("limit", "gap", "folds", "curve"), data, lam, seconds=1e4, rows=options.rows, set=data
        )

        def traced(program: str, data=data, lam=lam, best=best) -> dict:
            target = best["value"] * (1 + options.gap)
            request = _multinomial.Request(
                data, lam, program, target=target, limit=options.limit, rows=options.rows
            )
            asked = {"what": "trace", "set": data, "lam": lam, "method": program}
            return cells.get(
                lambda: _multinomial.thinned(_multinomial.ask(request)), ("folds", "curve"), **asked
            )

        runs, tried = {}, {}
        for method in options.methods:
            if method != TUNED:
                runs[method] = traced(method)
                continue
            by_rho = {f"{rho:g}": traced(f"admm {rho:g}") for rho in options.rhos}
            tried = {rho: float(_gaps(run, best["value"]).min()) for rho, run in by_rho.items()}
            runs[method] = by_rho[min(tried, key=lambda rho: tried[rho])]
        without = ("limit", "gap", "folds", "curve")
        vectors = cells.get(lambda d=data: vector_work(d), without, what="two-loop recursion", set=data)
        found = {"optimum": best, "runs": runs, "rhos": tried, "vectors": vectors["seconds"]}
        if place == min(1, len(options.problems) - 1):

            def both(data=data, lam=lam) -> dict:
                X, y = part_of(options, data)
                return curves(X, y, lam, options.curve)

            asked = {"what": "curves", "set": data, "lam": lam}
            found["curves"] = cells.get(both, ("limit", "gap", "folds"), **asked)
        result["problems"][f"{data}:{lam:g}"] = found
    if options.choose_lam:
        for problem in options.problems:
            errors(problem.split(":")[0])
    result["made"] = cells.made()
    return result


def chosen_lam(errors: dict[str, dict]) -> str:
    """The λ with the least error; of equal errors the first."""
    return min(errors, key=lambda lam: errors[lam]["error"])


def vector_work(data: str) -> dict:
    """Processor seconds of the two-loop recursion of L-BFGS with five pairs, on as many numbers as W has."""
    parts = _multiclass.load(data)
    size = parts.X.shape[1] * (int(parts.y.max()) + 1)
    rng = np.random.default_rng(0)
    pairs = [rng.random((2, size), np.float32) for _ in range(5)]
    seconds = []
    for _ in range(5):
        direction = np.ones(size, np.float32)
        begin = time.process_time()
        products = []
        for s, change in pairs:
            products.append(float(s @ direction) / size)
            direction -= np.float32(products[-1]) * change
        for (s, change), product in zip(pairs, products, strict=True):
            direction += np.float32(product - float(change @ direction) / size) * s
        seconds.append(time.process_time() - begin)
    return {"seconds": float(np.median(seconds)), "numbers": size}


def part_of(options: Options, data: str) -> tuple:
    """Features and classes of the rows of the options."""
    parts = _multiclass.load(data)
    last = options.rows or parts.X.shape[0]
    return parts.X[:last], parts.y[:last]


def _one_vs_rest(options: Options, data: str, lam: float) -> dict:
    """Error in % of one-vs-rest logistic regression, ½λ‖w‖² + Σ log(1 + e^{−m}), in cross-validation."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    from xmcjax import OneVsAllClassifier

    X, y = part_of(options, data)
    last = len(y)
    fold = np.random.default_rng(0).permutation(last) % options.folds
    wrong = 0
    for k in range(options.folds):
        model = OneVsAllClassifier(loss="logistic", init="zero", C=1 / lam, clip=0.0, fit_intercept=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            model.fit(X[fold != k], y[fold != k])
        wrong += int(np.sum(model.predict(X[fold == k]) != y[fold == k]))
    return {"error": 100 * wrong / last}


def _gaps(found: dict, best: float) -> np.ndarray:
    # rounding to float32 may put G below the optimum, so that smaller gaps are not known
    return np.maximum(np.asarray(found["value"]) / best - 1, 1e-8)


def _iterations(found: dict) -> np.ndarray:
    return np.asarray(found.get("iterations", range(len(found["value"]))))


def markdown(result: dict) -> str:
    """Iterations and seconds of every method to every gap, and its least gap."""
    text = (
        "Outer iterations / processor seconds (compilation included) to a relative gap of G; float32, one "
        f"thread, at most {result['limit']:g} s per run\n\n"
    )
    rows = []
    for problem, found in result["problems"].items():
        best = found["optimum"]["value"]
        for method, run in found["runs"].items():
            gaps = _gaps(run, best)
            cells = []
            for gap in GAPS:
                reached = np.flatnonzero(gaps <= gap)
                where = reached[0] if len(reached) else None
                cells.append(
                    "never" if where is None else f"{_iterations(run)[where]} / {run['seconds'][where]:.1f}"
                )
            rows.append((problem, f"{best:.7g}", method, *cells, f"{gaps.min():.1e}", run["steps"]))
    header = ("set:λ", "G*", "method", *(f"{gap:g}" for gap in GAPS), "least gap", "iterations")
    text += _report.markdown_table(header, rows)
    tried = {problem: found["rhos"] for problem, found in result["problems"].items() if found.get("rhos")}
    if tried:
        rhos = list(next(iter(tried.values())))
        rows = [
            (problem, *(f"{gaps[rho]:.1e}" for rho in rhos), min(gaps, key=lambda rho: gaps[rho]))
            for problem, gaps in tried.items()
        ]
        text += "\nLeast gap of ADMM by ρ, which stays what it is:\n\n"
        text += _report.markdown_table(("set:λ", *(f"ρ = {rho}" for rho in rhos), "best"), rows)
    text += "\n" + markdown_workers(result)
    if result["cross_validation"]:
        text += "\nError in % of one-vs-rest logistic regression in cross-validation, by λ:\n\n"
        lams = list(next(iter(result["cross_validation"].values())))
        rows = [
            (
                data,
                *(f"{errors[lam]['error']:.2f}" for lam in lams),
                chosen_lam(errors),
            )
            for data, errors in result["cross_validation"].items()
        ]
        text += _report.markdown_table(("set", *lams, "chosen"), rows)
    return text


WORKERS = 48


def per_iteration(run: dict, vectors: float, method: str, workers: int) -> float:
    """Seconds of an iteration of LC or of L-BFGS with as many workers; after the first, which is compiled."""
    steps, seconds = _iterations(run), np.asarray(run["seconds"])
    one = float((seconds[-1] - seconds[1]) / (steps[-1] - steps[1])) if len(seconds) > 2 else float("nan")
    serial = min(vectors, one) if method == "lbfgs" else 0.0
    return (one - serial) / workers + serial


def markdown_workers(result: dict) -> str:
    """LC beside L-BFGS: iterations, and seconds with one worker and with 48."""
    rows = []
    for problem, found in result["problems"].items():
        for method in ("lc", "lc_extrapolated", "lbfgs"):
            if method not in found["runs"]:
                continue
            run = found["runs"][method]
            one, many = (per_iteration(run, found["vectors"], method, count) for count in (1, WORKERS))
            gaps = _gaps(run, found["optimum"]["value"])
            cells = []
            for gap in GAPS:
                reached = np.flatnonzero(gaps <= gap)
                steps = int(_iterations(run)[reached[0]]) if len(reached) else None
                cells.append(
                    "never" if steps is None else f"{steps} / {steps * one:.2g} / {steps * many:.2g}"
                )
            rows.append((problem, method, f"{1e3 * one:.3g}", f"{1e3 * many:.3g}", *cells))
    header = ("set:λ", "method", "ms an iteration", f"with {WORKERS} workers", *(f"{gap:g}" for gap in GAPS))
    return (
        f"Iterations / seconds with one worker / with {WORKERS}, worked out, to a relative gap of G. Without "
        "the time of messages and of compilation; of L-BFGS the two-loop recursion stays on one worker:\n\n"
        + _report.markdown_table(header, rows)
    )


def draw_panels(result: dict, axes, x_of, x_label: str) -> None:
    """One panel per problem, one line per method."""
    figure = axes.figure
    axes.remove()
    problems = result["problems"]
    panels = figure.subplots(-(-len(problems) // 2), min(2, len(problems)), squeeze=False).ravel()
    for panel, (problem, found) in zip(panels, problems.items(), strict=False):
        for method, run in found["runs"].items():
            panel.loglog(x_of(run), _gaps(run, found["optimum"]["value"]), label=method)
        panel.set_title(problem.replace(":", ", λ = "), fontsize="small")
        panel.set_xlabel(x_label, fontsize="small")
        panel.set_ylabel("(G − G*)/G*")
    for panel in panels[len(problems) :]:
        panel.remove()
    panels[0].legend(fontsize="x-small")


def draw_bound(result: dict, axes) -> None:
    """Figure 1: G and the bound while the bound is minimised."""
    problem = list(result["problems"])[min(1, len(result["problems"]) - 1)]
    found = result["problems"][problem]
    run = found["runs"].get("dm")
    if run:
        axes.plot(_iterations(run)[1:], run["bound"][1:], label="bound by double majorization")
        axes.plot(_iterations(run)[1:], run["value"][1:], label="G at its weights")
    for name, label in (("bound", "the bound, by L-BFGS"), ("value", "G, by L-BFGS")):
        if "curves" in found:
            axes.plot(found["curves"][name], "--", label=label)
    axes.axhline(found["optimum"]["value"], color="black", linestyle=":", label="minimum of G")
    axes.set_title(problem.replace(":", ", λ = "))
    axes.set_xlabel("outer iterations")
    axes.set_ylabel("G")
    axes.legend()


def draw_iterations(result: dict, axes) -> None:
    """Figure 2."""
    draw_panels(result, axes, lambda run: _iterations(run) + 1, "outer iterations")


def draw_seconds(result: dict, axes) -> None:
    """Figure 3."""
    draw_panels(result, axes, lambda run: run["seconds"], "processor seconds")


def draw_largest(result: dict, axes) -> None:
    """Figure 4: LC, and what extrapolation wins, on the last problem."""
    problem = list(result["problems"])[-1]
    found = result["problems"][problem]
    for method in ("lc", "lc_extrapolated"):
        if method in found["runs"]:
            run = found["runs"][method]
            axes.loglog(run["seconds"], _gaps(run, found["optimum"]["value"]), label=method)
    axes.set_title(problem.replace(":", ", λ = "))
    axes.set_xlabel("processor seconds")
    axes.set_ylabel("(G − G*)/G*")
    if axes.lines:
        axes.legend()


FIGURES = (draw_bound, draw_iterations, draw_seconds, draw_largest)


if __name__ == "__main__":
    figures = {f"{NAME}_{number}": draw for number, draw in enumerate(FIGURES, 1)}
    _report.main(NAME, Options, __doc__, run, markdown, figures)
