"""Formulas as MathML, which browsers draw by themselves: docutils makes it of TeX while a page is written."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml, tex2unichar

_TABLES = (tex2unichar.mathalpha, tex2unichar.mathbin, tex2unichar.mathord, tex2unichar.mathrel)
# Formulas in docstrings have Greek letters and signs as they are; the converter wants their TeX.
_AS_TEX = {
    ord(sign): rf"\{name} "
    for table in (*_TABLES, tex2unichar.mathop)
    for name, sign in table.items()
    if len(sign) == 1 and not sign.isascii() and name.isalpha()
} | str.maketrans(
    {"−": "-", "·": r"\cdot ", "Σ": r"\sum ", "½": r"\frac{1}{2}", "‖": r"\|"}
    | {"⁻": "^-", "¹": "^1", "²": "^2", "ᵀ": "^T"}
)


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def _display(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math-block">{_mathml(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def _mathml(node: nodes.Element, as_block: bool) -> str:
    """MathML of a formula.

    Raises:
        ValueError: docutils does not know what stands there.
    """
    tex = re.sub(r"\\t?frac *(\w) *(\w)", r"\\frac{\1}{\2}", node.astext()).translate(_AS_TEX)
    if r"\\" in tex and r"\begin" not in tex:
        tex = rf"\begin{{aligned}} {tex} \end{{aligned}}"
    try:
        return latex2mathml.tex2mathml(tex, as_block=as_block)
    except MathError as error:
        raise ValueError(f"{node.source}: {error}: {tex}") from error


def setup(app: Any) -> None:
    """Adds the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
