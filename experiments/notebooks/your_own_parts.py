# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own loss, and your own projection layer
#
# The parts of the library are made to be exchanged. A loss of the margin is a class with a formula; a
# projection is a function with a derivative, and so a layer of a network.

# %% [markdown]
# The next line installs xmcjax and leaves jax, jaxlib and numpy at the versions that are installed.

# %% tags=["skip-execution"]
from importlib.metadata import distributions

kept = [d.name + "==" + d.version for d in distributions() if d.name in ("jax", "jaxlib", "numpy")]
# %pip install -q "xmcjax[plots]" {" ".join(kept)}

# %%
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import make_blobs
from xmcjax import OneVsAllClassifier, losses, projections

# %% [markdown]
# ## A loss
#
# This one is log(1 + e^(s (1 − m)))/s: near the hinge for a large s, and with derivatives of every order.
# JAX derives slope and curvature; `most_curvature` bounds the curvature.


# %%
@dataclasses.dataclass(frozen=True)
class SoftHinge(losses.MarginLoss):
    """φ(m) = log(1 + e^(s (1 − m)))/s."""

    name = "soft_hinge"
    smooth = True
    s: float = 3.0

    def value(self, m):
        return jax.nn.softplus(self.s * (1 - m)) / self.s

    @property
    def most_curvature(self):
        return self.s / 4


X, y = make_blobs(600, centers=8, cluster_std=1.5, random_state=1)
X = X / np.abs(X).max()
for loss in (SoftHinge(), "squared_hinge", "logistic"):
    classifier = OneVsAllClassifier(loss, C=10.0).fit(X, y)
    name = loss if isinstance(loss, str) else loss.name
    print(f"{name}: accuracy {classifier.score(X, y):.1%}")

# %% [markdown]
# ## A projection as a layer
#
# The projection onto the capped simplex {p : 0 ≤ p_j ≤ u, Σ p_j ≤ 1} is a softmax that gives zeros, and no
# class more than u. It has derivatives, and `losses.fenchel_young` is the loss that belongs to it: convex,
# 0 where the prediction is exact.


# %%
def layer(scores):
    """Probabilities of which none is above 0.6."""
    return projections.capped_simplex(scores, 1.0, 0.6)


@jax.jit
def step(W, x, targets):
    def objective(W):
        return jnp.mean(losses.fenchel_young(x @ W, targets, layer)) + 1e-3 * jnp.sum(W**2)

    return W - 1.0 * jax.grad(objective)(W)


X1 = jnp.column_stack([jnp.asarray(X, jnp.float32), jnp.ones(len(X), jnp.float32)])
targets = layer(10 * jax.nn.one_hot(y, 8))  # 0.6 for the class, 0 for the others
W = jnp.zeros((3, 8))
for _ in range(500):
    W = step(W, X1, targets)
p = layer(X1 @ W)
print(f"accuracy {float(jnp.mean(jnp.argmax(p, axis=1) == y)):.1%}, ", end="")
print(f"{float(jnp.mean(p == 0)):.0%} of the probabilities are 0, the largest is {float(p.max()):.2f}")
print("its derivative:", jax.jacobian(layer)(jnp.array([0.55, 0.5, 0.3, -0.5]))[0])

# %% [markdown]
# ## The picture: the losses, and the layer along a line of scores

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
m = jnp.linspace(-1.5, 2.5, 200)
for loss in (SoftHinge(), losses.SquaredHinge(), losses.Logistic()):
    axes[0].plot(m, loss.value(m), label=loss.name)
axes[0].set(xlabel="margin", ylabel="loss", title="losses of the margin")
axes[0].legend()
t = jnp.linspace(-1, 1.5, 200)
scores = jnp.stack([t, jnp.full_like(t, 0.5), jnp.full_like(t, 0.3)], axis=1)
for k, (soft, capped) in enumerate(zip(jax.nn.softmax(scores).T, layer(scores).T, strict=True)):
    axes[1].plot(t, capped, color=f"C{k}", label=f"class {k + 1}")
    axes[1].plot(t, soft, ":", color=f"C{k}")
axes[1].set(
    xlabel="score of class 1",
    ylabel="probability",
    title="capped simplex; dotted: softmax",
    ylim=(-0.03, 0.85),
)
axes[1].legend(loc="upper left")
plt.show()
