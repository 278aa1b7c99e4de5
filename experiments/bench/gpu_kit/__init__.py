"""Figures of a GPU, taken on a bare machine that is available for minutes.

The kit is packed into a folder on a machine with a network, a compiler and the data, and run from that folder
on one without. Modules that are imported before the wheels are installed need only the standard library.
"""
