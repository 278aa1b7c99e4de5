# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Extreme classification in ten minutes
#
# A thousand classes, sixteen thousand short texts, and a classifier in half a minute. The data come with
# the package: entries of the index of the North American Industry Classification System, each with the code
# of its industry. The words are counted, and each text has one of 1,055 codes.

# %% [markdown]
# The next line installs xmcjax and leaves jax, jaxlib and numpy at the versions that are installed.

# %% tags=["skip-execution"]
from importlib.metadata import distributions

kept = [d.name + "==" + d.version for d in distributions() if d.name in ("jax", "jaxlib", "numpy")]
# %pip install -q "xmcjax[plots]" {" ".join(kept)}

# %%
import numpy as np
from matplotlib import pyplot as plt
from xmcjax import OneVsAllClassifier, plots
from xmcjax.data import fit_transforms, load_demo
from xmcjax.metrics import precision_at_k, topk_accuracy

# %% [markdown]
# ## The data
#
# Features and labels are sparse matrices with a row for each text. Counts become tf-idf weights, and rows
# get norm 1; the weights are learnt from the training part.

# %%
demo = load_demo()
transforms = fit_transforms("log,idf,unit", demo.X_train)
X, X_test = transforms.apply(demo.X_train), transforms.apply(demo.X_test)
print(f"{X.shape[0]:,} texts, {X.shape[1]:,} words, {demo.Y_train.shape[1]:,} classes")
first = demo.X_train[0].indices
print("the first text:", " ".join(demo.words[word] for word in first))
print("its code:", demo.class_names[demo.Y_train[0].indices[0]])

# %% [markdown]
# ## Training
#
# One binary classifier is trained for each class, until it is at the optimum of its own convex problem. `C`
# says how much the training rows count against small weights.

# %%
classifier = OneVsAllClassifier(C=1.0)
classifier.fit(X, demo.Y_train)

# %% [markdown]
# ## Predictions
#
# `predict_topk` gives the best classes of each row and their scores, and never holds the scores of all
# classes.

# %%
labels, scores = classifier.predict_topk(X_test, k=5)
print(f"the best class is right in {precision_at_k(demo.Y_test, labels, 1):.0%} of the rows")
print(f"the right one is among the best five in {topk_accuracy(demo.Y_test, labels, k=5):.0%}")
row = 8
print("text:", " ".join(demo.words[word] for word in demo.X_test[row].indices))
for label, score in zip(labels[row], scores[row], strict=True):
    print(f"  {demo.class_names[label]} with score {score:.2f}")

# %% [markdown]
# ## Your own data
#
# `datasets.fetch("bibtex")` fetches a set of the literature, checks it, and prints its licence;
# `data.load_svmlight`, `data.load_xmc` and others read files. What is trained is kept with
# `classifier.save("folder")` and comes back with `OneVsAllClassifier.load("folder")`.
#
# ## Frequent and rare classes
#
# Most classes have few texts. The picture shows what the classes of each frequency contribute to precision,
# and how many of their texts are found among the best five.

# %%
frequencies = np.asarray(demo.Y_train.sum(axis=0)).ravel()
ax = plots.precision_by_frequency(demo.Y_test, labels, 5, frequencies=frequencies)
ax.set_title("1,055 industries")
plt.show()
