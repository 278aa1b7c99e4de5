"""A refit that fails leaves the estimator as it was."""

from __future__ import annotations

import functools

from xmcjax._arguments import refuse_renamed


def unchanged_on_error(fit=None, **names: str):
    """Decorates a method that sets attributes: where it raises, the estimator has those of before again.

    A warning that is turned into an error counts as one.

    Args:
        fit: the method.
        names: new names of its arguments, as :func:`xmcjax._arguments.renamed` takes them.
    """
    if fit is None:
        return functools.partial(unchanged_on_error, **names)

    @functools.wraps(fit)
    def fitted(self, *args, **kwargs):
        refuse_renamed(fit, names, kwargs)
        before = dict(self.__dict__)
        try:
            return fit(self, *args, **kwargs)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return fitted
