"""Arguments are refused in the words of one process, and before anything is sent."""

import asyncio
import contextlib
import importlib
import re
from collections.abc import Generator
from typing import Any

import distributed
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.lanes import small
from xmcjax import OneVsAllClassifier
from xmcjax.cluster import (
    ClusterError,
    connected,
    local_cluster,
    predict_on_cluster,
    run_on_mesh,
    train_on_cluster,
)
from xmcjax.inits import INITS, Pretrained
from xmcjax.lanes import LabelWeights, OneVsAll, train_one_vs_all
from xmcjax.losses import MarginLoss
from xmcjax.models import Predictor


class NotConvex(MarginLoss):
    def value(self, m):
        return 2 - jnp.sin(m)


X, Y = small()
NAN = X.copy()
NAN.data[3] = np.nan
WRONG = {
    "fewer rows": (X[:50], Y, {}, "expected as many rows in Y as in X, 50, got 200"),
    "no rows": (X[:0], Y[:0], {}, "expected at least one row, got none"),
    "a value": (NAN, Y, {}, "expected finite features, found NaN in row"),
    "classes": (X, np.arange(200) % 4, {}, r"Y: expected a label matrix \[n, L\], got 1"),
    "a label": (X, np.full((200, 3), np.nan), {}, "Y: expected finite entries, found nan in row 0, label 0"),
    "labels": (X, Y, dict(labels=[0, 0]), "expected different labels .* a repeated one or one outside"),
    "label weights": (
        X,
        Y,
        dict(label_weights=LabelWeights(np.ones(5), np.ones(5))),
        "expected weights of 30 labels, got 5",
    ),
    "weights": (X, Y, dict(sample_weight=np.ones(5)), r"expected sample_weight of shape \(200,\), got \(5,"),
    "C": (X, Y, dict(sample_weight=np.full(200, 1e39)), "expected C times the sample weights from"),
    "a loss": (X, Y, dict(options=OneVsAll(loss=NotConvex())), ".*convex"),
}


@pytest.fixture
def unsent(monkeypatch):
    """A cluster that data cannot be sent to."""
    monkeypatch.setattr(importlib.import_module("xmcjax.cluster._train"), "Supply", None)
    monkeypatch.setattr(importlib.import_module("xmcjax.cluster._dispatch").Dispatcher, "_submit", None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("of") / "m"
    with pytest.warns(UserWarning, match="have no positive rows"):
        OneVsAllClassifier().fit(X, Y).save(folder)
    return folder


@pytest.mark.usefixtures("unsent")
@pytest.mark.parametrize("case", WRONG)
def test_what_one_process_refuses(client, case):
    X, Y, more, said = WRONG[case]
    more = {"options": OneVsAll(), **more}
    with pytest.raises(ValueError, match=f"^{said}") as alone:
        train_one_vs_all(X, Y, sink=[].append, **more)
    with pytest.raises(ValueError, match=f"^{re.escape(str(alone.value))}$"):
        train_on_cluster(client, X, Y, out=[].append, **more)


@pytest.mark.usefixtures("unsent")
def test_starts_that_do_not_fit(client, folder):
    def refused(X, init, kind, said):
        with pytest.raises(kind, match=said):
            train_on_cluster(client, X, Y, OneVsAll(init=init), [].append)

    refused(X, INITS["ova_primal_pp"](), ValueError, "init ova_primal_pp starts labels from the solutions of")
    said = "m: expected a model of 90 features and 30 labels, found 100 and 30"
    refused(X[:, :90], Pretrained(folder), ValueError, said)
    refused(X, Pretrained(folder / "x"), FileNotFoundError, "x: expected a model, found no")
    refused(X, Pretrained(), ValueError, "init 'pretrained' needs the directory of a model")


@pytest.mark.usefixtures("unsent")
@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [
        (X[:, :3], {}, "X: expected 100 features as in the model, found shape"),
        (
            NAN,
            {},
            "X: expected finite features, found nan",
        ),
        (np.ones(100), {}, "X: expected 100 features as in the model, found shape"),
        (X, dict(probabilities=True), "probabilities: expected a model whose loss is a likelihood"),
    ],
)
def test_rows_that_a_predictor_refuses(client, folder, rows, more, said):
    with pytest.raises(ValueError, match=f"^{said}") as alone:
        Predictor(folder).predict_topk(rows, 2, **more)
    with pytest.raises(ValueError, match=f"^{re.escape(str(alone.value))}$"):
        list(predict_on_cluster(client, folder, [rows], 2, **more))


