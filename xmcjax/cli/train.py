"""``xmcjax train``."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import TYPE_CHECKING, Annotated, Literal, get_type_hints

import tyro

from xmcjax._range import check_range
from xmcjax.cli import _report, _training
from xmcjax.cli._data import SizedDataOptions, read, transformed
from xmcjax.cli._environment import check_threads, node_shares
from xmcjax.cli._options import Directory, File, PresetName, check_preset, make_entry, one_of, parse_range
from xmcjax.cli._runs import write_run_file
from xmcjax.data import TRANSFORMS, parse_transforms
from xmcjax.inits import INITS, MeanSeparating, OvaPrimal
from xmcjax.lanes import BIASES, WEIGHTINGS, OneVsAll, Weighting
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.metrics import RANKING_METRICS
from xmcjax.models import LinearModel, check_vacant
from xmcjax.penalties import PENALTIES, ElasticNet, HuberPenalty

if TYPE_CHECKING:
    LossName = PenaltyName = InitName = BiasName = OvaPrimalName = DtypeName = WeightingName = str
else:
    LossName = one_of(name for name, loss in MARGIN_LOSSES.items() if loss.smooth)
    PenaltyName = one_of(PENALTIES)
    InitName = one_of(INITS)
    BiasName = one_of(BIASES)
    OvaPrimalName = get_type_hints(OvaPrimal)["ova_primal"]
    DtypeName = one_of(("float32", "float64"))
    WeightingName = one_of(("none", *WEIGHTINGS))

TransformNames = Annotated[
    str,
    tyro.conf.arg(metavar="T,T,..", help=f"of the features, in this order: some of {', '.join(TRANSFORMS)}"),
]
LabelRange = Annotated[str | None, tyro.conf.arg(metavar="A:B")]
_TEST_K = (1, 3, 5)
#: The exit status of a run whose time was over: "try again later" of sysexits.h.
TIMED_OUT = 75


@dataclasses.dataclass(frozen=True)
class Options:
    """Train one binary classifier a label and store them as a model.

    On a CPU the model does not depend on --threads and --block-size, nor on how often a run was interrupted.

    Attributes:
        train: training data.
        model: directory for the model; new, or empty, or with --resume one that was begun.
        loss: of the margin y z.
        penalty: of the weights, what the losses are weighed against.
        init: starting weights.
        l1_ratio: share of the l1 norm (--penalty elastic_net).
        huber_width: weights up to this are penalised by their squares, beyond by their size
            (--penalty huber).
        bias: regularised like a feature of value 1, free of regularisation, or none.
        bias_lambda: the bias weight starts at minus this (--init bias).
        msi_s: mean score of the positives at the start (--init mean_separating, multi_pos).
        msi_t: mean score of the negatives; without it -2, for the logistic loss -3.
        max_positives: most positives placed one by one (--init multi_pos).
        ridge: regularisation of that placement (--init multi_pos).
        ova_primal: how exactly the label without positives is solved (--init ova_primal,
            ova_primal_pp).
        pretrained: model to start from (--init pretrained).
        delta: width of the quadratic part of the loss (--loss huber_hinge).
        C: weight of the losses against the regularisation.
        weighting: of the losses by label, for labels that are missing from rows: propensity weighs rows
            with label l by 2/p_l - 1, propensity_down those without it by p_l / (2 - p_l).
        propensities: the data set or family whose constants A and B give the propensities p
            (--weighting).
        eps: a label has converged when its gradient is at most eps * min(positives, negatives) / rows
            of that at zero.
        clip: weights smaller than this are dropped after training; without it those that are too small to
            matter for the scores, whatever the scale of the features. 0 keeps all.
        sparsify: in place of --clip: as many of a label's smallest weights are dropped as raise its
            objective by this part at most, 0.01 being 1 per cent.
        max_iter: most Newton steps a label; 0 stores the starting weights, unclipped.
        dtype: of features and weights.
        block_size: labels that share a pass over the features; 32 on a CPU if not given, on a GPU as many
            as its memory holds, up to 512.
        threads: one a core if not given.
        numa: auto gives each NUMA node a process of its own, pinned to its cores, with its copy of the
            features, where the threads are on several; off trains in one process.
        seed: noted in run.json; nothing in this training is random.
        labels: train labels A to B-1 only, as one of several jobs.
        shard_size: labels a file of the model.
        test: data to evaluate the finished model on.
        timeout: seconds after which no shard is begun; the exit status is then 75, and --resume trains the
            labels that are left.
        resume: continue a run that was interrupted; the options must be the same.
    """

    train: File
    model: Directory
    transform: TransformNames = ""
    loss: LossName = OneVsAll.loss.name
    penalty: PenaltyName = OneVsAll.penalty.name
    l1_ratio: float = ElasticNet.l1_ratio
    huber_width: float = HuberPenalty.huber_width
    init: InitName = MeanSeparating.name
    bias: BiasName = OneVsAll.bias
    bias_lambda: float = 1.0
    msi_s: float = 1.0
    msi_t: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    max_positives: int = 5
    ridge: float = 0.01
    ova_primal: OvaPrimalName = OvaPrimal.ova_primal
    pretrained: Annotated[str, tyro.conf.arg(metavar="DIR")] = ""
    delta: float = 1.0
    C: float = OneVsAll.C
    weighting: WeightingName = "none"
    propensities: PresetName = "default"
    eps: float = OneVsAll.eps
    clip: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = OneVsAll.clip
    sparsify: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    max_iter: int = OneVsAll.max_iter
    dtype: DtypeName = "float32"
    block_size: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    threads: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    numa: Literal["auto", "off"] = "auto"
    seed: int = 0
    labels: LabelRange = None
    shard_size: int = 1000
    test: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    timeout: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None
    resume: bool = False
    files: SizedDataOptions = dataclasses.field(default_factory=SizedDataOptions)


def trainer_options(options: Options) -> OneVsAll:
    """What the flags say about training.

    Raises:
        ValueError: a number out of range, or a flag that another choice has no use for.
    """
    for field in dataclasses.fields(options):
        number = getattr(options, field.name)
        if isinstance(number, float) and not math.isfinite(number):
            flag = field.name.replace("_", "-")
            raise ValueError(f"--{flag}: expected a finite number, got {number}")
    losses = {name: type(loss) for name, loss in MARGIN_LOSSES.items() if loss.smooth}
    trainer = OneVsAll(
        loss=make_entry(losses, "loss", options),
        penalty=make_entry(PENALTIES, "penalty", options),
        init=make_entry(INITS, "init", options),
        C=options.C,
        eps=options.eps,
        clip=options.clip,
        sparsify=options.sparsify,
        bias=options.bias,  # type: ignore[arg-type]  # its choices are BIASES
        max_iter=options.max_iter,
        block_size=options.block_size,
        threads=check_threads(options.threads),
    )
    check_range("--C: expected a number", options.C, options.dtype)
    return trainer


def weighting(options: Options) -> Weighting | None:
    """What the flags say about weights of labels.

    Raises:
        ValueError: constants without a weighting that they are for.
    """
    check_preset(options.propensities)
    if options.weighting != "none":
        return Weighting.of_preset(options.weighting, options.propensities)
    if options.propensities != "default":
        raise ValueError(f"--propensities {options.propensities} needs --weighting, got none")
    return None


def _deadline(options: Options, trainer: OneVsAll) -> float | None:
    if options.timeout is None:
        return None
    if options.timeout <= 0:
        raise ValueError(f"--timeout: expected seconds above 0, got {options.timeout}")
    if trainer.init.tree:
        raise ValueError(
            f"--timeout: expected an --init that trains shard after shard, got {trainer.init.name}, which "
            "takes labels in the order of its tree"
        )
    return time.monotonic() + options.timeout


def run(options: Options) -> int:
    """Trains, stores, summarises, and evaluates where a test file is given.

    Returns:
        0, or 75 where labels were left because the time was over.
    """
    trainer, weights = trainer_options(options), weighting(options)
    deadline = _deadline(options, trainer)
    parse_transforms(options.transform)
    parse_range(options.labels)
    if options.shard_size < 1:
        raise ValueError(f"--shard-size: expected at least 1, got {options.shard_size}")
    if not options.resume:
        check_vacant(options.model)
    begin = time.perf_counter()
    dataset = read(options.train, options.files, dtype=options.dtype)
    n_rows, n_features = dataset.X.shape
    label_range = parse_range(options.labels, dataset.n_labels)
    _report.print_field("data", dataset.describe())
    test = None
    if options.test is not None:
        test = read(
            options.test,
            options.files,
            dtype=options.dtype,
            n_features=n_features,
            n_labels=dataset.n_labels,
            like=f"as in {options.train}",
        )
    try:
        data = _training.prepare(dataset, options.transform)
    except ValueError as error:
        raise ValueError(f"{options.train}: {error}") from error
    del dataset  # the features before the transforms
    if options.test is not None and test is not None:
        test = test._replace(X=transformed(options.test, test.X, data.transforms))
    reading = time.perf_counter() - begin
    shares = node_shares(options.numa, trainer.threads)
    if shares:
        _report.print_field("numa", _report.describe_shares(shares))
    outcome = _training.train_to_directory(
        data,
        trainer,
        options.model,
        label_range=label_range,
        shard_size=options.shard_size,
        resume=options.resume,
        weighting=weights,
        deadline=deadline,
        shares=shares,
    )
    _report.warn_of_labels(outcome)
    model = LinearModel.load(options.model, partial=not outcome.complete)
    seconds = {"reading": reading, "total": time.perf_counter() - begin}
    write_run_file(options.model, "train", options, outcome, seconds, shares)
    _report.print_training(outcome, model, n_rows)
    if test is not None and outcome.complete:
        labels = _training.best_labels(model, test.X, max(_TEST_K), trainer.threads)
        part = f", labels {options.labels} only" if options.labels else ""
        _report.print_field("test", f"per cent of {test.n_rows:,} rows{part}")
        print("\n".join(_report.metric_table(test.y, labels, _TEST_K, {"P": RANKING_METRICS["P"]})))
    return 0 if outcome.complete else TIMED_OUT
