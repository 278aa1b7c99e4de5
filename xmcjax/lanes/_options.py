"""How one-vs-all problems are trained: the options, each described once, and the object that holds them."""

from __future__ import annotations

import dataclasses

from xmcjax import linops
from xmcjax._arguments import instance, job_count, name_of, renamed
from xmcjax._options import CLASS_WEIGHTS, SHARED, THREADS, Names, Option, Real, Switch, Whole, table
from xmcjax.inits import INITS, Bias, Init, MeanSeparating, MultiPos, OvaPrimal
from xmcjax.lanes._label_weights import WEIGHTINGS
from xmcjax.losses import MARGIN_LOSSES, Hinge, HuberHinge, MarginLoss, squared_hinge
from xmcjax.penalties import L2, PENALTIES, ElasticNet, HuberPenalty, Penalty
from xmcjax.solvers import newton_cg

#: The options of one-vs-all training, in the order of ``xmcjax train --help``. Those that are no fields of
#: :class:`OneVsAll` are fields of its loss, its penalty, its initialisation, or of the weights of labels.
OPTIONS = table(
    [
        Option("loss", "the loss φ of the margin y z", squared_hinge.name, Names(tuple(MARGIN_LOSSES))),
        Option(
            "penalty",
            "the penalty R of the weights",
            L2.name,
            Names(tuple(PENALTIES)),
            more="l2 is ½‖w‖²; l1 is ‖w‖₁, which leaves most weights at zero without clipping; elastic_net "
            "is {l1_ratio} times ‖w‖₁ and the rest times ½‖w‖²; huber is w²/2ε up to ε = {huber_width} "
            "and |w| − ε/2 beyond",
        ),
        Option(
            "init",
            "starting weights, which decide the time and not the result",
            MeanSeparating.name,
            Names(tuple(INITS)),
            more="The loss hinge starts from dual variables, and leaves the default alone",
        ),
        Option("l1_ratio", "share of the l1 norm in the penalty elastic_net", ElasticNet.l1_ratio),
        Option("huber_width", "ε of the penalty huber", HuberPenalty.huber_width),
        SHARED["fit_intercept"],
        Option(
            "regularise_intercept",
            "whether the bias is regularised like the weight of a feature of value 1",
            True,
            Switch(),
        ),
        Option("bias_lambda", "the bias starts at minus this, for the init bias", Bias.bias_lambda),
        Option(
            "msi_s",
            "mean score of the positives at the start, for the inits mean_separating and multi_pos",
            MeanSeparating.msi_s,
        ),
        Option(
            "msi_t",
            "mean score of the negatives at the start",
            None,
            more="If it is not given, it is -2 for hinges and -3 for the logistic loss",
        ),
        Option(
            "max_positives",
            "most positives placed one by one, for the init multi_pos",
            MultiPos.max_positives,
            argument=False,
        ),
        Option("ridge", "regularisation of that placement", MultiPos.ridge, argument=False),
        Option(
            "ova_primal",
            "how exactly the problem without positives is solved, loose or strict, for the inits "
            "ova_primal and ova_primal_pp",
            OvaPrimal.ova_primal,
        ),
        Option(
            "pretrained",
            "directory of the model to start from, for the init pretrained",
            None,
            flag_default="",
        ),
        Option(
            "delta", "width of the quadratic part of the loss huber_hinge", HuberHinge.delta, argument=False
        ),
        SHARED["C"],
        Option(
            "weighting",
            "weights c of the losses by label, for labels that are missing from rows",
            None,
            Names(tuple(WEIGHTINGS)),
            more="With p the propensity of the label, propensity has c = 2/p − 1 for rows with the label and"
            " 1 for the others, propensity_down 1 and p/(2 − p)",
            optional=True,
            flag_default="none",
        ),
        Option(
            "propensities",
            "the data set or family whose constants A and B give the propensities p",
            "default",
        ),
        Option(
            "class_weight",
            "weights of the losses by label or class",
            None,
            CLASS_WEIGHTS,
            more="balanced gives the rows with a label as much weight together as those without it",
            optional=True,
            flag_default="none",
        ),
        Option(
            "tol",
            "ε₀ of the stopping rule: a label is done when ‖∇f‖ ≤ ε₀ max(1, min(positives, negatives)) "
            "/ rows · ‖∇f(0)‖ and its Newton decrement is small",
            0.01,
            Real(above=0),
            more="1 is enough for dense features of one scale. With the loss hinge a label is done when its "
            "duality gap is at most ε₀ and 0.005 of its objective",
        ),
        Option(
            "clip",
            "weights below this in absolute value are dropped after training, but not the bias",
            None,
            Real(least=0),
            more="If it is not given, those are dropped that are too small to matter for the scores, "
            "whatever the scale of the features: below 0.01 min(1/r, ‖w‖/4), r the root mean square of "
            "the norms of the rows and w the weights of the label, and fewer where dropping them is "
            "expected to raise the objective of the label by more than 0.25 per cent, or raises it by "
            "more than 0.5 per cent where it is looked at, with a large C or large features. 0 keeps "
            "all; 0.01 is the choice of the literature, for rows of norm 1",
            optional=True,
        ),
        Option(
            "sparsify_rise",
            "in place of {clip}, as many of a label's smallest weights are dropped as raise its "
            "objective by this part at most, 0.01 being 1 per cent",
            None,
            Real(above=0),
            optional=True,
        ),
        Option(
            "max_iter",
            "most Newton steps per label",
            100,
            Whole(0),
            more="0 keeps the starting weights and drops none of them. With the loss hinge each stands for "
            "10 passes over the rows",
        ),
        Option(
            "calibration",
            "how scores become probabilities, where the loss knows none",
            None,
            Names(("sigmoid",)),
            more="sigmoid is Platt's scaling by label, fitted on scores of rows that were held out: training "
            "is repeated without each of {cv} folds",
            optional=True,
            flag_default="none",
        ),
        SHARED["cv"],
        Option(
            "block_size",
            "labels that are solved side by side and share a pass over the features",
            None,
            Whole(1),
            more="If it is not given, 32 on a CPU, and on a GPU as many as its memory holds, up to 512",
            optional=True,
        ),
        SHARED["n_jobs"],
        SHARED["warm_start"],
        SHARED["verbose"],
        Option(
            "random_state",
            "taken for the sake of the interface, because nothing in this training is random",
            None,
            flag_default=0,
        ),
    ]
)
#: New names of arguments.
RENAMED = {
    "eps": "tol",
    "sparsify": "sparsify_rise",
    "bias": "fit_intercept and regularise_intercept, each True or False",
    "threads": THREADS,
}


