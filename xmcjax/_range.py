"""Whether numbers are those of a dtype: beyond its range they would turn into 0 or infinity."""

from __future__ import annotations

import numpy as np


def check_range(what: str, values, dtype) -> None:
    """Raises ValueError, `what` and the limits, where a value is not a positive normal number of `dtype`."""
    values, low, high = np.asarray(values), np.finfo(dtype).tiny, np.finfo(dtype).max
    outside = values[~((values >= low) & (values <= high))]
    if outside.size:
        raise ValueError(
            f"{what} from {low:.3g} to {high:.3g}, the range of {np.dtype(dtype)}, got {outside.flat[0]}"
        )
