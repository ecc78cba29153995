"""The technical note: its numbers and figures come from a script, and it is printed as a PDF.

``{num}`name` `` shows a number that `docs/note/evidence.py` computes, and ``{num}`name .2f` ``
shows it in a format. ``{drawn}`` is a figure that `docs/note/computed/figures.py` draws. With
``note_computes`` switched off, names stand in the places of numbers, and nothing is drawn or
printed: a build for checks of links takes seconds.
"""

from __future__ import annotations

import functools
import html
import importlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils import nodes
from sphinx.directives.patches import Figure
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from fegsam.report.paper import Erratum
from fegsam.reproduction.errata import errata
from fegsam.theory.bound.formulas import FORMULAS

PAGE = "note/index"
FILE = "fegsam-note.pdf"
BROWSER = "chromium"
_EMPTY = '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"/>'
_log = logging.getLogger(__name__)


@functools.cache
def _module(folder: Path, name: str) -> ModuleType:
    """A module of docs/note, loaded once."""
    sys.path.insert(0, str(folder))
    return importlib.import_module(name)


class Number(SphinxRole):
    """A computed number, in the script's format or in the one that follows the name."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        name, _, form = self.text.partition(" ")
        if not self.config.note_computes:
            return [nodes.inline("", name)], []
        module = _module(Path(self.env.app.srcdir) / "note", "evidence")
        values = module.values()
        if name not in values:
            _log.warning(
                "docs/note/evidence.py has no number %r", name, location=self.get_location()
            )
            return [nodes.inline("", name)], []
        return [nodes.inline("", module.shown(values[name], form), classes=["computed"])], []


class Drawn(Figure):
    """A figure by the name of a function of docs/note/computed/figures.py, with its caption."""

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        env = self.state.document.settings.env
        source = Path(env.app.srcdir)
        path = source / "_build" / "drawn" / f"note-{name}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        if env.config.note_computes:
            _module(source / "note", "computed.figures").draw(name, path)
        else:
            path.write_text(_EMPTY, encoding="utf-8")
        self.arguments[0] = f"/_build/drawn/{path.name}"
        return Figure.run(self)


class ErrataTable(SphinxDirective):
    """``{errata-table}``: all errata of the paper, the false statements first."""

    def run(self) -> list[nodes.Node]:
        rows = [
            f"| {each.number} | {each.title} | {severity} |"
            for severity in ("false", "inconsistent", "loose")
            for each in sorted(errata(), key=_place)
            if each.severity == severity
        ]
        head = ["| no. | erratum | severity |", "|---|---|---|"]
        return self.parse_text_to_nodes("\n".join([*head, *rows]))


def _place(each: Erratum) -> tuple[int, str]:
    """Its number, and its letter if it has one."""
    digits = each.number.rstrip("abcdefgh")
    return int(digits), each.number.removeprefix(digits)


class ConstantsTable(SphinxDirective):
    """``{constants-table} C_1 C_2``: definitions of the theorem's constants, as they are used."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        rows = [
            f"| ${tex(name)}$ | ${tex(FORMULAS[name].corrected)}$ |"
            for name in self.arguments[0].split()
        ]
        return self.parse_text_to_nodes("\n".join(["| constant | value |", "|---|---|", *rows]))


def tex(formula: str) -> str:
    """A formula of `FORMULAS` in TeX.

    >>> print(tex("8 m_4 u_cD/l_cD / (1 - rho)"))
    8 m_{4} u_{cD}/l_{cD} / (1 - \\rho)
    >>> print(tex("sqrt(phi_2 / (20 X A_2))"))
    \\sqrt{\\varphi_{2} / (20 X A_{2})}
    """
    # A table of Markdown would end its cell at a bar.
    formula = re.sub(r"\|\|(.*?)\|\|", r"\\lVert \1\\rVert ", formula)
    formula = re.sub(r"log_rho", r"\\log_{\\rho}", formula)
    formula = re.sub(r"(?<!\\)\b([A-Za-z]+)_(tilde_)?(\w+)", _indexed, formula)
    formula = re.sub(r"(?<![\\\w{])(alpha|beta|rho|tau|psi|theta)\b", r"\\\1", formula)
    formula = re.sub(r"(?<!\\)\b(ln|max)\(", r"\\\1(", formula)
    formula = re.sub(r"\b(if|else)\b", r"\\text{ \1 }", formula)
    formula = re.sub(r"\^\((.*?)\)", r"^{(\1)}", formula)
    formula = re.sub(r"\bLag\b", r"\\mathrm{Lag}", formula)
    formula = formula.replace(">=", r"\ge ").replace("<=", r"\le ")
    return _roots(formula)