@dataclasses.dataclass(frozen=True)
class OneVsAll:
    """How to train; the problem of each label is

        min R(w) [+ R(b)] + C Σ_i s_i c_i φ(y_i (w·x_i + b)),

    s_i = 1 without sample weights, and c_i = 1 without weights of the label. The fields that are not
    explained here are the options of their name in :data:`xmcjax.lanes.OPTIONS`.

    With the penalty l2 a label that ends CONVERGED has f within 0.5% of its minimum: where C ‖x‖² is so large
    that rows which leave the loss, or rounding, may have misled the solver, the duality gap is worked out in
    float64 (:mod:`xmcjax.lanes._certificate`). A penalty of one's own takes part in this if it has a
    ``conjugate``. With a `max_iter` of 100 or more, and up to a million entries of X, a label that its steps
    have ended is solved there, too, along a path of C.
    The weights of the native kernels depend neither on `block_size` nor on `n_jobs`; each GPU has one thread.

    Attributes:
        loss: φ.
        penalty: R; ½‖w‖² by default.
        init: starting weights.
        backend: of :func:`xmcjax.linops.make`; "auto" takes the kernels for a GPU for a sparse X where
            :func:`xmcjax.linops.gpu_ready`, and the native kernels for a dense X too, where there are
            any: a step that visits active rows only is as fast, and compiles in a tenth of a second
            instead of three.

    Raises:
        TypeError, ValueError: an option of another kind or out of range, or clip beside sparsify_rise.

    Example:
        >>> from xmcjax.data import make_power_law
        >>> from xmcjax.lanes import train_one_vs_all
        >>> from xmcjax.losses import logistic
        >>> results, (X, Y) = [], make_power_law(100, 50, 20)
        >>> summary = train_one_vs_all(X, Y, OneVsAll(C=10.0, loss=logistic, tol=1e-3), results.append)
        >>> len(results), {status.name for status in summary.statuses}
        (20, {'CONVERGED'})
    """

    loss: MarginLoss = squared_hinge
    init: Init = dataclasses.field(default_factory=MeanSeparating)
    C: float = OPTIONS["C"].default
    tol: float = OPTIONS["tol"].default
    clip: float | None = OPTIONS["clip"].default
    sparsify_rise: float | None = OPTIONS["sparsify_rise"].default
    fit_intercept: bool = OPTIONS["fit_intercept"].default
    regularise_intercept: bool = OPTIONS["regularise_intercept"].default
    max_iter: int = OPTIONS["max_iter"].default
    block_size: int | None = OPTIONS["block_size"].default
    n_jobs: int | None = OPTIONS["n_jobs"].default
    backend: str = "auto"
    penalty: Penalty = L2()  # noqa: RUF009 – frozen

    def __post_init__(self):
        for name, base in (("loss", MarginLoss), ("init", Init), ("penalty", Penalty)):
            instance(name, getattr(self, name), base)
        for name in self.numbers():
            object.__setattr__(self, name, OPTIONS[name].check(getattr(self, name)))  # which is frozen
        if self.clip is not None and self.sparsify_rise is not None:
            raise ValueError(
                f"clip: expected None beside sparsify_rise, which takes its place, got {self.clip}"
            )
        name_of("backend", self.backend, linops.BACKENDS)
        if isinstance(self.loss, Hinge):
            self._check_hinge()
        elif not self.loss.smooth:
            raise TypeError(
                f"one-vs-all training needs a loss with curvature, which {self.loss.name} has not; "
                f"take one of {', '.join(MARGIN_LOSSES)}"
            )

    def _check_hinge(self) -> None:
        """Refuses the options that the dual of the hinge has no place for."""
        wrong = {
            f"penalty: expected {L2.name}": (self.penalty != L2(), self.penalty.name),
            f"init: expected {MeanSeparating.name} as it is": (self.init != MeanSeparating(), self.init.name),
            "regularise_intercept: expected True": (
                self.fit_intercept and not self.regularise_intercept,
                self.regularise_intercept,
            ),
            "max_iter: expected 1 or more": (self.max_iter == 0, 0),
        }
        for expected, (is_wrong, found) in wrong.items():
            if is_wrong:
                raise ValueError(
                    f"{expected} with the loss {Hinge.name}, which is solved by its dual, got {found}"
                )

    @classmethod
    def numbers(cls) -> list[str]:
        """The fields that are options in their own right: numbers and switches, no objects."""
        names = (field.name for field in dataclasses.fields(OneVsAll))
        return [name for name in names if name not in ("loss", "init", "penalty", "backend")]

    @property
    def threads(self) -> int:
        """Host threads that `n_jobs` asks for."""
        return job_count(self.n_jobs)

    def hparams(self) -> newton_cg.HParams:
        """The parameters of the solver."""
        l2_bias = float(self.regularise_intercept) if self.fit_intercept else -1.0
        return newton_cg.HParams(l2=1.0, l2_bias=l2_bias, max_steps=self.max_iter)


OneVsAll.__init__ = renamed(**RENAMED)(OneVsAll.__init__)
