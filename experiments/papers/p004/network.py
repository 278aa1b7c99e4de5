"""Top-k losses as the head of a small network, against softmax.

    python -m experiments.papers.p004.network [--small|--full] [--sets ...] [--losses ...] [--out results]

A network of one hidden layer, relu(x V + a) W + b, with x less its mean where features are dense, is
trained by Adam (optax) on minibatches, once for every loss, learning rate and seed of the start and of the
batches. Learning rate and end are those with the best top-1, or top-5, accuracy of the validation part, a
seed each. The table has mean and standard deviation of the accuracy on the test part over the seeds,
which are trained side by side.

What a loss has come to is kept in p004_network.cells.json.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from experiments import _data, _report
from experiments._cells import Cells
from xmcjax import losses

NAME = "p004_network"
K = 5
TOPS = (1, 5)
CHECKS = 20  # how often the accuracy is computed during training

LOSSES = {
    "softmax": losses.softmax_cross_entropy,
    "Crammer-Singer": losses.crammer_singer,
    "top-5 hinge, alpha": functools.partial(losses.topk_hinge, k=K, variant="alpha"),
    "top-5 hinge, beta": functools.partial(losses.topk_hinge, k=K, variant="beta"),
    "smooth top-5 hinge, alpha": functools.partial(losses.smooth_topk_hinge, k=K, variant="alpha"),
    "smooth top-5 hinge, beta": functools.partial(losses.smooth_topk_hinge, k=K, variant="beta"),
    "top-5 entropy": functools.partial(losses.topk_entropy, k=K),
    "truncated top-5 entropy": functools.partial(losses.truncated_topk_entropy, k=K),
}


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """Top-k losses as the head of a small network, against softmax.

    Attributes:
        sets: of experiments._data.CLASS_SETS; empty for the silhouettes.
        losses: of LOSSES; empty for three of them.
        hidden: width of the hidden layer.
        steps: of every training.
        batch: rows of a minibatch.
        rates: learning rates; empty for 3e-4, 1e-3.
        seeds: how many.
        small: the digits of scikit-learn, a narrow layer, few steps.
        full: sets, losses and rates that are not given are all of them.
    """

    sets: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    hidden: int = 64
    steps: int = 4_000
    batch: int = 50
    rates: tuple[float, ...] = ()
    seeds: int = 3

    def chosen(self) -> Options:
        """With the sizes that --small, --full or neither stands for."""
        sizes = {
            "sets": ("caltech101_silhouettes",),
            "losses": ("softmax", "top-5 hinge, alpha", "top-5 entropy"),
            "rates": (3e-4, 1e-3),
        }
        if self.full:
            sets, rates = ("caltech101_silhouettes", "clinc150"), (3e-4, 1e-3, 3e-3)
            sizes = {"sets": sets, "losses": tuple(LOSSES), "rates": rates}
        # values that were given as flags stay
        options = dataclasses.replace(
            self, **{name: getattr(self, name) or size for name, size in sizes.items()}
        )
        if self.small:
            options = dataclasses.replace(
                options, sets=self.sets or ("digits",), hidden=16, steps=100, seeds=2
            )
        return options


def prepared(data: _data.ClassSplit) -> list:
    """(X, y) of training, validation and test. Dense features are centred: with positive features all hinge
    losses push the hidden layer in one direction at the start, and its units die."""
    Xs = data.X, data.X_valid, data.X_test
    if isinstance(data.X, np.ndarray):
        Xs = [X - data.X.mean(axis=0) for X in Xs]
    ys = data.y, data.y_valid, data.y_test
    return [(_data.padded(X), y.astype(np.int32)) for X, y in zip(Xs, ys, strict=True)]


def init(rng: np.random.Generator, d: int, hidden: int, m: int, norm2: float) -> dict[str, np.ndarray]:
    """V of variance 2/norm2, where norm2 is the mean of ‖x‖², W of variance 1/hidden, biases 0."""
    arrays = {
        "V": rng.normal(scale=np.sqrt(2 / norm2), size=(d, hidden)),
        "a": np.zeros(hidden),
        "W": rng.normal(scale=np.sqrt(1 / hidden), size=(hidden, m)),
        "b": np.zeros(m),
    }
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def batches(rng: np.random.Generator, n: int, steps: int, batch: int) -> np.ndarray:
    """Rows of the steps, [CHECKS, steps / CHECKS, batch], one random order of all rows after the other."""
    wanted = steps * batch
    rows = np.concatenate([rng.permutation(n) for _ in range(-(-wanted // n))])
    return rows[:wanted].reshape(CHECKS, steps // CHECKS, batch).astype(np.int32)


def scores(parameters, X) -> jax.Array:
    """relu(x V + a) W + b; X is (indices or None, values) of :func:`experiments._data.padded`."""
    indices, values = X
    if indices is None:
        hidden = values @ parameters["V"]
    else:
        hidden = jnp.einsum("nr,nrh->nh", values, parameters["V"][indices])
    return jax.nn.relu(hidden + parameters["a"]) @ parameters["W"] + parameters["b"]


def accuracies(parameters, X, y) -> jax.Array:
    """Accuracy at TOPS in per cent; classes with equal scores count as ranked before the right one."""
    Z = scores(parameters, X)
    rank = jnp.sum(jnp.take_along_axis(Z, y[:, None], axis=1) <= Z, axis=1)
    return jnp.stack([100 * jnp.mean((rank <= top).astype(jnp.float32)) for top in TOPS])


@functools.partial(jax.jit, static_argnames="loss")
@functools.partial(jax.vmap, in_axes=(None, 0, 0, None, None))
def train(parts, parameters, rows, rate, loss: str):
    """Accuracy on validation and test part at CHECKS times, each [seeds, CHECKS, 2].

    Args:
        parts: (X, y) of training, validation and test.
        parameters: of :func:`init`, with a first axis for the seeds.
        rows: of :func:`batches`, with a first axis for the seeds.
        rate: of Adam.
        loss: of LOSSES.
    """
    import optax

    (X, y), *others = parts
    optimiser = optax.adam(rate)

    def objective(parameters, rows):
        Z = scores(parameters, jax.tree.map(lambda part: part[rows], X))
        return jnp.mean(LOSSES[loss](Z, y[rows]))

    def step(carry, rows):
        parameters, state = carry
        updates, state = optimiser.update(jax.grad(objective)(parameters, rows), state, parameters)
        return (optax.apply_updates(parameters, updates), state), None

    def steps(carry, rows):
        carry, _ = jax.lax.scan(step, carry, rows)
        return carry, [accuracies(carry[0], *part) for part in others]

    return jax.lax.scan(steps, (parameters, optimiser.init(parameters)), rows)[1]


def run_loss(parts, d: int, m: int, loss: str, options: Options) -> dict:
    """Test accuracies at the learning rate and step that the validation part chooses."""
    norm2 = float(np.square(parts[0][0][1]).sum(axis=1).mean())
    starts, rows = [], []
    for seed in range(options.seeds):
        rng = np.random.default_rng(seed)
        starts.append(init(rng, d, options.hidden, m, norm2))
        rows.append(batches(rng, len(parts[0][1]), options.steps, options.batch))
    parameters = {name: np.stack([start[name] for start in starts]) for name in starts[0]}
    curves = [train(parts, parameters, np.stack(rows), np.float32(rate), loss) for rate in options.rates]
    # [seeds, rates, CHECKS, 2]
    valid, test = (np.stack([np.asarray(curve[i]) for curve in curves], axis=1) for i in range(2))
    found = {}
    for i, top in enumerate(TOPS):
        flat = valid[..., i].reshape(options.seeds, -1)
        place = flat.argmax(axis=1)
        values = test[..., i].reshape(options.seeds, -1)[np.arange(options.seeds), place]
        found[f"top-{top}"] = {
            "test": values.tolist(),
            "mean": float(values.mean()),
            "sd": float(values.std(ddof=1)) if options.seeds > 1 else 0.0,
            "rates": [options.rates[p // CHECKS] for p in place],
            "steps": [int(p % CHECKS + 1) * options.steps // CHECKS for p in place],
        }
    return found


def run(options: Options) -> dict:
    """Accuracies by set and loss; the results are written after every loss."""
    if options.steps % CHECKS:
        raise ValueError(f"expected a multiple of {CHECKS} steps, got {options.steps}")
    for loss in options.losses:
        if loss not in LOSSES:
            raise ValueError(f"expected losses of {', '.join(LOSSES)}, got {loss!r}")
    cells = Cells(options, NAME, listed=("sets", "losses"))
    kept = ("hidden", "steps", "batch", "rates", "seeds")
    result = {"options": {name: getattr(options, name) for name in kept}, "k": K, "sets": {}}
    for name in options.sets:
        result["sets"][name] = {}
        for loss in options.losses:
            work = functools.partial(trained, name, loss, options)
            result["sets"][name][loss] = cells.get(work, set=name, loss=loss)
            result["made"] = cells.made()
            _report.write(options.out, NAME, result, markdown(result))
    return result


def trained(name: str, loss: str, options: Options) -> dict:
    """:func:`run_loss` on a set."""
    data = _data.load_classes(name)
    return run_loss(prepared(data), data.X.shape[1], int(data.y.max()) + 1, loss, options)


def markdown(result: dict) -> str:
    """Mean ± standard deviation of the test accuracies, one table."""
    options = result["options"]
    rates = ", ".join(f"{rate:g}" for rate in options["rates"])
    text = (
        f"hidden layer of {options['hidden']}, {options['steps']} steps of {options['batch']} rows, "
        f"Adam with rate {rates}; mean ± standard deviation over "
        f"{options['seeds']} seeds, per cent of the test part\n\n"
    )
    header = ["loss"] + [f"{name}, top-{top}" for name in result["sets"] for top in TOPS]
    rows = []
    for loss in LOSSES:
        cells = [found.get(loss) for found in result["sets"].values()]
        if any(cells):
            numbers = [cell and cell[f"top-{top}"] for cell in cells for top in TOPS]
            rows.append([loss, *(f"{c['mean']:.2f} ± {c['sd']:.2f}" if c else "" for c in numbers)])
    return text + _report.markdown_table(header, rows)


def main() -> None:
    """Reads the options, runs, writes the results."""
    import tyro

    options = tyro.cli(Options, description=__doc__).chosen()
    print("\n" + markdown(run(options)) + f"\nwritten to {options.out}")


if __name__ == "__main__":
    main()
