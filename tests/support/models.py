"""Made-up trained labels: a function of the label alone, so that any run can redo any of them."""

import hashlib
from pathlib import Path

import numpy as np

from xmcjax.models import ShardWriter

N_FEATURES = 50
LABELS = 23
SIZE = 5  # labels per shard: 23 labels make four whole shards and one of three
META = {
    "n_features": N_FEATURES,
    "n_labels": LABELS,
    "dtype": "float32",
    "loss": "squared_hinge",
    "C": 1.0,
    "data": "0123abcd",
}


def label_result(label, dtype=np.float32):
    """Arguments of `ShardWriter.add`; every seventh label has no positives, label 4 no weights."""
    rng = np.random.default_rng(label)
    if label % 7 == 6:
        return label, np.empty(0, np.int32), np.empty(0, dtype), 0.0, 5, 0, 0
    size = 0 if label == 4 else int(rng.integers(1, 12))
    indices = np.sort(rng.choice(N_FEATURES, size, replace=False)).astype(np.int32)
    values = rng.standard_normal(size).astype(dtype)
    return label, indices, values, float(rng.standard_normal()), 1, label + 3, 5 * label


def expected_weights(dtype=np.float32):
    """(coef [L, d], intercept [L], status [L]) of the labels above."""
    coef, intercept = np.zeros((LABELS, N_FEATURES), dtype), np.zeros(LABELS, dtype)
    status = np.zeros(LABELS, np.int8)
    for label in range(LABELS):
        _, indices, values, bias, code, _, _ = label_result(label, dtype)
        coef[label, indices], intercept[label], status[label] = values, bias, code
    return coef, intercept, status


def fill(writer, labels=None, dtype=np.float32):
    """Add labels (default: all that are missing) to a writer."""
    for label in writer.missing() if labels is None else labels:
        writer.add(*label_result(int(label), dtype))


def write(directory, labels=None, dtype=np.float32, **changes):
    """A model of these labels, the directory of which is returned."""
    with ShardWriter(directory, **({"meta": META, "shard_size": SIZE} | changes)) as writer:
        fill(writer, labels, dtype)
    return directory


def contents(directory):
    """{file name: SHA-256} of everything in a directory."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(Path(directory).iterdir())}


def killed_at_once(directory):
    """What is left of a model that was to be written at once."""
    writer = ShardWriter(directory, META | {"parameters": {}}, shard_size=1, at_once=True)
    writer.add(0, [0], np.float32([1]))
    writer._lock.release()  # as the system does when a process ends
    assert contents(directory).keys() == {"manifest.json", "shard-000000.safetensors"}
