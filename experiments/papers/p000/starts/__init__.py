"""The study of Schultheis and Babbar, 2022: see :mod:`experiments.papers.p000.starts.__main__`."""
