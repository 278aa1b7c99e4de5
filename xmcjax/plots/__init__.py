"""Pictures of trainings, predictions and models, with matplotlib (``pip install "xmcjax[plots]"``).

Each function draws on the axes `ax`, or on new ones, and returns the axes::

    steps = []
    train_one_vs_all(X, Y, OneVsAll(), sink, observe=steps.append)
    plots.active_fraction(steps, X.shape[0]).figure.savefig("active.png")
"""

from xmcjax.plots._models import model_density as model_density
from xmcjax.plots._predictions import precision_by_frequency as precision_by_frequency
from xmcjax.plots._predictions import reject_curve as reject_curve
from xmcjax.plots._predictions import reliability as reliability
from xmcjax.plots._training import active_fraction as active_fraction
from xmcjax.plots._training import convergence as convergence
from xmcjax.plots._training import hyperparameters as hyperparameters
from xmcjax.plots._training import multiplier as multiplier
from xmcjax.plots._training import objective as objective
from xmcjax.plots._training import progress as progress
from xmcjax.plots._training import steps_by_positives as steps_by_positives

__all__ = [
    "active_fraction",
    "convergence",
    "hyperparameters",
    "model_density",
    "multiplier",
    "objective",
    "precision_by_frequency",
    "progress",
    "reject_curve",
    "reliability",
    "steps_by_positives",
]
