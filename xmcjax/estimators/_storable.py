"""``save`` and ``load`` of every classifier."""

from __future__ import annotations

from sklearn.utils.validation import check_is_fitted


class Storable:
    """A classifier that a directory can hold.

    Attributes:
        _system: of :data:`xmcjax._systems.SYSTEMS`.
    """

    _system: str

    def save(self, path):
        """Stores the fitted classifier as a directory, which ``xmcjax predict`` reads too.

        It keeps the arguments, the weights to the bit, the names of classes and features, the numbers of
        the fit, and what a model that was loaded knew of its training data. Arguments that are arrays come
        back as lists, and a `random_state` that is an object as None: another fit may then draw other
        numbers. The way to the result (``history_``, ``search_``, ``reason_``) is not kept. A directory in
        which a save was interrupted can be saved to again.

        Args:
            path: a new or empty directory.

        Raises:
            TypeError: an argument that is an object of one's own, or classes that are neither numbers nor
                texts nor truth values, such as dates: pickle stores these.
            FileExistsError: the directory holds anything.
            OSError: it cannot be written.
        """
        check_is_fitted(self)
        self._write(path)

    @classmethod
    def load(cls, path):
        """The classifier that a directory holds: one of :meth:`save`, or of ``xmcjax train``.

        Where training transformed the features, as ``xmcjax train --transform`` does, the classifier has the
        attribute ``transforms_``, and every method takes raw features: prediction and ``partial_fit`` apply
        the transforms as they are, ``fit`` fits them on its X anew. A classifier without the attribute, such
        as a clone, leaves features as they are. The columns of ``coef_`` are those of transformed features;
        ``transforms_.order`` gives the raw feature of each where the transform ``frequency`` has reordered
        them.

        Raises:
            ValueError: a model of another kind of classifier.
            ModelError: a model that is damaged or not complete.
            OSError: no directory, or one that cannot be read.
        """
        return cls._read(path)

    def _write(self, path, *, held=False, **more):
        """Writes the directory, which the caller may hold; `more` goes into the meta data."""
        raise NotImplementedError

    @classmethod
    def _read(cls, path):
        raise NotImplementedError
