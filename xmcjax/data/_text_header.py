"""The first line of a text file that states sizes."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence

from xmcjax.data._files import Chunk
from xmcjax.data._text import RowReader
from xmcjax.data._text_format import quote, strip_line_end

_TOKEN = re.compile(rb"[^ \t]+")


def first_line(reader: RowReader, chunks: Generator[Chunk], form: str) -> tuple[Chunk, int, bytes]:
    """The first chunk of a file, where its second line begins, and its first line without the line break.

    Raises:
        DataFormatError: an empty or damaged file; ``form`` says what the line should be.
    """
    head = reader.next_chunk(chunks, 0)
    if head is None:
        raise reader.error(1, 1, f"a header '{form}'", "an empty file")
    newline = head.data.find(b"\n")
    start = len(head.data) if newline < 0 else newline + 1
    return head, start, strip_line_end(head.data[:start])


def read_header(reader: RowReader, line: bytes, fields: Sequence[tuple[str, int]], form: str) -> list[int]:
    """The numbers of a header.

    Args:
        reader: the reader of the file, for errors.
        line: the first line of the file.
        fields: for each number its meaning and its largest value.
        form: how a header looks, such as "n d L".

    Raises:
        DataFormatError: the line is no such header.
    """
    tokens = list(_TOKEN.finditer(line))
    numbers = []
    for place, (name, bound) in enumerate(fields):
        if place == len(tokens):
            where = "the end of the line" if line else "an empty line"
            hint = " (--format matrix reads features alone, after 'n d')" if place == 2 else ""
            raise reader.error(1, len(line) + 1, f"a header '{form}' with {name}{hint}", where)
        token = tokens[place].group()
        if not re.fullmatch(rb"[0-9]{1,19}", token) or int(token) > bound:
            expected = f"a header '{form}' with {name}, an integer from 0 to {bound}"
            if b":" in line:  # a row of features
                expected += " (--format svmlight reads files without a header)"
            raise reader.error(1, tokens[place].start() + 1, expected, quote(token))
        numbers.append(int(token))
    if len(tokens) > len(fields):
        extra, count = tokens[len(fields)], {2: "two", 3: "three"}[len(fields)]
        hint = " (--format xmc reads labels and features in one file)" if len(fields) == 2 else ""
        raise reader.error(
            1, extra.start() + 1, f"a header of {count} numbers '{form}'{hint}", quote(extra.group())
        )
    return numbers
