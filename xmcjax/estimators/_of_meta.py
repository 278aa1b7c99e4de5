"""What a one-vs-all model of the command line says of its training, as arguments of the classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xmcjax._links import CALIBRATED


def parameters_of(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of :class:`OneVsAllClassifier` by name, of the meta data that ``xmcjax train`` writes."""
    from xmcjax.inits import INITS
    from xmcjax.losses import MARGIN_LOSSES
    from xmcjax.penalties import PENALTIES

    losses = {name: type(loss) for name, loss in MARGIN_LOSSES.items()}
    weighting = meta["weighting"] or {}
    # meta data keep the hash of a pretrained start, not its directory
    init = meta["init"] if meta["init"]["name"] != "pretrained" else {"name": "mean_separating"}
    return dict(
        loss=_entry(losses, meta["loss"]),
        penalty=_entry(PENALTIES, meta["penalty"]),
        init=_entry(INITS, init),
        C=meta["C"],
        tol=meta["eps"],
        # earlier versions took both, and clip was without effect
        clip=meta["clip"] if meta["sparsify"] is None else None,
        sparsify_rise=meta["sparsify"],
        weighting=weighting.get("name"),
        propensities=(weighting["a"], weighting["b"]) if weighting else "default",
        fit_intercept=meta["bias"] != "none",
        regularise_intercept=meta["bias"] != "free",
        max_iter=meta["max_iter"],
        class_weight=meta.get("class_weight"),
        calibration=meta.get(CALIBRATED, {}).get("method"),
        cv=meta.get(CALIBRATED, {}).get("cv", 5),
    )


def _entry(table, described):
    """An argument: the name of an entry of a table, or where its fields are not the defaults, the object."""
    name, fields = described["name"], {key: value for key, value in described.items() if key != "name"}
    made = table[name](**fields)
    return name if made == table[name]() else made
