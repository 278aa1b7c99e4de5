# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Top-k losses in a flax and in an equinox network
#
# Where a user sees five guesses, a network should be trained for five guesses. The losses of
# `xmcjax.losses` are functions of scores and labels, and go into any JAX model in one line. Here they train
# the same small network twice, in [flax](https://flax.readthedocs.io) and in
# [equinox](https://docs.kidger.site/equinox/), with [optax](https://optax.readthedocs.io).

# %% [markdown]
# The next line installs xmcjax and leaves jax, jaxlib and numpy at the versions that are installed.

# %% tags=["skip-execution"]
from importlib.metadata import distributions

kept = [d.name + "==" + d.version for d in distributions() if d.name in ("jax", "jaxlib", "numpy")]
# %pip install -q "xmcjax[plots]" flax equinox {" ".join(kept)}

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from matplotlib import pyplot as plt
from xmcjax import datasets, losses

# %% [markdown]
# ## The data: 60 classes in a tree, near each other

# %%
made = datasets.make_hierarchy(6_000, 20, (6, 10), spread=0.45, seed=0)
X, y = jnp.asarray(made.X), jnp.asarray(made.y - 1)
train, test = slice(0, 4_000), slice(4_000, None)
CLASSES, STEPS, BATCH = 60, 600, 200


def loss(scores, y):
    """The change of a line: the mean of a top-5 loss in place of the softmax."""
    return jnp.mean(losses.topk_entropy(scores, y, k=5))


def in_top(scores, y):
    """Of each k from 1 to 10: the share of the rows whose class is among the k best."""
    rank = jnp.sum(scores > jnp.take_along_axis(scores, y[:, None], axis=1), axis=1)
    return [float(jnp.mean(rank < k)) for k in range(1, 11)]


def batches(seed):
    """Random rows of the training part."""
    return np.random.default_rng(seed).integers(0, 4_000, (STEPS, BATCH))


# %% [markdown]
# ## flax
#
# The model is a module with `setup` or `@nn.compact`; its parameters are a tree that optax updates.


# %%
class Network(nn.Module):
    """One hidden layer."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(CLASSES)(nn.relu(nn.Dense(64)(x)))


def train_flax(loss):
    """The scores of the test part."""
    network, optimiser = Network(), optax.adam(3e-3)
    parameters = network.init(jax.random.key(0), X[:1])
    state = optimiser.init(parameters)

    @jax.jit
    def step(parameters, state, x, y):
        gradient = jax.grad(lambda p: loss(network.apply(p, x), y))(parameters)
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(parameters, updates), state

    for rows in batches(0):
        parameters, state = step(parameters, state, X[rows], y[rows])
    return network.apply(parameters, X[test])


# %% [markdown]
# ## equinox
#
# The model itself is the tree of parameters.


# %%
def train_equinox(loss):
    """The scores of the test part."""
    model, optimiser = eqx.nn.MLP(20, CLASSES, 64, 1, key=jax.random.key(0)), optax.adam(3e-3)
    state = optimiser.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def step(model, state, x, y):
        gradient = eqx.filter_grad(lambda m: loss(jax.vmap(m)(x), y))(model)
        updates, state = optimiser.update(gradient, state)
        return eqx.apply_updates(model, updates), state

    for rows in batches(0):
        model, state = step(model, state, X[rows], y[rows])
    return jax.vmap(model)(X[test])


# %% [markdown]
# ## Both losses in both
#
# The network stays as it is: only the line with the loss changes. On easy data such as these the two losses
# differ little; where many classes look alike, the top-5 loss spends nothing on telling them apart.


# %%
def softmax(scores, y):
    """The usual loss."""
    return jnp.mean(losses.softmax_cross_entropy(scores, y))


found = {}
for framework, train_with in (("flax", train_flax), ("equinox", train_equinox)):
    for title, chosen in (("softmax", softmax), ("top-5 entropy", loss)):
        found[framework, title] = in_top(train_with(chosen), y[test])
        top = found[framework, title]
        print(f"{framework}, {title}: in the best one {top[0]:.1%}, in the best five {top[4]:.1%}")

# %% [markdown]
# ## The picture

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
for ax, framework in zip(axes, ("flax", "equinox"), strict=True):
    for title in ("softmax", "top-5 entropy"):
        ax.plot(range(1, 11), found[framework, title], "o-", label=title)
    ax.axvline(5, color="grey", linewidth=1)
    ax.set(title=framework, xlabel="guesses")
axes[0].set(ylabel="share of rows with the class among them")
axes[0].legend()
plt.show()
