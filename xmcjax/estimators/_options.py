"""The options of the systems with a class per row, each described once, also for docs/reference/cli.md."""

from __future__ import annotations

from xmcjax._options import CLASS_WEIGHTS, SHARED, Names, Option, Real, Whole, table

_SEED = Option(
    "random_state",
    "seed of the order in which rows are visited",
    None,
    Whole(0),
    optional=True,
    flag_default=0,
)
_BIAS = Option(
    "fit_intercept",
    "whether there is a bias b",
    False,
    SHARED["fit_intercept"].values,
    more="It is the weight of a feature of value 1, regularised like the others",
)
_CLASS_WEIGHT = Option(
    "class_weight",
    "weights of the losses by class",
    None,
    CLASS_WEIGHTS,
    more="balanced weighs a class by the inverse of its number of rows",
    optional=True,
    flag_default="none",
)
_GAP = Option(
    "tol",
    "relative duality gap (P − D)/P at which training ends",
    1e-3,
    Real(above=0),
    more="The objective is then above its minimum by no more than that part of it",
)
#: The calibration of the SVMs over all classes at once.
CALIBRATION = Option(
    "calibration",
    "how scores become probabilities",
    None,
    Names(("temperature",)),
    more="temperature is softmax(a z) with one slope a for all classes, fitted on scores of rows that were "
    "held out: training is repeated without each of {cv} folds",
    optional=True,
    flag_default="none",
)

#: How dual variables are found.
DUAL_SOLVERS = ("auto", "admm")
_SOLVER = Option(
    "solver",
    "how the minimum is found",
    "auto",
    Names(DUAL_SOLVERS),
    more="auto is by dual ascent first, on the CPU. admm is by steps for all rows at once on the default "
    "device, for dense features of a GPU",
)

MULTICLASS = table(
    [
        Option(
            "formulation",
            "the loss",
            "ww",
            Names(("ww", "cs", "llw", "ovr", "ovr_squared")),
            more="ww is of Weston and Watkins, cs of Crammer and Singer, llw of Lee, Lin and Wahba, ovr a "
            "binary SVM for each class, ovr_squared the same with the squared hinge",
        ),
        _SOLVER,
        SHARED["C"],
        _CLASS_WEIGHT,
        _GAP,
        _BIAS,
        Option("max_iter", "most epochs and Newton steps together", 1000, Whole(1)),
        CALIBRATION,
        SHARED["cv"],
        SHARED["n_jobs"],
        _SEED,
    ]
)
TOP_K = table(
    [
        Option("k", "classes that count, at most the number of classes less one", 1, Whole(1)),
        Option(
            "variant",
            "the loss",
            "alpha",
            Names(("alpha", "beta", "entropy")),
            more="alpha is of the mean of the k largest margins, beta the mean of the k largest losses, "
            "entropy a softmax in which no wrong class counts for more than 1/k of them",
        ),
        Option(
            "smoothing",
            "γ of the smoothed loss, which is quadratic where the loss has its kinks",
            0.0,
            Real(least=0),
            more="0 is the loss itself. The smoothed one is below it, by γ/2 at most. entropy has none",
        ),
        _SOLVER,
        SHARED["C"],
        _CLASS_WEIGHT,
        _GAP,
        _BIAS,
        Option("max_iter", "most epochs", 1000, Whole(1)),
        CALIBRATION,
        SHARED["cv"],
        SHARED["n_jobs"],
        _SEED,
    ]
)
MULTINOMIAL = table(
    [
        Option(
            "solver",
            "how the minimum is found",
            "auto",
            Names(("auto", "block_newton", "newton", "dual", "lbfgs", "lc", "lc_extrapolated", "admm", "dm")),
            more="auto is the fastest by measurement",
        ),
        SHARED["C"],
        SHARED["fit_intercept"],
        _CLASS_WEIGHT,
        Option("tol", "relative suboptimality at which training ends", 1e-4, Real(least=0)),
        Option("max_iter", "most outer iterations", 1000, Whole(1)),
        SHARED["n_jobs"],
    ]
)
KERNEL = table(
    [
        Option("kernel", "the kernel", "rbf", Names(("rbf", "matern", "linear"))),
        Option("v", "variance of the functions of the classes", 10.0, Real(above=0)),
        Option(
            "w",
            "inverse squared length of the kernel",
            None,
            Real(above=0),
            more="If it is not given, it is the inverse of the mean variance of the features",
            optional=True,
        ),
        Option("sigma2", "variance of the intercepts, 0 for none", 1.0, Real(least=0)),
        Option("likelihood", "the loss", "softmax", Names(("softmax", "one_vs_rest"))),
        _CLASS_WEIGHT,
        Option(
            "tol",
            "largest difference of coefficients and targets less probabilities",
            1e-5,
            Real(above=0),
            more="It counts as 100 roundings of the precision at least",
        ),
        Option("max_iter", "most Newton steps", 100, Whole(1)),
        Option("max_cg", "most CG steps of a Newton step", 200, Whole(1)),
        Option(
            "rank", "rank of an approximation of the kernel; exact without it", None, Whole(1), optional=True
        ),
        Option(
            "approximation",
            "of the kernel, where there is a rank",
            "cholesky",
            Names(("cholesky", "nystrom", "fourier")),
        ),
        Option("random_state", "seed of folds and of draws", None, Whole(0), optional=True, flag_default=0),
    ]
)
#: The options by the name of the system.
OPTIONS = {"multiclass": MULTICLASS, "multinomial": MULTINOMIAL, "top-k": TOP_K, "kernel": KERNEL}
