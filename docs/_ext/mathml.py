"""Mathematics as MathML, which browsers and printers draw without scripts.

Set ``html_math_renderer = "mathml"`` in conf.py.
"""

from __future__ import annotations

import html
import re
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

SPACE = "http://www.w3.org/1998/Math/MathML"
ACCENTS = "ˉ~ˆ˙"
_TIGHT = {"{", "}", "|", "‖", "/"}
_log = logging.getLogger(__name__)


def mathml(tex: str, *, block: bool = False) -> str:
    """A formula as MathML.

    docutils sets the index of an accented letter below the letter; here it becomes an index. And it
    writes names of characters that XML does not know.
    """
    ElementTree.register_namespace("", SPACE)
    written = re.sub(
        r"&(?!amp;|lt;|gt;|quot;|apos;|#)\w+;",
        lambda found: html.unescape(found[0]),
        tex2mathml(tex, as_block=block),
    )
    root = ElementTree.fromstring(written)
    for parent in list(root.iter()):
        for place, child in enumerate(list(parent)):
            if _is(child, "munderover") and (child[2].text or "").strip() in ACCENTS:
                letter, index, accent = list(child)
                over = ElementTree.Element(_tag("mover"), {"accent": "true"})
                over.extend([letter, accent])
                fixed = ElementTree.Element(_tag("msub"))
                fixed.extend([over, index])
                fixed.tail = child.tail
                parent[place] = fixed
    for mark in root.iter(_tag("mo")):
        # Without these, norms, braces and slashes stand apart from what they enclose.
        if not mark.attrib and (mark.text or "").strip() in _TIGHT:
            mark.attrib |= {"stretchy": "false", "lspace": "0", "rspace": "0"}
    return ElementTree.tostring(root, encoding="unicode")


def _tag(name: str) -> str:
    return f"{{{SPACE}}}{name}"


def _is(element: ElementTree.Element, name: str) -> bool:
    return element.tag == _tag(name)


def _checked(node: nodes.Element, *, block: bool = False) -> str:
    try:
        return mathml(node.astext(), block=block)
    except MathError as error:
        _log.warning("%s in %r", error, node.astext(), location=node)
        return html.escape(node.astext())


def _visit_inline(translator: Any, node: nodes.Element) -> None:
    translator.body.append(_checked(node))
    raise nodes.SkipNode


def _visit_block(translator: Any, node: nodes.Element) -> None:
    number = node["number"]
    place = f' id="{node["ids"][0]}"' if node["ids"] else ""
    shown = f'<span class="eqno">({number})</span>' if number else ""
    formula = _checked(node, block=True)
    translator.body.append(f'<div class="math-block"{place}>{formula}{shown}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    return {"parallel_read_safe": True}
