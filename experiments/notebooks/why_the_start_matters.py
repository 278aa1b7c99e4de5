# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Why the start matters
#
# One-vs-all training solves thousands of problems that are nearly alike: a few positive rows, and all
# others negative. Newton's method takes fewer and cheaper steps from a good start. Schultheis and Babbar
# (*Speeding-up one-versus-all training for extreme classification via mean-separating initialization*,
# 2022) start each label from weights that separate the mean of its positive rows from the mean of all rows.
# This notebook measures it.

# %% [markdown]
# The next line installs xmcjax and leaves jax, jaxlib and numpy at the versions that are installed.

# %% tags=["skip-execution"]
from importlib.metadata import distributions

kept = [d.name + "==" + d.version for d in distributions() if d.name in ("jax", "jaxlib", "numpy")]
# %pip install -q "xmcjax[plots]" {" ".join(kept)}

# %%
import numpy as np
from matplotlib import pyplot as plt
from xmcjax import inits, plots
from xmcjax.data import fit_transforms, load_demo
from xmcjax.lanes import OneVsAll, train_one_vs_all

# %% [markdown]
# ## The data: 300 of the demo's labels

# %%
demo = load_demo()
X = fit_transforms("log,idf,unit", demo.X_train).apply(demo.X_train)
positives = np.asarray(demo.Y_train.sum(axis=0)).ravel()
labels = np.sort(np.random.default_rng(0).choice(np.flatnonzero(positives), 300, replace=False))
Y = demo.Y_train[:, labels]

# %% [markdown]
# ## Two starts, one optimum
#
# `observe` is called with the numbers of each Newton step: the norm of the gradient of each label, and how
# many rows are active, which is what a step costs. Only rows with a margin below 1 count in the squared
# hinge.

# %%
starts = {"zero": inits.Zero(), "mean-separating": inits.MeanSeparating()}
steps, made = {}, {}
for name, init in starts.items():
    steps[name], results = [], []
    train_one_vs_all(X, Y, OneVsAll(init=init), results.append, observe=steps[name].append)
    made[name] = np.mean([result.newton_steps for result in results])
    work = sum(record.active.sum() for record in steps[name]) / (X.shape[0] * len(labels))
    print(
        f"{name}: {made[name]:.1f} Newton steps a label; active rows of all steps: {work:.2f} times all rows"
    )

# %% [markdown]
# ## The picture
#
# From zero every row is active in the first step, because every margin is 0. The mean-separating start puts
# nearly all negative rows beyond their margin at once, so that its steps look at a small part of the rows
# from the beginning.

# %%
figure, axes = plt.subplots(2, 2, figsize=(10, 6), sharex=True, sharey="row", layout="constrained")
for column, name in enumerate(starts):
    plots.active_fraction(steps[name], X.shape[0], ax=axes[0, column]).set_title(f"{name} start")
    plots.convergence(steps[name], ax=axes[1, column])
    axes[0, column].set(xlabel="")
for ax in axes[:, 1]:
    ax.set(ylabel="")
plt.show()
