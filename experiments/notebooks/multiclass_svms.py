# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # WW, LLW and CS: multi-class SVMs, and when to take which
#
# A binary SVM asks for a margin. With several classes there are several ways to ask. With scores z of the
# classes and the right class y,
#
# | formulation | loss of a row | in words |
# |---|---|---|
# | WW (Weston and Watkins) | Σ over j ≠ y of max(0, 1 + z_j − z_y) | every class that comes too near counts |
# | CS (Crammer and Singer) | max(0, 1 + max over j ≠ y of z_j − z_y) | only the strongest competitor counts |
# | LLW (Lee, Lin and Wahba) | Σ over j ≠ y of max(0, 1 + z_j), Σ z_j = 0 | the score itself counts |
# | one-vs-rest | a binary SVM for each class | classes do not know of each other |

# %% [markdown]
# The next line installs xmcjax and leaves jax, jaxlib and numpy at the versions that are installed.

# %% tags=["skip-execution"]
from importlib.metadata import distributions

kept = [d.name + "==" + d.version for d in distributions() if d.name in ("jax", "jaxlib", "numpy")]
# %pip install -q "xmcjax[plots]" {" ".join(kept)}

# %%
import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import make_blobs
from xmcjax import MulticlassSVC

FORMULATIONS = {"ww": "WW", "cs": "CS", "llw": "LLW", "ovr": "one-vs-rest"}

# %% [markdown]
# ## Training
#
# All of them are solved to a certificate: `dual_gap_` bounds how far the objective is above its minimum, as
# a fraction of itself. `MulticlassSVC(formulation, C)` is a scikit-learn classifier.

# %%
centres = np.array([[0, 0], [4, 1], [1, 4], [-4, 1], [0, -4]])
X, y = make_blobs(400, centers=centres, cluster_std=1.1, random_state=0)
X = X / 2
X1 = np.column_stack([X, np.ones(len(X))])  # the last feature is a bias
fitted = {name: MulticlassSVC(name, C=1.0, random_state=0).fit(X1, y) for name in FORMULATIONS}
for name, title in FORMULATIONS.items():
    print(f"{title:11} error {np.mean(fitted[name].predict(X1) != y):5.1%}, gap {fitted[name].dual_gap_:.0e}")

# %% [markdown]
# ## Which one?
#
# - WW is a good one to begin with: it looks at all competitors.
# - CS is for data in which one competitor is what goes wrong. Fewer rows have a say in its solution.
# - LLW is the only one whose loss leads to the best possible classifier with endless data and a rich class
#   of functions. With linear functions in few dimensions it can be far behind.
# - One-vs-rest trains each class by itself. It needs each class to be separable from all others together.
#
# ## The picture
#
# The middle class lies between the others, and no line separates it from all of them. WW and CS compare
# scores and find it; one-vs-rest loses some of it, and LLW gives it up.

# %%
grid = np.stack(np.meshgrid(np.linspace(-4, 4, 200), np.linspace(-4, 4, 200)), axis=-1).reshape(-1, 2)
grid1 = np.column_stack([grid, np.ones(len(grid))])
figure, axes = plt.subplots(1, 4, figsize=(12, 3.4), sharey=True, layout="constrained")
for ax, (name, title) in zip(axes, FORMULATIONS.items(), strict=True):
    regions = fitted[name].predict(grid1).reshape(200, 200)
    ax.imshow(regions, extent=(-4, 4, -4, 4), origin="lower", cmap="tab10", vmin=0, vmax=9, alpha=0.3)
    ax.scatter(*X.T, c=y, s=5, cmap="tab10", vmin=0, vmax=9)
    error = np.mean(fitted[name].predict(X1) != y)
    ax.set(title=f"{title}: error {error:.1%}", xticks=[], yticks=[])
plt.show()
