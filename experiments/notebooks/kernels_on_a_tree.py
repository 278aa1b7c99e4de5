# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Kernels on a tree of classes, with learnt hyperparameters
#
# Where classes stand in a tree, such as industries, species or topics, what is learnt of one class helps
# its siblings. `KernelLogisticClassifier(hierarchy=…)` gives each node of the tree a function, and the
# function of a class is the sum of those on its way from the root (Seeger, *Cross-validation optimization
# for structured Hessian kernel methods*, 2006). The variances of the levels and the width of the kernel are
# learnt by the gradient of a cross-validation criterion.

# %% [markdown]
# The next line installs xmcjax and leaves jax, jaxlib and numpy at the versions that are installed.

# %% tags=["skip-execution"]
from importlib.metadata import distributions

kept = [d.name + "==" + d.version for d in distributions() if d.name in ("jax", "jaxlib", "numpy")]
# %pip install -q "xmcjax[plots]" {" ".join(kept)}

# %%
import numpy as np
from matplotlib import pyplot as plt
from xmcjax import KernelLogisticClassifier, datasets, plots

# %% [markdown]
# ## The data: 20 classes in a tree of four branches
#
# Classes of one branch lie near each other. `edges` are the pairs (parent, child); the root is 0, and the
# classes are the leaves.

# %%
X, y, edges = datasets.make_hierarchy(500, 6, (4, 5), spread=1.2, seed=0)
train, test = slice(0, 100), slice(100, None)  # five rows of a class
print(f"{edges.shape[0]} edges; the classes are {y.min()} to {y.max()}")

# %% [markdown]
# ## A flat model and one with the tree
#
# `tune` learns and then fits. It begins where the arguments say. `share="level"` learns one variance for
# each level of the tree.

# %%
folds = np.random.default_rng(0).integers(0, 4, 100)
flat = KernelLogisticClassifier(v=1.0, tol=1e-3).tune(
    X[train], y[train], folds=folds, share="all", max_iter=12
)
tree = KernelLogisticClassifier(hierarchy=edges, v=1.0, tol=1e-3)
tree.tune(X[train], y[train], folds=folds, share="level", max_iter=12)
for name, model in (("flat", flat), ("tree", tree)):
    error = np.mean(model.predict(X[test]) != y[test])
    criterion = float(model.search_.history[-1].value)
    print(f"{name}: error {error:.1%}, criterion {criterion:.1f}")

# %% [markdown]
# The criterion is minus the log likelihood of the rows that are left out, here of the same folds for both.
# It is a little lower with the tree, which also has twice as many hyperparameters to learn. On these data
# the errors on the test rows are about as many: what the tree adds here is what the next section does with
# it.
#
# ## Errors in the tree
#
# Some errors are worse than others: `predict(X, loss="taxonomy")` takes the class whose expected distance
# in the tree is least.

# %%
parent = dict(edges[:, ::-1].tolist())
for name, predicted in (
    ("most probable", tree.predict(X[test])),
    ("least distance", tree.predict(X[test], loss="taxonomy")),
):
    other = np.mean([parent[a] != parent[b] for a, b in zip(predicted, y[test], strict=True)])
    print(f"{name}: wrong {np.mean(predicted != y[test]):.1%}, in another branch {other:.1%}")

# %% [markdown]
# ## The picture: the way of the search, and the classes that are taken for each other

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
names = ["variance, branches", "variance, classes", "width, branches", "width, classes"]
plots.hyperparameters(tree.search_, names, ax=axes[0])
confused = np.zeros((20, 20))
np.add.at(confused, (y[test] - 1, tree.predict(X[test]) - 1), 1)
axes[1].imshow(confused / confused.sum(axis=1, keepdims=True), cmap="Blues", extent=(0.5, 20.5, 20.5, 0.5))
for edge in (5.5, 10.5, 15.5):
    axes[1].axhline(edge, color="grey", linewidth=0.5)
    axes[1].axvline(edge, color="grey", linewidth=0.5)
axes[1].set(xticks=range(5, 21, 5), yticks=range(5, 21, 5))
axes[1].set(xlabel="predicted class", ylabel="class", title="share of each class; lines part the branches")
plt.show()