def test_a_client_that_is_closed(client, folder):
    said = "^the client of the cluster was closed before the run ended$"
    pieces = (X[first : first + 1] for first in range(200))
    with connected(client.scheduler.address) as other:
        found = predict_on_cluster(other, folder, pieces, 2)
        left = predict_on_cluster(other, folder, [X], 2)
        next(found)
        next(left)
    with pytest.raises(ClusterError, match=said):
        list(found)
    assert isinstance(left, Generator)
    left.close()
    with pytest.raises(ClusterError, match=said):
        list(predict_on_cluster(other, folder, [X], 2))
    with pytest.raises(ClusterError, match=said):
        train_on_cluster(other, X, Y, OneVsAll(), [].append)
    with connected(client.scheduler.address) as other, pytest.raises(ClusterError, match=said):
        train_on_cluster(other, X, Y, OneVsAll(), lambda _: other.close(), shard_size=1)


def test_rows_without_weight_are_no_matter(client):
    results = [], []
    weight = np.where(np.arange(200) % 3, 1.0, 0.0)
    train_one_vs_all(X, Y, OneVsAll(), results[0].append, sample_weight=weight)
    train_on_cluster(client, X, Y, OneVsAll(), results[1].append, sample_weight=weight)
    values = [{r.label: r.value for r in found} for found in results]
    np.testing.assert_equal(values[1], values[0])


@pytest.mark.parametrize("sparse", [True, False])
def test_rows_are_sent_some_bytes_at_a_time(client, folder, sparse, monkeypatch):
    """A row that has more goes alone; rows without entries, of which there are nine, go together."""
    rows = sp.vstack([X, sp.csr_array((9, 100), dtype=X.dtype), X[:1]], format="csr")
    rows = rows if sparse else rows.toarray()
    expected = Predictor(folder).predict_topk(rows, 3)
    tasks = {}
    for size in (1, 8000, 10**9):
        monkeypatch.setattr(importlib.import_module("xmcjax.cluster._predict"), "_BYTES", size)
        found = list(predict_on_cluster(client, folder, [rows], 3))
        tasks[size] = len(found)
        labels, scores = (np.concatenate(one) for one in zip(*found, strict=True))
        np.testing.assert_array_equal(labels, expected[0])
        np.testing.assert_allclose(scores, expected[1], rtol=0, atol=1e-6)  # dense products round otherwise
    assert tasks[1] == (202 if sparse else 210) and 1 < tasks[8000] < 40 and tasks[10**9] == 1


def test_a_client_on_the_thread_of_its_event_loop(client, folder):
    calls = [
        lambda other: train_on_cluster(other, X, Y, OneVsAll(), [].append),
        lambda other: list(predict_on_cluster(other, folder, [X], 2)),
        lambda other: run_on_mesh(other, len),
    ]

    async def main():
        more: Any = dict(asynchronous=True, set_as_default=False)
        async with distributed.Client(client.scheduler.address, **more) as other:
            for call in calls:
                said = "^client: expected a call from another thread, .*, found that of its event loop$"
                with pytest.raises(ValueError, match=said):
                    call(other)
            assert not other.futures
            return await asyncio.to_thread(calls[1], other)

    ((labels, _),) = asyncio.run(main())
    np.testing.assert_array_equal(labels, Predictor(folder).predict_topk(X, 2)[0])


def test_a_task_that_holds_its_thread_is_refused_and_one_of_another_cluster_is_not(client, folder):
    def called(path, address, how):  # within a function, so that it is sent whole
        with contextlib.ExitStack() as stack:
            if how == "get_client":
                own = distributed.get_client()
            elif how == "worker_client":
                own = stack.enter_context(distributed.worker_client())
            else:
                own = stack.enter_context(connected(address))
            calls = (
                lambda: next(predict_on_cluster(own, path, [X[:3]], 1))[0].shape,
                lambda: train_on_cluster(own, X, Y, OneVsAll(), [].append).statuses,
                lambda: run_on_mesh(own, lambda mesh: mesh.size),
            )
            said = []
            for call in calls if how == "get_client" else calls[:1]:
                try:
                    said.append(call())
                except ValueError as error:
                    said.append(str(error))
            return said

    refused = (
        "client: expected that of distributed.worker_client() in a task, found a task that holds its thread"
    )
    given = str(folder), client.scheduler.address
    found = client.submit(called, *given, "get_client").result(timeout=60)
    assert found == [f"{refused} while it waits for others"] * 3
    assert client.submit(called, *given, "worker_client").result(timeout=60) == [(3, 1)]
    with local_cluster(1) as other:
        assert other.submit(called, *given, "connected").result(timeout=60) == [(3, 1)]
