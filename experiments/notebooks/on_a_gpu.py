# ---
# jupyter:
#   accelerator: GPU
#   colab:
#     gpuType: T4
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # On a GPU
#
# The same calls run on a GPU of the size of a T4 (16 GB) without a change. This notebook says on which
# device it runs, trains a one-vs-all model there and a top-k SVM beside it on the CPU, and shows where the
# time goes. In Colab choose Runtime, Change runtime type, T4 GPU. On a CPU it does the same work with the
# native kernels.

# %% [markdown]
# The next line installs xmcjax and leaves jax, jaxlib and numpy at the versions that are installed.

# %% tags=["skip-execution"]
from importlib.metadata import distributions

kept = [d.name + "==" + d.version for d in distributions() if d.name in ("jax", "jaxlib", "numpy")]
# %pip install -q "xmcjax[plots]" {" ".join(kept)}

# %%
import time

import jax
import numpy as np
from matplotlib import pyplot as plt
from xmcjax import OneVsAllClassifier, TopKSVC, datasets
from xmcjax.data import fit_transforms
from xmcjax.metrics import precision_at_k

device = jax.devices()[0]
print(f"this runs on {device.device_kind} ({device.platform}); JAX {jax.__version__}")
if device.platform == "cpu":
    print("there is no GPU here: the kernels for processors do the same work")

# %% [markdown]
# ## The data
#
# A power law: few labels are frequent, most are rare.

# %%
X, Y = datasets.make_power_law(5_000, 4_000, 400, seed=0)
Y = Y[:, np.flatnonzero(np.asarray(Y[:4_000].sum(axis=0)).ravel())]  # labels that occur
X = fit_transforms("log,idf,unit", X[:4_000]).apply(X)
train, test = slice(0, 4_000), slice(4_000, None)
megabytes = (X.data.nbytes + X.indices.nbytes) / 1e6
print(f"features: {X.shape}, {megabytes:.0f} MB")

# %% [markdown]
# ## One-vs-all training
#
# Blocks of labels are trained side by side. `block_size` is chosen by the memory of the device when it is
# not given. The first call compiles, the second does not.

# %%
seconds = {}
for call in ("first", "second"):
    begin = time.perf_counter()
    classifier = OneVsAllClassifier().fit(X[train], Y[train])
    seconds[f"one-vs-all,\n{call} call"] = time.perf_counter() - begin
labels, _ = classifier.predict_topk(X[test], k=5)
for k in (1, 3, 5):
    print(f"P@{k}: {precision_at_k(Y[test], labels, k):.1%}")

# %% [markdown]
# ## A top-5 SVM
#
# Dense features, one class for each row. The fit ends with a certificate. `solver="auto"` chooses between
# dual ascent, which visits one row after another, and steps for all rows at once, and says why. Both run on
# the native kernels of the CPU, whatever the device is; `solver="admm"` makes such steps on the GPU.

# %%
made = datasets.make_hierarchy(2_000, 50, (5, 8), spread=0.2, seed=0)
for call in ("first", "second"):
    begin = time.perf_counter()
    svm = TopKSVC(k=5, C=0.1).fit(made.X, made.y)
    seconds[f"top-5 SVM,\n{call} call"] = time.perf_counter() - begin
print(svm.reason_)
best = svm.predict_topk(made.X, 5)[0]
print(
    f"the class is among the best five in {np.mean(np.any(best == made.y[:, None], axis=1)):.1%} of the rows"
)

# %% [markdown]
# ## The picture: where the time goes

# %%
figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
bars = ax.bar(list(seconds), list(seconds.values()))
ax.bar_label(bars, fmt="%.1f s")
ax.margins(y=0.15)
ax.set(ylabel="seconds", title=f"one-vs-all on {device.device_kind}, the SVM on the CPU")
plt.show()
