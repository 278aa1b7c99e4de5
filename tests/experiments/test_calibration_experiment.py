"""The experiment on calibration runs at a small size and says what it measured."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import calibration
from tests.support.experiments import assert_drawn

pytestmark = pytest.mark.usefixtures("data_folder")


def test_small(tmp_path):
    result = calibration.run(calibration.Options(small=True, out=tmp_path).chosen())
    (run,) = result["runs"]
    assert run["rows"] == 2_000 and run["labels"] == 26
    for which in ("all", "best"):
        before, after = (run["error"][f"{which} {when}"] for when in ("before", "after"))
        assert after < before / 2
    assert run["swapped_pairs"] == run["other_weights"] == run["other_predictions"] == 0
    assert run["slopes_at_most_0"] == 0 and run["peak_mb"] >= run["plain_peak_mb"] >= run["loaded_mb"]
    assert "| letter | OneVsAllClassifier |" in calibration.markdown(result)
    assert_drawn(tmp_path / "calibration.png", lambda axes: calibration.draw(result, axes))


def test_the_error_is_that_of_its_definition():
    bins = calibration.Bins()
    bins.add(np.array([0.01, 0.02, 0.98, 1.0]), np.array([0, 1, 1, 1]))
    # two pairs in the first bin, mean 0.015 and share 0.5; two in the last, mean 0.99 and share 1
    assert bins.error == pytest.approx((2 * 0.485 + 2 * 0.01) / 4)
    assert bins.known()["count"] == [2, 2]