_GREEK = {
    "phi": r"\varphi",
    "psi": r"\psi",
    "zeta": r"\zeta",
    "theta": r"\theta",
    "gamma": r"\gamma",
}


def _indexed(found: re.Match) -> str:
    letter, tilde, index = found.groups()
    if index == "tilde":
        return rf"\tilde{{{letter}}}"
    letter = _GREEK.get(letter, letter)
    return rf"\tilde{{{letter}}}_{{{index}}}" if tilde else f"{letter}_{{{index}}}"


def _roots(formula: str) -> str:
    """``sqrt(...)`` with its matching bracket."""
    begin = formula.find("sqrt(")
    if begin < 0:
        return formula
    depth, end = 1, begin + 5
    while depth:
        depth += {"(": 1, ")": -1}.get(formula[end], 0)
        end += 1
    inner = formula[begin + 5 : end - 1]
    return formula[:begin] + rf"\sqrt{{{inner}}}" + _roots(formula[end:])


def _version(app: Any) -> str:
    """The version, with its date once it has one in CHANGELOG.md."""
    log = Path(app.srcdir).parent / "CHANGELOG.md"
    found = re.search(r"^## (.+)$", log.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


class Version(SphinxRole):
    """``{version}`now` ``: the version, with its date."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        return [nodes.inline("", _version(self.env.app))], []


def _author(config: Any) -> str:
    return config.author[0].upper() + config.author[1:]


class Author(SphinxRole):
    """``{author}`all` ``: the authors of the project, in conf.py."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        return [nodes.inline("", _author(self.config))], []


class HowToCite(SphinxDirective):
    """``{how-to-cite}``: the page as an entry of BibTeX."""

    def run(self) -> list[nodes.Node]:
        title = self.state.document.next_node(nodes.title).astext()
        lines = [
            "@techreport{fegsam_note,",
            f"  title  = {{{title}}},",
            f"  author = {{{{{_author(self.config)}}}}},",
            "  type   = {Technical note of the software fegsam},",
            f"  note   = {{Version {_version(self.env.app)}}}",
            "}",
        ]
        text = "\n".join(lines)
        return [nodes.literal_block(text, text, language="bibtex")]


def _print(app: Any, page: str, template: str, context: dict, doctree: Any) -> None:
    """Print the note's body as a PDF, and put a link to it on the page."""
    if page != PAGE or not app.config.note_computes or app.builder.name != "html":
        return
    browser = shutil.which(BROWSER)
    if browser is None:
        _log.info("%s is not installed: the note is not printed", BROWSER)
        return
    source = Path(app.srcdir)
    target = Path(app.outdir) / "note" / FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        sheet = Path(folder) / "note.html"
        sheet.write_text(_sheet(source, context["body"], app.config), encoding="utf-8")
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={folder}/profile",
            "--no-pdf-header-footer",
            "--generate-pdf-document-outline",
            f"--print-to-pdf={target}",
            sheet.as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0 or not target.exists():
        _log.warning("%s did not print the note: %s", BROWSER, done.stderr[-500:])
        return
    link = f'<p class="pdf"><a href="{FILE}">This note as a PDF</a></p>'
    context["body"] = context["body"].replace("</h1>", f"</h1>\n{link}", 1)


def _sheet(source: Path, body: str, config: Any) -> str:
    """A page of its own: the note's body with a style for paper, and links to the site as text."""
    body = re.sub(
        r'src="[^"]*/(note-[\w-]+\.svg)"',
        lambda found: f'src="{(source / "_build" / "drawn" / found[1]).as_uri()}"',
        body,
    )
    body = re.sub(r'<a class="headerlink".*?</a>', "", body)
    body = re.sub(r'<a [^>]*href="(?!#|https?:)[^"]*"[^>]*>(.*?)</a>', r"\1", body, flags=re.DOTALL)
    style = (source / "note" / "print.css").read_text(encoding="utf-8")
    title = html.escape(re.sub(r"<[^>]+>", "", body.partition("</h1>")[0]).strip())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="author" content="{html.escape(config.author)}"><style>{style}</style></head>'
        f"<body><article>{body}</article></body></html>"
    )


def setup(app: Any) -> dict[str, bool]:
    app.add_config_value("note_computes", True, "env", bool)
    app.add_role("num", Number())
    app.add_directive("drawn", Drawn)
    app.add_role("version", Version())
    app.add_role("author", Author())
    app.add_directive("how-to-cite", HowToCite)
    app.add_directive("errata-table", ErrataTable)
    app.add_directive("constants-table", ConstantsTable)
    app.connect("html-page-context", _print)
    return {"parallel_read_safe": False}
