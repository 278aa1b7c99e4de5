"""The study of Schultheis and Babbar, 2022: see :mod:`experiments.one_vs_all.__main__`."""
