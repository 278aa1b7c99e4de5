"""A refit that fails leaves the estimator as it was."""

from __future__ import annotations

import functools


def unchanged_on_error(fit):
    """Decorates a method that sets attributes: where it raises, the estimator has those of before again.

    A warning that is turned into an error counts as one.
    """

    @functools.wraps(fit)
    def fitted(self, *args, **kwargs):
        before = dict(self.__dict__)
        try:
            return fit(self, *args, **kwargs)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return fitted
