"""Notebooks as scripts in cells (py:percent), and what executes and publishes them."""
