"""Formulas as MathML, which browsers draw by themselves: no script, no download."""

import re
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

SHORT_BAR = re.compile(r'<mover accent="true">(\s*<mi>\w</mi>\s*)<mo stretchy="false">ˉ</mo>')
TAG = re.compile(r"\\tag\{(.+?)\}")


def mathml(source: str, as_block: bool = False) -> str:
    r"""Return a formula as MathML, with a bar of ``\bar`` that is there in fonts without mathematics too."""
    return SHORT_BAR.sub(r"<mover>\1<mo>‾</mo>", tex2mathml(source, as_block=as_block))


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula in a line of text."""
    writer.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def displayed(writer: Any, node: nodes.math_block) -> None:
    r"""Write a formula of its own, with the number that ``\tag`` gives it."""
    source = node.astext()
    number = "".join(f'<span class="number">({escape(tag)})</span>' for tag in TAG.findall(source))
    formula = mathml(TAG.sub("", source).strip(), as_block=True)
    writer.body.append(f'<div class="formula">{formula}{number}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Take the place of MathJax."""
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
