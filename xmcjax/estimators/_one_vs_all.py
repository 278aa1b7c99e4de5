"""One-vs-all classification with scikit-learn's conventions."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from xmcjax import _sparse
from xmcjax._arguments import chosen, name_of, number, renamed
from xmcjax._links import ONE_OF, SIGMOID, SOFTMAX
from xmcjax._options import SHARED, THREADS
from xmcjax.estimators import _stored
from xmcjax.estimators._calibration import check as check_calibration
from xmcjax.estimators._calibration import check_alike, extended, of_one_vs_all, splits_of_one_vs_all
from xmcjax.estimators._inputs import checked_data
from xmcjax.estimators._label_warnings import warn_of_labels
from xmcjax.estimators._linear import LinearClassifier
from xmcjax.estimators._of_meta import parameters_of
from xmcjax.estimators._probabilities import Probabilities
from xmcjax.estimators._refit import unchanged_on_error
from xmcjax.estimators._targets import more_targets, targets
from xmcjax.estimators._watch import say
from xmcjax.estimators._weights import check_label_products, label_weights

if TYPE_CHECKING:
    from xmcjax.inits import Init
    from xmcjax.losses import MarginLoss
    from xmcjax.penalties import Penalty


class OneVsAllClassifier(Probabilities, LinearClassifier):
    """Linear one-vs-all classifier for thousands of labels, each solved exactly.

    For every label j, with y_ij = ±1 for rows with and without it, sample weights s_i and weights
    c_ij that are 1 without a `weighting`,

    .. math:: \\min_{w_j, b_j} R(w_j) [+ R(b_j)] + C Σ_i s_i c_{ij} φ(y_{ij} (w_j·x_i + b_j)).

    Args:
        loss: the loss φ of the margin y z (one of squared_hinge, logistic, huber_hinge, hinge);
            'squared_hinge' by default. Or an object of :class:`xmcjax.losses.MarginLoss` that is smooth,
            which sets what a name leaves at its default: ``HuberHinge(delta=0.5)``, where "huber_hinge" has
            δ = 1. The hinge is solved by its dual: it needs `penalty` "l2", a bias that is regularised or
            none, and the `init` that is the default.
        init: starting weights, which decide the time and not the result (one of zero, bias, ova_primal,
            ova_primal_pp, mean_separating, multi_pos, pretrained); 'mean_separating' by default. The loss
            hinge starts from dual variables, and leaves the default alone. Or an
            :class:`xmcjax.inits.Init`, whose options then replace the ones below. An object sets what has no
            argument here: ``MultiPos(max_positives=10, ridge=0.1)``, where "multi_pos" has 5 and 0.01.
        penalty: the penalty R of the weights (one of l2, l1, elastic_net, huber); 'l2' by default. l2 is
            ½‖w‖²; l1 is ‖w‖₁, which leaves most weights at zero without clipping; elastic_net is `l1_ratio`
            times ‖w‖₁ and the rest times ½‖w‖²; huber is w²/2ε up to ε = `huber_width` and |w| − ε/2 beyond.
            Or an object of :class:`xmcjax.penalties.Penalty`, whose options then replace the ones below.
        l1_ratio: share of the l1 norm in the penalty elastic_net; 0.5 by default.
        huber_width: ε of the penalty huber; 1.0 by default.
        C: weight of the losses against the regularisation (above 0); 1.0 by default.
        tol: ε₀ of the stopping rule: a label is done when ‖∇f‖ ≤ ε₀ max(1, min(positives, negatives)) / rows
            · ‖∇f(0)‖ and its Newton decrement is small (above 0); 0.01 by default. 1 is enough for dense
            features of one scale. With the loss hinge a label is done when its duality gap is at most ε₀ and
            0.005 of its objective.
        clip: weights below this in absolute value are dropped after training, but not the bias (at least 0).
            If it is not given, those are dropped that are too small to matter for the scores, whatever the
            scale of the features: below 0.01 min(1/r, ‖w‖/4), r the root mean square of the norms of the rows
            and w the weights of the label, and fewer where dropping them is expected to raise the objective
            of the label by more than 0.25 per cent, or raises it by more than 0.5 per cent where it is looked
            at, with a large C or large features. 0 keeps all; 0.01 is the choice of the literature, for rows
            of norm 1.
        sparsify_rise: in place of `clip`, as many of a label's smallest weights are dropped as raise its
            objective by this part at most, 0.01 being 1 per cent (above 0).
        weighting: weights c of the losses by label, for labels that are missing from rows (one of propensity,
            propensity_down). With p the propensity of the label, propensity has c = 2/p − 1 for rows with the
            label and 1 for the others, propensity_down 1 and p/(2 − p). None (default) for none.
        propensities: the data set or family whose constants A and B give the propensities p; 'default' by
            default. Or a pair of the constants, (A, B); see :func:`xmcjax.metrics.inverse_propensities`.
        class_weight: weights of the losses by label or class (one of balanced). balanced gives the rows with
            a label as much weight together as those without it; of a class vector it is n / (K n_k), n_k of n
            rows and K classes. Or a dict: from labels, by number, to weights of the rows that have them; from
            classes to weights that the rows of a class have in its own problem, as in scikit-learn's
            LinearSVC, and with two classes the rows of either. None (default) for ones.
        block_size: labels that are solved side by side and share a pass over the features (at least 1). If it
            is not given, 32 on a CPU, and on a GPU as many as its memory holds, up to 512.
        fit_intercept: whether there is a bias b; True by default.
        regularise_intercept: whether the bias is regularised like the weight of a feature of value 1; True by
            default.
        max_iter: most Newton steps per label (at least 0); 100 by default. 0 keeps the starting weights and
            drops none of them. With the loss hinge each stands for 10 passes over the rows.
        n_jobs: host threads (from 1, or -1 for one per core, -2 for all cores but one). They train and
            predict; None (default) is one thread. The weights do not depend on it.
        calibration: how scores become probabilities, where the loss knows none (one of sigmoid). sigmoid is
            Platt's scaling by label, fitted on scores of rows that were held out: training is repeated
            without each of `cv` folds. None (default) for none.
        cv: folds of the calibration (at least 2); 5 by default. Or a splitter of scikit-learn, or pairs of
            the rows to train on and those to hold out.
        warm_start: whether a fit goes on from the weights of the last one; False by default. Classes and
            labels that it had start from ``coef_`` and ``intercept_``, the others as `init` has it. With
            dense features, more of them than rows, and another loss than the logistic all start as in a
            first fit, which is faster. Not of the loss hinge, whose dual variables are not kept.
        verbose: from 1, or True, a bar shows how far a fit is, where stderr is a terminal; 0 by default.
            A line says in the end what it ran on.
        bias_lambda: the bias starts at minus this, for the init bias; 1.0 by default.
        msi_s: mean score of the positives at the start, for the inits mean_separating and multi_pos; 1.0 by
            default.
        msi_t: mean score of the negatives at the start. If it is not given, it is -2 for hinges and -3 for
            the logistic loss.
        ova_primal: how exactly the problem without positives is solved, loose or strict, for the inits
            ova_primal and ova_primal_pp; 'loose' by default.
        pretrained: directory of the model to start from, for the init pretrained.
        random_state: taken for the sake of the interface, because nothing in this training is random.

    Attributes:
        classes_: classes of a class vector, ascending; label numbers 0 … L−1 of a label matrix.
        coef_: [m, d] in the dtype of X, CSR, or an array where clip = 0 and sparsify_rise is None. m is the
            number of labels or classes, and 1 for a class vector of two classes: for the second.
        intercept_: [m]; −inf for a label without positives, or whose numbers overflowed: it is
            never predicted.
        n_iter_: Newton steps of each problem, without those that end it exactly in float64 and without what
            finds a start near its end, with the hinge passes over the rows, [m]; 1 where the starting
            weights were good enough after the exact step in the bias, 0 where nothing was solved.
        calibration_: a :class:`xmcjax.models.Calibration` of the m problems, or None.
        status_: how each problem ended, [m], numbers of :class:`xmcjax.solvers.Status`. With penalty "l2"
            CONVERGED promises that its objective was within 0.5 per cent of the minimum before clip.
        n_features_in_: d. feature_names_in_: names of the features, where X has names.

    y is a class vector (numbers or strings, any) or a label matrix [n, L]: scipy.sparse with
    entries ≥ 0, where each stored non-zero is a label, or dense of 0 and 1. Predictions come in
    the same form. X of float64 is solved in float64, without a change to JAX's settings.

    References:
        Schultheis and Babbar, "Speeding-up one-versus-all training for extreme classification
        via mean-separating initialization", 2022.

    Example:
        >>> X = [[0.0, 1.0], [0.1, 0.9], [1.0, 0.0], [0.9, 0.2]]
        >>> OneVsAllClassifier(C=10.0).fit(X, ["left", "left", "right", "right"]).predict([[1, 0.1]])
        array(['right'], dtype='<U5')

        Objects in place of names, with their own options:

        >>> from xmcjax.inits import MultiPos
        >>> from xmcjax.losses import HuberHinge
        >>> classifier = OneVsAllClassifier(HuberHinge(delta=0.5), MultiPos(max_positives=10, ridge=0.1))
        >>> classifier.fit(X, ["left", "left", "right", "right"]).predict([[1, 0.1]])
        array(['right'], dtype='<U5')
    """

    _system = "one-vs-all"

    @renamed(eps="tol", threads=THREADS)
    def __init__(
        self,
        loss: str | MarginLoss = "squared_hinge",
        init: str | Init = "mean_separating",
        *,
        penalty: str | Penalty = "l2",
        l1_ratio=0.5,
        huber_width=1.0,
        C=1.0,
        tol=0.01,
        clip=None,
        sparsify_rise=None,
        weighting=None,
        propensities: str | Sequence[float] = "default",
        class_weight=None,
        block_size=None,
        fit_intercept=True,
        regularise_intercept=True,
        max_iter=100,
        calibration=None,
        cv: Any = 5,
        n_jobs=None,
        warm_start=False,
        verbose=0,
        bias_lambda=1.0,
        msi_s=1.0,
        msi_t=None,
        ova_primal="loose",
        pretrained=None,
        random_state=None,
    ):
        self.loss = loss
        self.init = init
        self.penalty = penalty
        self.l1_ratio = l1_ratio
        self.huber_width = huber_width
        self.C = C
        self.tol = tol
        self.clip = clip
        self.sparsify_rise = sparsify_rise
        self.weighting = weighting
        self.propensities = propensities
        self.class_weight = class_weight
        self.block_size = block_size
        self.fit_intercept = fit_intercept
        self.regularise_intercept = regularise_intercept
        self.max_iter = max_iter
        self.calibration = calibration
        self.cv = cv
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.verbose = verbose
        self.bias_lambda = bias_lambda
        self.msi_s = msi_s
        self.msi_t = msi_t
        self.ova_primal = ova_primal
        self.pretrained = pretrained
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        return tags

    @unchanged_on_error
    def fit(self, X, y, sample_weight=None):
        """Trains on features X [n, d], sparse or dense, and y as described above.

        Args:
            X: finite features.
            y: class vector [n] or label matrix [n, L].
            sample_weight: s ≥ 0, [n]; 2 is the same as the row twice, 0 as without it, but for the
                propensities of `weighting`, which count rows without weights.

        Returns:
            The estimator itself.

        Raises:
            ValueError: a value of X that is not finite (with its row and column), y of another
                length or kind, fewer than two classes, an option out of range, or numbers of
                every class that overflowed.
            TypeError: an option of another kind, a loss without curvature.
            ValueError, with `warm_start`: another number of features, or a label matrix in place of classes.

        Warns:
            ConvergenceWarning: labels that did not converge, how many, the worst (a class vector's by the
                name of its class) and the remedy.
            UserWarning: labels without positives, how many; a clip that raised objectives by more than 1 per
                cent, of how many labels (of the first 64 of which this was to be expected), the worst and the
                remedy.
        """
        from xmcjax.lanes import check_sample_weight

        options = self._options()
        # what is not finite is found in training, which names the place
        X, y = checked_data(self, X, y, multi_output=True)
        options = anew = self._of_features(options)
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, X.shape[0])
        problems = targets(y, sample_weight)
        warm = SHARED["warm_start"].check(self.warm_start)
        if warm and not options.loss.smooth:
            raise ValueError(f"warm_start: expected False with the loss {options.loss.name}, got True")
        if warm and hasattr(self, "coef_"):
            width = _sparse.matrix(self.coef_, "coef_").shape[1]
            if width != X.shape[1]:
                raise ValueError(f"X: expected {width} features, as in the last fit, found {X.shape[1]}")
            from xmcjax.estimators._continuation import Continued, earlier

            # with a hinge and dense features, Newton's method takes many steps from anywhere but the minimum
            near = sp.issparse(X) or options.loss.name == "logistic"
            init = Continued(options.init, earlier(self, problems), near)
            options = dataclasses.replace(options, init=init)
        splits = splits_of_one_vs_all(self, X, problems, sample_weight, None)
        results, raised = self._trained(X, problems, options, sample_weight, None)
        self._fitted_logistic = options.loss.name == "logistic"
        self._store(results, problems, X.dtype)
        warn_of_labels(results, raised, self._problem_name, self.clip, self.max_iter)
        del results  # the weights are in coef_
        self.calibration_ = of_one_vs_all(
            self, X, problems, anew, sample_weight, None, self._label_weights, splits
        )
        return self

    @unchanged_on_error
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Trains labels or classes that have no weights yet, and leaves the others as they are, to the bit.

        These are parts by labels, and not by rows: each problem is solved once, on the rows that are given
        then. On the same rows a label has the weights that :meth:`fit` gives it, to the bit, but with the
        loss hinge and the init ova_primal_pp: there the way of a label depends on how many labels there are
        and on its place among them, or on the others, and both weights are within `tol` of the optimum.

        Args:
            X: finite features, of as many columns as in the first call, brought to the dtype of ``coef_``.
            y: a label matrix, whose first columns are the labels that are there; or a class vector, of which
                rows of the classes that are there are rows without the new ones.
            classes: of a class vector those that there are or will be; None for those of y.
            sample_weight: as for :meth:`fit`.

        Returns:
            The estimator itself.

        Raises:
            ValueError: as :meth:`fit`; fewer columns than there are labels, classes of y that `classes` has
                not; the logistic loss where the weights have another, or the other way round.
            TypeError: as :meth:`fit`.

        Warns:
            ConvergenceWarning, UserWarning: as :meth:`fit`, of the labels that were trained; where each label
                of y has weights already.
        """
        from xmcjax.estimators._continuation import earlier
        from xmcjax.lanes import check_sample_weight
        from xmcjax.linops import check_features

        options, first = self._options(), not hasattr(self, "coef_")
        X, y = checked_data(self, X, y, multi_output=True, reset=first)
        if not first:
            check_features(X)
            X = _stored.applied(getattr(self, "transforms_", None), X)
            X = X.astype(np.result_type(_sparse.matrix(self.coef_, "coef_").dtype, np.float32), copy=False)
        options = self._of_features(options)
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, X.shape[0])
        problems = more_targets(y, classes, sample_weight, None if first else self.classes_)
        before = None if first else earlier(self, problems).known_alone()
        if not first and self._fitted_logistic != (options.loss.name == "logistic"):
            raise ValueError(f"loss: expected that of the weights that are there, got {options.loss.name}")
        if not first:
            check_alike(self)
        new = None if before is None else np.flatnonzero(~before.known)
        if new is not None and not new.size:
            warnings.warn(
                "nothing was trained: each label of y has weights already, which further rows do not change; "
                "fit trains them anew",
                UserWarning,
                stacklevel=3,  # the caller of a decorated method
            )
            return self
        splits = splits_of_one_vs_all(self, X, problems, sample_weight, new)
        results, raised = self._trained(X, problems, options, sample_weight, new)
        made = of_one_vs_all(self, X, problems, options, sample_weight, new, self._label_weights, splits)
        self.calibration_ = extended(self, problems, made, new)
        _stored.without_data(self)
        self._fitted_logistic = options.loss.name == "logistic"
        self._store(results, problems, X.dtype, before)
        trained = [result for result in results if result is not None]
        warn_of_labels(trained, raised, self._problem_name, self.clip, self.max_iter)
        return self

    def _trained(self, X, problems, options, sample_weight, labels):
        """Results by label, None for those that are not among `labels`, and what clipping raised."""
        from tqdm import tqdm

        from xmcjax._placement import ascent_path, training_path
        from xmcjax.lanes import precision, train_one_vs_all

        results = [None] * problems.Y.shape[1]
        of_labels = self._label_weights(problems, sample_weight)
        check_label_products(options.C, of_labels, sample_weight, X.dtype)
        shown, total = SHARED["verbose"].check(self.verbose), len(results)
        if labels is not None:  # those with the most rows first, as without `labels`
            labels, total = labels[np.argsort(-problems.counts[labels], kind="stable")], len(labels)
        # disable=None: silent where stderr is no terminal
        with (
            tqdm(total=total, unit="label", disable=None if shown else True) as bar,
            precision(X.dtype),
        ):

            def keep(result):
                results[result.label] = result
                bar.update()

            more: dict[str, Any] = dict(sample_weight=sample_weight, label_weights=of_labels, labels=labels)
            summary = train_one_vs_all(X, problems.Y, options, keep, **more)
        if shown:
            path = training_path() if options.loss.smooth else ascent_path()
            say(type(self).__name__, summary.seconds, path, labels=total)
        return results, summary.raised

    def _label_weights(self, problems, sample_weight):
        of_labels, weighting = label_weights(self.class_weight, problems, sample_weight), self._weighting()
        return of_labels if weighting is None else weighting.weights(problems.Y).times(of_labels)

    @property
    def _link(self):
        logistic = getattr(self.loss, "name", self.loss) == "logistic"
        # by the loss of the fit, whatever the argument is now
        if not (self._calibrated or getattr(self, "_fitted_logistic", logistic)):
            return None
        if getattr(self, "_form", "classes") != "classes":
            return SIGMOID
        return SOFTMAX if self._calibrated else ONE_OF

    def _restore(self, status, steps, link):
        name = getattr(self.loss, "name", self.loss)
        logistic = link is not None if self.calibration_ is None else name == "logistic"
        self.status_, self.n_iter_, self._fitted_logistic = status, steps, logistic

    @staticmethod
    def _parameters_of(meta):
        return parameters_of(meta)

    def _options(self):
        from xmcjax.inits import INITS, Init
        from xmcjax.lanes import OneVsAll
        from xmcjax.losses import MARGIN_LOSSES, MarginLoss
        from xmcjax.penalties import PENALTIES, Penalty

        check_random_state(self.random_state)
        check_calibration(self)
        # options of the others are checked too
        penalties = {name: self._made(kind) for name, kind in PENALTIES.items()}
        inits = {name: self._made(kind) for name, kind in INITS.items()}
        return OneVsAll(
            loss=chosen("loss", self.loss, MARGIN_LOSSES, MarginLoss),
            penalty=chosen("penalty", self.penalty, penalties, Penalty),
            init=chosen("init", self.init, inits, Init),
            **{name: getattr(self, name) for name in OneVsAll.numbers()},
        )

    def _of_features(self, options):
        """Options whose starts are of the features in the order that the transforms of a model give them."""
        transforms = getattr(self, "transforms_", None)
        if transforms is None:
            return options
        return dataclasses.replace(options, init=options.init.of_features(transforms.order))

    def _made(self, kind):
        """A penalty or initialisation with those of its options that are arguments of this name."""
        given = {field.name for field in dataclasses.fields(kind)} & vars(self).keys()
        values = {name: getattr(self, name) for name in given}
        for name in ("msi_t", "pretrained"):  # None stands for their defaults
            if values.get(name, 0) is None:
                del values[name]
        return kind(**values)

    def _weighting(self):
        from xmcjax.lanes import WEIGHTINGS, Weighting
        from xmcjax.metrics import propensity_preset

        name = None if self.weighting is None else name_of("weighting", self.weighting, WEIGHTINGS)
        pair: Any = self.propensities
        if isinstance(pair, str):
            pair = propensity_preset(pair)
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise TypeError(f"propensities: expected the name of a data set or a pair (A, B), got {pair!r}")
        a, b = pair
        a, b = number("A of propensities", a), number("B of propensities", b)
        return None if name is None else Weighting(name, a, b)

    def _store(self, results, problems, dtype, before=None):
        """Sets what prediction needs.

        Args:
            results: by label; None for those that keep what they have `before`.
            problems: of all labels.
            dtype: of the weights.
            before: a :class:`Weights` of all labels, or None.
        """
        from xmcjax.models import is_trained
        from xmcjax.solvers import REMEDY, Status

        made = [(label, result) for label, result in enumerate(results) if result is not None]
        m, places = len(results), np.array([label for label, _ in made], np.int64)
        status, steps, bias = np.zeros(m, np.int64), np.zeros(m, np.int64), np.zeros(m)
        dense, shape = self.clip == 0 and self.sparsify_rise is None, (m, self.n_features_in_)
        if before is not None:
            dense, kept = not sp.issparse(self.coef_), before.known
            status[kept], steps[kept], bias[kept] = (
                a[kept] for a in (before.status, before.steps, before.intercept)
            )
        if dense:
            coef: Any = np.zeros(shape, dtype) if before is None else before.coef.toarray()
            for label, result in made:
                coef[label, result.indices] = result.values
        else:
            nothing = np.zeros(0, np.int64), np.zeros(0, dtype)
            rows = [(r.indices, r.values) if r is not None else nothing for r in results]
            coef = sp.csr_matrix(_sparse.stacked(rows, shape[1]).astype(dtype, copy=False))
            coef = coef if before is None else sp.csr_matrix(coef + before.coef)  # each row is in one of them
        status[places] = [result.status for _, result in made]
        trained = is_trained(status)
        if problems.form == "classes" and not trained.any():
            raise ValueError(
                f"no class has weights, because numbers of each overflowed: {REMEDY[Status.NONFINITE]}"
            )
        bias[places] = [result.bias for _, result in made]
        found = np.array([result.newton_steps for _, result in made], np.int64)
        solved = status[places] != Status.NO_POSITIVES
        steps[places] = np.where(solved, np.maximum(found, min(1, self.max_iter)), 0)
        self.classes_, self._form, self.status_, self.n_iter_ = problems.classes, problems.form, status, steps
        self.coef_ = coef
        self.intercept_ = np.where(trained, bias, -np.inf).astype(dtype)

    def _problem_name(self, number):
        if self._form != "classes":
            return f"label {number}"
        # the one problem of two classes is that of the second
        return f"class {self.classes_.tolist()[number + self._binary]!r}"
