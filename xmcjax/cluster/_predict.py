"""Prediction of many rows on a Dask cluster, where every worker maps the model into memory."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from xmcjax import __version__
from xmcjax._arguments import flag, whole_number
from xmcjax._links import likelihood_of
from xmcjax._row_groups import groups_of
from xmcjax.cluster._clients import check_may_wait
from xmcjax.cluster._dispatch import Dispatcher, Refused
from xmcjax.cluster._errors import ClusterError
from xmcjax.cluster._kept import Kept
from xmcjax.models import LinearModel, Predictor, checked_rows

if TYPE_CHECKING:
    from distributed import Client

# A task has at most _ROWS rows, and at most _BYTES bytes unless a single row has more: Dask warns at 10 MB.
_ROWS, _BYTES = 4096, 8_000_000


@dataclasses.dataclass(frozen=True)
class _Run:
    """What every task of a prediction has in common.

    Attributes:
        name: of the run.
        version: of the client's xmcjax.
        directory: of the model, which every worker must be able to read.
        sha256: of the model's manifest.
        k: labels per row.
        probabilities: whether to give probabilities in place of scores.
    """

    name: str
    version: str
    directory: Path
    sha256: str
    k: int
    probabilities: bool


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Some rows.

    Attributes:
        number: of the piece.
        first: number of the first row, counted over all pieces.
        X: features, after the transforms of the model.
    """

    number: int
    first: int
    X: Any

    def __str__(self) -> str:
        return f"rows {self.first} to {self.first + self.X.shape[0] - 1}"


def predict_on_cluster(
    client: Client,
    directory: str | Path,
    pieces: Iterable[Any],
    k: int,
    *,
    probabilities: bool = False,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The k best labels of rows, as :meth:`xmcjax.models.Predictor.predict_topk` gives them.

    Workers take some rows at a time and open the model in its directory, which all of them must be able to
    read. Workers that die are handled as in :func:`train_on_cluster`.

    Args:
        client: a ``distributed.Client``.
        directory: of a linear model.
        pieces: features after the model's transforms, some rows at a time, [n_i, d]; they are asked for as
            they are needed.
        k, probabilities: as in :meth:`xmcjax.models.Predictor.predict_topk`.

    Yields:
        ``(labels, scores)`` of consecutive rows.

    Raises:
        ClusterError: the cluster cannot go on; a worker sees another model in that directory, or none.
        ModelError, TypeError, ValueError: as :meth:`xmcjax.models.Predictor.predict_topk`; ValueError also
            for a call on the thread of the client's event loop, which ``asyncio.to_thread`` avoids, or in a
            task that holds its thread, which ``distributed.worker_client()`` avoids.

    Example:
        >>> import tempfile
        >>> from xmcjax import OneVsAllClassifier
        >>> from xmcjax.cluster import local_cluster, predict_on_cluster
        >>> X = np.eye(4, dtype=np.float32)
        >>> with tempfile.TemporaryDirectory() as folder, local_cluster(1) as client:
        ...     OneVsAllClassifier().fit(X, [0, 1, 2, 3]).save(f"{folder}/model")
        ...     found = predict_on_cluster(client, f"{folder}/model", (X[:3], X[3:]), k=2)
        ...     [labels[:, 0].tolist() for labels, scores in found]
        [[0, 1, 2], [3]]
    """
    check_may_wait(client)
    directory = Path(directory).absolute()
    model = LinearModel.load(directory, verify="size")
    if flag("probabilities", probabilities):
        likelihood_of(model.meta)
    name = f"xmcjax-{secrets.token_hex(6)}"
    run = _Run(name, __version__, directory, model.manifest_sha256, whole_number("k", k, 1), probabilities)
    dispatcher: Dispatcher[_Rows] = Dispatcher(client, _predict_rows, run, None, _nothing)
    dispatcher.workers.wait()
    waiting: dict[int, Any] = {}
    following = 0
    for rows, answer in dispatcher.results(_rows_of(pieces, model)):
        waiting[rows.number] = answer
        while following in waiting:
            yield waiting.pop(following)
            following += 1
        dispatcher.held = len(waiting)


def _nothing(_: Any) -> None:
    """Discards a result that came a second time; nothing has to be removed."""


def _rows_of(pieces: Iterable[Any], model: LinearModel) -> Iterator[_Rows]:
    number = begun = 0
    for piece in pieces:
        X = checked_rows(piece, model.n_features, model.dtype)
        entry = X.data.itemsize + X.indices.itemsize if sp.issparse(X) else X.itemsize
        for first, last in groups_of(X, _BYTES // entry):
            for row in range(first, last, _ROWS):
                yield _Rows(number, begun + row, X[row : min(row + _ROWS, last)])
                number += 1
        begun += X.shape[0]


_predictors: Kept[tuple[Path, str], Predictor] = Kept(lasting=2, resting=4)


def _opened(run: _Run) -> Predictor:
    """The model of a run.

    Raises:
        ClusterError: another model is in the directory, or none.
    """
    if not run.directory.is_dir():
        raise ClusterError(f"{run.directory}: expected the model that is to predict, found no directory")
    model = LinearModel.load(run.directory)
    if model.manifest_sha256 != run.sha256:
        raise ClusterError(f"{run.directory}: expected the model of the client, found another one")
    return Predictor(model, n_jobs=1)


def _predict_rows(run: _Run, rows: _Rows) -> tuple[np.ndarray, np.ndarray] | Refused:
    """Predicts some rows, in a worker."""
    if run.version != __version__:
        return Refused(
            f"expected xmcjax {run.version} as where the prediction was started, found {__version__}"
        )
    with _predictors.using((run.directory, run.sha256), lambda: _opened(run)) as predictor:
        assert predictor is not None
        # copied, because arrays from the network may be unaligned
        return predictor.predict_topk(rows.X.copy(), run.k, probabilities=run.probabilities)
