"""The study of one-vs-all training of paper 000: see :mod:`experiments.one_vs_all.__main__`."""
