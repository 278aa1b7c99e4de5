"""The systems that train models, by the name that a model, and ``xmcjax train --system``, give them."""

#: The estimator of each, of :mod:`xmcjax.estimators`.
SYSTEMS = {
    "one-vs-all": "OneVsAllClassifier",
    "multiclass": "MulticlassSVC",
    "multinomial": "MultinomialLogisticRegression",
    "top-k": "TopKSVC",
    "kernel": "KernelLogisticClassifier",
}
#: Of models that do not name theirs: those that the command line trained label by label.
FIRST_SYSTEM = "one-vs-all"
