"""How numbers of things are written for people."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """A number of things, with the noun, whose plural ends in s, in the form that it needs.

    Example:
        >>> [counted(count, "label") for count in (0, 1, 2000)]
        ['0 labels', '1 label', '2,000 labels']
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"
