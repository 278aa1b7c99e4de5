"""The calibration of one-vs-all models: ``xmcjax train --calibration``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xmcjax.lanes import LabelWeights, OneVsAll, Weighting, balanced_weights, calibrate_one_vs_all, precision
from xmcjax.models import Calibrator, LinearModel, write_calibration

if TYPE_CHECKING:
    from xmcjax.cli._training import TrainingData


def check_calibration(data: TrainingData, cv: int, labels: np.ndarray) -> None:
    """Checks, before a model is trained, that its labels can be calibrated.

    Raises:
        ValueError: more folds than rows, or no label with rows in two folds; it names the flag.
    """
    try:
        Calibrator.folds(data.Y, cv, labels)
    except ValueError as error:
        part = f"labels {labels[0]} to {labels[-1]}"
        more = f"{part}: give --labels a range with labels of more rows, whose calibration these share"
        # the message begins with the name of the option
        raise ValueError(f"--{error}".replace("the labels to calibrate", more)) from error


def weights_of(Y, weighting: Weighting | None, balanced: bool) -> LabelWeights | None:
    """Weights of the losses by label: balanced weights (or ones) times those of a weighting."""
    of_labels = balanced_weights(Y) if balanced else None
    return of_labels if weighting is None else weighting.weights(Y).times(of_labels)


def calibrate(
    data: TrainingData,
    options: OneVsAll,
    directory: Path,
    cv: int,
    weighting: Weighting | None,
    balanced: bool,
    deadline: float | None,
) -> bool:
    """Calibrates a complete model that has no calibration yet, and stores it.

    Args:
        data, options, directory, weighting, balanced: as for the training of the model.
        cv: the number of folds.
        deadline: a time of ``time.monotonic``; after it no label is begun, and nothing is stored. None for
            no deadline.

    Returns:
        Whether the model has a calibration.
    """
    from tqdm import tqdm

    model = LinearModel.load(directory)
    if model.calibrated:
        return True
    first, last = model.label_range

    total = cv * (last - first)
    with (
        tqdm(total=total, unit="label", desc="calibration", disable=None, file=sys.stderr) as bar,
        precision(data.X.dtype),
    ):
        found = calibrate_one_vs_all(
            data.X,
            data.Y,
            options,
            cv=cv,
            labels=np.arange(first, last),
            label_weights=lambda Y, _: weights_of(Y, weighting, balanced),
            may_go_on=None if deadline is None else lambda: time.monotonic() < deadline,
            done=bar.update,
        )
    if found is None:
        return False
    write_calibration(directory, found.at(np.arange(first, last)))
    return True
