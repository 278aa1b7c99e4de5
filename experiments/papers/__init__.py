"""One door to the tables and figures of the five papers: ``python -m experiments.papers``."""
