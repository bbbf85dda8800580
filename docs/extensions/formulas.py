"""Formulas as MathML, which browsers draw by themselves: no script, no download."""

import re
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

TAG = re.compile(r"\\tag\{(.+?)\}")


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula in a line of text."""
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def displayed(writer: Any, node: nodes.math_block) -> None:
    r"""Write a formula of its own, with the number that ``\tag`` gives it."""
    source = node.astext()
    number = "".join(f'<span class="number">({escape(tag)})</span>' for tag in TAG.findall(source))
    formula = tex2mathml(TAG.sub("", source).strip(), as_block=True)
    writer.body.append(f'<div class="formula">{formula}{number}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Take the place of MathJax."""
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
