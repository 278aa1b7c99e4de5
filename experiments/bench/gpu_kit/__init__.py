"""Figures of a GPU, taken on a bare machine in the minutes that one can be had.

The kit is packed into a folder where there is a network, a compiler and the data, and run from there where
there are none. What is imported before the wheels are installed needs the standard library alone.
"""
