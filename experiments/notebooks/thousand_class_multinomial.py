# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A thousand-class multinomial beside scikit-learn
#
# Multinomial logistic regression is the softmax with a quadratic penalty. Its objective is convex, so that
# two solvers must find the same weights; the question is how long they take.
# `MultinomialLogisticRegression` takes the arguments of scikit-learn's `LogisticRegression`, with the same
# C.

# %% [markdown]
# The next line installs xmcjax and leaves jax, jaxlib and numpy at the versions that are installed.

# %% tags=["skip-execution"]
from importlib.metadata import distributions

kept = [d.name + "==" + d.version for d in distributions() if d.name in ("jax", "jaxlib", "numpy")]
# %pip install -q "xmcjax[plots]" {" ".join(kept)}

# %%
import time
import warnings

import numpy as np
from matplotlib import pyplot as plt
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from xmcjax import MultinomialLogisticRegression, datasets
from xmcjax.data import fit_transforms

# %% [markdown]
# ## The data: short texts of a thousand classes, made
#
# Each text has four to ten words. Four in five of them are words of its class.

# %%
X, y = datasets.make_texts(5_000, 1_000, 1_000, share=0.8, seed=0)
X = fit_transforms("log,idf,unit", X[:4_000]).apply(X)
train, test = slice(0, 4_000), slice(4_000, None)

# %% [markdown]
# ## The same problem twice
#
# scikit-learn's lbfgs is given several numbers of iterations, because its default ends early. After each
# fit the objective is computed in the same way for both: C Σ −log p(y) + ½‖W‖², with C = 10.


# %%
warnings.simplefilter("ignore", ConvergenceWarning)  # lbfgs is stopped early on purpose


def objective(model):
    """Of the training part."""
    scores = X[train] @ model.coef_.T + model.intercept_
    top = scores.max(axis=1)
    log_sums = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
    return float(10 * (log_sums - scores[np.arange(4_000), y[train]]).sum() + 0.5 * np.sum(model.coef_**2))


def fitted(model):
    """Objective, seconds of processor time, and accuracy on the test part."""
    begin = time.process_time()
    model.fit(X[train], y[train])
    return objective(model), time.process_time() - begin, model.score(X[test], y[test])


found = {"xmcjax": [fitted(MultinomialLogisticRegression(C=10, tol=1e-4))]}
found["scikit-learn, lbfgs"] = [
    fitted(LogisticRegression(C=10, max_iter=iterations, tol=1e-10)) for iterations in (5, 10, 20, 40, 80)
]
for name, fits in found.items():
    for value, seconds, accuracy in fits:
        print(f"{name}: objective {value:.2f}, accuracy {accuracy:.1%}, {seconds:.1f} s of processor time")

# %% [markdown]
# The time of xmcjax includes compilation.
#
# ## The picture
#
# The height is how far an objective lies above the best that was found, as a fraction of it: lower and
# further left is better.

# %%
best = min(value for fits in found.values() for value, _, _ in fits)
figure, ax = plt.subplots(layout="constrained")
for name, fits in found.items():
    ax.plot([fit[1] for fit in fits], [max(fit[0] / best - 1, 1e-8) for fit in fits], "o-", label=name)
ax.set(yscale="log", xlabel="seconds of processor time", ylabel="objective above the best, relative")
ax.set(xlim=(0, None), title="1,000 classes, 4,000 texts")
ax.legend()
plt.show()
