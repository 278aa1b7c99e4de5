"""Peak memory of training against the number of labels, on the same features.

    python -m experiments.bench.memory [--small|--full] [--out results]

Each number of labels is trained into a model directory by a process of its own; its peak resident
memory must not grow with the labels, beyond the label matrix itself. Writes memory.json and memory.md.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile

import scipy.sparse as sp

from experiments import _report
from experiments.bench import _worker


@dataclasses.dataclass(frozen=True)
class Options(
    _report.Sized,
    small=dict(rows=2_000, features=5_000, labels=(200, 2_000)),
    full=dict(rows=20_000, features=20_000, labels=(2_000, 20_000)),
):
    """Peak memory against the number of labels.

    Attributes:
        rows, features: of the synthetic power-law set.
        labels: numbers of labels, each trained on its own.
        small: 2,000 rows; 200 and 2,000 labels.
        full: 20,000 rows; 2,000 and 20,000 labels.
    """

    rows: int = 2_000
    features: int = 5_000
    labels: tuple[int, ...] = (200, 2_000)


def train(folder: str, labels: int) -> dict:
    """Trains the first labels of the set in `folder` into a model there; in a process of its own."""
    from xmcjax.lanes import OneVsAll, train_one_vs_all
    from xmcjax.models import ShardWriter

    X = sp.load_npz(f"{folder}/X.npz")
    Y = sp.load_npz(f"{folder}/Y{labels}.npz")
    meta = {"n_features": X.shape[1], "n_labels": labels, "dtype": "float32"}
    with ShardWriter(f"{folder}/model{labels}", meta) as writer:
        summary = train_one_vs_all(X, Y, OneVsAll(), lambda result: writer.add(*result[:7]))
    return {
        "labels": labels,
        "peak_mb": _worker.memory_mb(),
        "Y_mb": (Y.data.nbytes + Y.indices.nbytes + Y.indptr.nbytes) / 2**20,
        "seconds": summary.seconds,
        "statuses": {status.name: count for status, count in summary.statuses.items()},
    }


def run(options: Options) -> dict:
    """Trains every number of labels."""
    from xmcjax.data import fit_transforms, make_power_law

    with tempfile.TemporaryDirectory() as folder:
        X, Y = make_power_law(options.rows, options.features, max(options.labels), seed=0)
        X = fit_transforms("log,idf,unit", X).apply(X)
        sp.save_npz(f"{folder}/X.npz", sp.csr_matrix(X))
        runs = []
        for labels in options.labels:
            # labels spread over the whole range, so that every set has frequent and rare labels
            step = Y.shape[1] // labels
            sp.save_npz(f"{folder}/Y{labels}.npz", sp.csr_matrix(Y.tocsc()[:, ::step][:, :labels]))
            command = [sys.executable, "-m", "experiments.bench.memory", "worker", folder, str(labels)]
            done = subprocess.run(command, capture_output=True, text=True, cwd=_worker.ROOT)
            if done.returncode:
                raise RuntimeError(f"{labels} labels failed: {done.stderr.strip().splitlines()[-1:]}")
            runs.append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{labels} labels: {runs[-1]['peak_mb']:.0f} MB", flush=True)
    return {"rows": options.rows, "features": options.features, "entries": int(X.nnz), "runs": runs}


def main() -> None:
    """Reads the options, runs, writes the results."""
    import tyro

    options = tyro.cli(Options, description=__doc__).chosen()
    result = run(options)
    table = [[one["labels"], one["peak_mb"], one["Y_mb"], one["seconds"]] for one in result["runs"]]
    text = _report.markdown_table(("labels", "peak memory, MB", "label matrix, MB", "seconds"), table)
    _report.write(options.out, "memory", result, text)
    print("\n" + text + f"\nwritten to {options.out}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        print(json.dumps(train(sys.argv[2], int(sys.argv[3]))))
    else:
        main()
