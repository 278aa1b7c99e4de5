"""``xmcjax train``."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_type_hints

import tyro

from xmcjax._arguments import whole_number
from xmcjax._memory import size, usable_memory
from xmcjax._options import flag_of
from xmcjax._range import check_range
from xmcjax._state_folder import state_folder
from xmcjax._systems import FIRST_SYSTEM
from xmcjax._words import counted
from xmcjax.cli import _report, _training
from xmcjax.cli._cache import compilation_cache
from xmcjax.cli._cluster import ClusterOptions, TrainingFiles, check_workers_read
from xmcjax.cli._data import check_numbers, of_file, read_test, read_training, transformed_test
from xmcjax.cli._data_options import DtypeName, SizedDataOptions
from xmcjax.cli._environment import node_shares
from xmcjax.cli._needs import as_trained, check_least, memory_of, remedy, shape_of
from xmcjax.cli._options import (
    ClassWeightName,
    Directory,
    File,
    PresetName,
    TransformNames,
    check_folds,
    check_preset,
    check_stats,
    described,
    make_entry,
    one_of,
    parse_range,
)
from xmcjax.cli._runs import write_run_file
from xmcjax.data import parse_transforms
from xmcjax.inits import INITS, OvaPrimal
from xmcjax.lanes import OPTIONS, WEIGHTINGS, OneVsAll, Shape, StepFile, Weighting
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.models import LinearModel, check_vacant
from xmcjax.penalties import PENALTIES

if TYPE_CHECKING:
    LossName = PenaltyName = InitName = OvaPrimalName = WeightingName = CalibrationName = str
else:
    LossName = one_of(MARGIN_LOSSES)
    PenaltyName = one_of(PENALTIES)
    InitName = one_of(INITS)
    OvaPrimalName = get_type_hints(OvaPrimal)["ova_primal"]
    CalibrationName = one_of(("none", *OPTIONS["calibration"].values.names))
    WeightingName = one_of(("none", *WEIGHTINGS))

TIMED_OUT = _training.TIMED_OUT
LabelRange = Annotated[str | None, tyro.conf.arg(metavar="A:B")]


@described(OPTIONS)
@dataclasses.dataclass(frozen=True)
class Options:
    """Train one binary classifier per label and store them as a model.

    On a CPU the model does not depend on --n-jobs and --block-size, nor on how often a run was interrupted.

    Attributes:
        train: training data.
        model: directory for the model; new, or empty, or with --resume one that was begun.
        labels_file: labels of the rows, where they have a file of their own.
        more_features: features to stand beside those of --train, row by row, such as embeddings.
        dtype: of the features, the weights and all arithmetic.
        workers_read: with a cluster, let each of its hosts read the training data itself, under the same
            names, in place of sending it what this process has read.
        numa: auto gives each NUMA node a process of its own, pinned to its cores, with its copy of the
            features, where the threads are on several; off trains in one process.
        labels: train labels A to B-1 only; several jobs can share the work, each with a directory of its own.
        shard_size: labels per file of the model. A crash costs the files that are not complete, and at most
            those of ten times as long as the manifest took to be written; a resumed run repeats them.
        test: data to evaluate the finished model on.
        test_labels_file: labels of these, where they have a file of their own.
        test_more_features: features to stand beside those of --test.
        timeout: seconds from the start of the command after which no shard is begun; what is stored is whole,
            the exit status is 75, and --resume trains the rest. Not with the init ova_primal_pp, whose tree
            begins all shards at once.
        resume: continue a run that was interrupted or out of time; the options must be the same.
        stats: file for the numbers of every Newton step of every label, Parquet where its name ends in
            .parquet and JSON lines otherwise. It must not be there yet; with --resume it keeps the rows of
            all labels but those that are trained again. It is written when the command ends: the rows of a
            run that is killed (SIGKILL, no power) are lost, and --resume says how many labels have none.
            Not with the loss hinge, a cluster or processes by NUMA node.
    """

    train: File
    model: Directory
    labels_file: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    more_features: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    transform: TransformNames = ""
    loss: LossName = OPTIONS["loss"].default
    penalty: PenaltyName = OPTIONS["penalty"].default
    init: InitName = OPTIONS["init"].default
    l1_ratio: float = OPTIONS["l1_ratio"].default
    huber_width: float = OPTIONS["huber_width"].default
    fit_intercept: bool = OPTIONS["fit_intercept"].default
    regularise_intercept: bool = OPTIONS["regularise_intercept"].default
    bias_lambda: float = OPTIONS["bias_lambda"].default
    msi_s: float = OPTIONS["msi_s"].default
    msi_t: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = OPTIONS["msi_t"].default
    max_positives: int = OPTIONS["max_positives"].default
    ridge: float = OPTIONS["ridge"].default
    ova_primal: OvaPrimalName = OPTIONS["ova_primal"].default
    pretrained: Annotated[str, tyro.conf.arg(metavar="DIR")] = OPTIONS["pretrained"].of_flag
    delta: float = OPTIONS["delta"].default
    C: float = OPTIONS["C"].default
    weighting: WeightingName = OPTIONS["weighting"].of_flag
    propensities: PresetName = OPTIONS["propensities"].default
    class_weight: ClassWeightName = OPTIONS["class_weight"].of_flag
    tol: float = OPTIONS["tol"].default
    clip: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = OPTIONS["clip"].default
    sparsify_rise: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = OPTIONS["sparsify_rise"].default
    max_iter: int = OPTIONS["max_iter"].default
    calibration: CalibrationName = OPTIONS["calibration"].of_flag
    cv: int = OPTIONS["cv"].of_flag
    dtype: DtypeName = "float32"
    block_size: Annotated[int | None, tyro.conf.arg(metavar="N")] = OPTIONS["block_size"].default
    n_jobs: int = OPTIONS["n_jobs"].of_flag
    workers_read: bool = False
    numa: Literal["auto", "off"] = "auto"
    random_state: int = OPTIONS["random_state"].of_flag
    labels: LabelRange = None
    shard_size: int = 1000
    test: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    test_labels_file: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    test_more_features: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    timeout: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None
    resume: bool = False
    stats: Annotated[File | None, tyro.conf.arg(metavar="FILE")] = None
    files: SizedDataOptions = dataclasses.field(default_factory=SizedDataOptions)
    cluster: ClusterOptions = dataclasses.field(default_factory=ClusterOptions)


def trainer_options(options: Options) -> OneVsAll:
    """The options of training that the flags give.

    Raises:
        ValueError: a number out of range, or a flag that has no effect with another one.
    """
    for field in dataclasses.fields(options):
        number = getattr(options, field.name)
        if isinstance(number, float) and not math.isfinite(number):
            flag = flag_of(field.name, field.default)
            raise ValueError(f"{flag}: expected a finite number, got {number}")
    own = OneVsAll.numbers()
    for name in own:
        OPTIONS[name].check(getattr(options, name), OPTIONS[name].flag)
    OPTIONS["cv"].check(options.cv, "--cv")
    check_folds(options.calibration, options.cv)
    if not options.fit_intercept and not options.regularise_intercept:
        raise ValueError("--no-regularise-intercept needs an intercept, got --no-fit-intercept")
    if options.clip is not None and options.sparsify_rise is not None:
        raise ValueError(
            f"--clip: expected none beside --sparsify-rise, which takes its place, got {options.clip}"
        )
    losses = {name: type(loss) for name, loss in MARGIN_LOSSES.items()}
    trainer = OneVsAll(
        loss=make_entry(losses, "loss", options),
        penalty=make_entry(PENALTIES, "penalty", options),
        init=make_entry(INITS, "init", options),
        **{name: getattr(options, name) for name in own},
    )
    check_range("--C: expected a number", options.C, options.dtype)
    return trainer


def weighting(options: Options) -> Weighting | None:
    """The weighting of labels that the flags give; None for none.

    Raises:
        ValueError: constants of a weighting that is not chosen.
    """
    check_preset(options.propensities)
    if options.weighting != "none":
        return Weighting.of_preset(options.weighting, options.propensities)
    if options.propensities != "default":
        raise ValueError(f"--propensities {options.propensities} needs --weighting, got none")
    return None


def _deadline(options: Options, trainer: OneVsAll) -> float | None:
    deadline = _training.deadline_of(options.timeout)
    if deadline is not None and trainer.init.tree:
        raise ValueError(
            f"--timeout: expected an --init that trains shard after shard, got {trainer.init.name}, which "
            "takes labels in the order of its tree"
        )
    return deadline


def _check_cluster(options: Options, trainer: OneVsAll) -> None:
    """Checks that a cluster can do what the flags ask for.

    Raises:
        ValueError: it cannot.
    """
    flag = options.cluster.flag()
    if flag is None:
        if options.workers_read:
            raise ValueError("--workers-read needs --scheduler or --local-cluster, got neither")
        return
    if trainer.init.tree:
        raise ValueError(
            f"{flag}: expected an --init that trains labels by themselves, got {trainer.init.name}, which "
            "starts them from one another"
        )
    if options.calibration != "none":
        raise ValueError(f"{flag}: expected no --calibration, whose folds one process trains")
    if options.workers_read:
        check_workers_read(options)


def _opened_stats(options: Options, trainer: OneVsAll) -> contextlib.AbstractContextManager[StepFile | None]:
    """The file of --stats, opened before anything is read.

    Raises:
        FileExistsError: the file exists, and the run has no --resume.
        ImportError: Parquet without pyarrow.
        ValueError: the training has no such steps, or the file is in the model.
    """
    if options.stats is None:
        return contextlib.nullcontext()
    if not trainer.loss.smooth:
        raise ValueError(f"--stats: expected a loss with Newton steps, got {trainer.loss.name}")
    flag = options.cluster.flag()
    if flag is not None:
        raise ValueError(f"--stats: expected training in this process, got {flag}")
    if node_shares(options.numa, trainer.threads):
        raise ValueError("--stats: expected training in this process; add --numa off")
    check_stats(options.stats, options.model, options.resume)
    return StepFile(options.stats)


def _print_plan(options: Options, threads: int, shape: Shape, here: int | None) -> None:
    """Prints what ``plan`` says without training any label; warns if memory may not suffice."""
    needed = memory_of(options, shape, threads)
    if here is not None and needed > here:
        _report.warn(
            f"the run needs about {size(needed)} of memory, and {size(here)} are there; "
            + remedy(options, shape, threads, 0.0, here)
        )
    shards = -(-shape.labels // options.shard_size)
    _report.print_field(
        "plan",
        f"about {size(needed)} of memory, {counted(shards, 'shard')}; `xmcjax plan` says how long",
        bytes=needed,
        shards=shards,
    )


@compilation_cache()
def run(options: Options) -> int:
    """Trains, stores, summarises, and evaluates where a test file is given.

    Returns:
        0, or 75 where labels were left because the time was over.
    """
    trainer, weights = trainer_options(options), weighting(options)
    deadline = _deadline(options, trainer)
    _check_cluster(options, trainer)
    parse_transforms(options.transform)
    parse_range(options.labels)
    whole_number("--shard-size", options.shard_size, 1)
    if not options.resume:
        check_vacant(options.model)
    _check_state(options)
    with _opened_stats(options, trainer) as stats:
        if options.stats is not None:  # a run that ended just now may have made the file
            check_stats(options.stats, options.model, options.resume)
        return _run(options, trainer, weights, deadline, stats)


def _check_state(options: Options) -> None:
    """Checks that no interrupted run of another system has left its state beside this model.

    Raises:
        FileExistsError: such a state is there.
        ModelMismatchError: such a state is there, and this run has --resume.
    """
    state, model = state_folder(options.model), Path(options.model)
    if state.is_dir() and not (model.is_dir() and any(model.iterdir())):
        from xmcjax.estimators import Checkpoint

        Checkpoint(state, {"--system": FIRST_SYSTEM}).check_run(options.resume)


def _run(
    options: Options,
    trainer: OneVsAll,
    weights: Weighting | None,
    deadline: float | None,
    stats: StepFile | None,
) -> int:
    """:func:`run` with options that fit together."""
    begin, here = time.perf_counter(), usable_memory()
    training = read_training(options)
    dataset, beside = training
    check_numbers(options, dataset)
    n_rows = dataset.X.shape[0]
    label_range = parse_range(options.labels, dataset.n_labels)
    _report.describe_data(dataset)
    test = read_test(options, training)
    with of_file(options.train):
        data = _training.prepare(dataset, options.transform, beside)
    del training, dataset  # the features before the transforms
    shape = shape_of(data.X, data.Y)
    if not options.cluster.flag():
        check_least(options, shape, here)
    _print_plan(options, trainer.threads, as_trained(data.X, shape), here)
    test = transformed_test(options, test, data.transforms)
    reading = time.perf_counter() - begin
    shares = [] if options.cluster.flag() else node_shares(options.numa, trainer.threads)
    if shares:
        _report.print_field("numa", _report.describe_shares(shares))
    source = TrainingFiles.of(options, data.transforms) if options.workers_read else None
    with options.cluster.opened(trainer.threads, source) as cluster:
        outcome = _training.train_to_directory(
            data,
            trainer,
            options.model,
            label_range=label_range,
            shard_size=options.shard_size,
            resume=options.resume,
            weighting=weights,
            balanced=options.class_weight != "none",
            deadline=deadline,
            shares=shares,
            cv=None if options.calibration == "none" else options.cv,
            cluster=cluster,
            stats=stats,
        )
    _report.warn_of_labels(outcome, options.dtype)
    model = LinearModel.load(options.model, partial=not outcome.complete)
    seconds = {"reading": reading, "total": time.perf_counter() - begin}
    if outcome.calibration_seconds:
        seconds["calibration"] = outcome.calibration_seconds
    write_run_file(options.model, "train", options, outcome, seconds, shares)
    _report.print_training(outcome, model, n_rows)
    if test is not None and outcome.complete:
        labels = _training.best_labels(model, test.X, max(_report.TEST_K), trainer.threads)
        _report.print_test(test.y, labels, f", labels {options.labels} only" if options.labels else "")
    return 0 if outcome.complete else TIMED_OUT
