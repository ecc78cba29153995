"""The report: one self-contained HTML file, with a tab for each claim and every verdict."""

from __future__ import annotations

import os
import pathlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple
from urllib.parse import quote

from fegsam.errors import ProblemError
from fegsam.report.evidence import HEADS, MEANING_OF_KINDS, evidence
from fegsam.report.figure_data import FigureData
from fegsam.report.interactive import plot_json, plotly_script
from fegsam.report.matrix import columns_of, matrix, overview
from fegsam.report.origin import origin
from fegsam.report.panels import figure_sets
from fegsam.report.paper import Erratum, Paper, Statement
from fegsam.report.thumbnail import thumbnail
from fegsam.report.verdict import Outcome, Section, Verdict, joint_outcome, tally, value_text
from fegsam.safe_files import whole
from fegsam.text import short


def write_report(
    sections: Sequence[Section],
    directory: str | os.PathLike[str],
    *,
    title: str,
    settings: Mapping[str, Any] | None = None,
    paper: Paper | None = None,
) -> pathlib.Path:
    """Write ``directory/report.html`` and return its path.

    The folder is created if it is missing. The file is written completely or not at all.

    Parameters
    ----------
    sections : sequence of Section
        One tab each, in order; each has its own letter.
    title : str
    settings : mapping
        Shown on a separate tab beside version, commit and machine; a mapping within it becomes a
        separate table, and a text of several lines a block of code.
    paper : Paper, optional
        The paper whose claims the sections check.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_report(
    ...         [Section("a", "Speed-up", "N agents are N times as accurate.")],
    ...         folder,
    ...         title="Claims",
    ...     )
    ...     path.name, "N agents are N times as accurate." in path.read_text(encoding="utf-8")
    ('report.html', True)
    """
    letters = Counter(section.claim for section in sections)
    for letter, count in letters.items():
        if count > 1 or not letter.isalnum():
            raise ProblemError(
                f"{count} sections have the letter {letter!r}; give each its own, in letters and "
                "digits."
            )
    folder = pathlib.Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "report.html"
    page = _page(sections, title, settings or {}, paper)
    with whole(target) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return target


class _Tab(NamedTuple):
    key: str
    name: str
    template: str
    section: Section | None = None


class _Standing(NamedTuple):
    """A statement of the paper, the claims that check it, and its errata."""

    statement: Statement
    claims: list[Section]
    errata: list[Erratum]


class _Together(NamedTuple):
    """Several verdicts as one."""

    outcome: Outcome
    words: str


class _Wrong(NamedTuple):
    """A claim that does not hold, in a sentence."""

    letter: str
    text: str


def _page(
    sections: Sequence[Section], title: str, settings: Mapping[str, Any], paper: Paper | None
) -> str:
    templates = load_templates()
    from markupsafe import Markup  # comes with Jinja2

    verdicts = [verdict for section in sections for verdict in section.verdicts]
    rows, columns = evidence(sections), columns_of(sections)
    settings = {**settings, **origin()}
    grouped = {name: value for name, value in settings.items() if isinstance(value, Mapping)}
    return templates.get_template("page.html.j2").render(
        title=title,
        version=settings["fegsam"],
        paper=paper,
        tabs=_tabs(sections, bool(rows), paper),
        lettered=len(sections) > 1,
        judged_sections=[section for section in sections if section.verdicts],
        verdicts=verdicts,
        wrong=_wrong(sections, found=paper is not None),
        standing=_standing(sections, paper),
        sections_of=lambda section: _sections_of(section, paper),
        column_word="algorithm" if paper else "problem",
        evidence=rows,
        evidence_heads=HEADS,
        kinds=MEANING_OF_KINDS,
        settings={name: settings[name] for name in settings if name not in grouped},
        grouped_settings=grouped,
        style=Markup(read_part("page.css")),
        script=Markup(read_part("page.js")),
        plotly=Markup(plotly_script()),
        plot=lambda panel, direct: Markup(plot_json(panel.figure, panel.axes, direct=direct)),
        svg=Markup,
        matrix=lambda section: matrix(section, columns),
    )


def _tabs(sections: Sequence[Section], evidence: bool, paper: Paper | None) -> list[_Tab]:
    """The story first, then each claim, then what it rests on."""
    lettered = len(sections) > 1
    tabs = [
        _Tab(
            f"claim-{section.claim}",
            f"({section.claim}) {section.title}" if lettered else "Results",
            "claim.html.j2",
            section,
        )
        for section in sections
    ]
    if any(section.verdicts for section in sections):
        tabs.insert(0, _Tab("summary", "What was found", "summary.html.j2"))
    if paper and paper.statements:
        tabs.append(_Tab("statements", "In the paper", "statements.html.j2"))
    if paper and paper.errata:
        tabs.append(_Tab("errata", "Errata of the paper", "errata.html.j2"))
    if evidence:
        tabs.append(_Tab("evidence", "How each check can fail", "evidence.html.j2"))
    return [*tabs, _Tab("settings", "Settings", "settings.html.j2")]


def _standing(sections: Sequence[Section], paper: Paper | None) -> list[_Standing]:
    """Everything of the paper that a section or an erratum leads to, in the paper's order."""
    if paper is None:
        return []
    named = {section.claim: paper.named_in(_named_by(section)) for section in sections}
    found = []
    for statement in paper.statements:
        claims = [section for section in sections if statement in named[section.claim]]
        found.append(_Standing(statement, claims, paper.errata_of(statement)))
    return [one for one in found if one.claims or one.errata]


def _named_by(section: Section) -> list[str]:
    return [section.theorem, *(verdict.theorem for verdict in section.verdicts)]


def _sections_of(section: Section, paper: Paper | None) -> str:
    """The sections in which the statements of a claim stand, unless they are sections."""
    named = [] if paper is None else paper.named_in([section.theorem])
    numbers = dict.fromkeys(one.section for one in named if one.place != one.title)
    plural = "s" if len(numbers) > 1 else ""
    return f", Section{plural} {' and '.join(numbers)}" if numbers else ""


def _wrong(sections: Sequence[Section], *, found: bool) -> list[_Wrong]:
    """What does not hold: claims, and questions that are judged apart from them.

    Where something was `found` about a claim, that is said instead of the claim.
    """
    wrong = []
    for section in sections:
        if section.outcome == "does not hold":
            told = section.finding if found else ""
            wrong.append(_Wrong(section.claim, _first_clause(told) if told else section.title))
        for said, group in section.apart.items():
            if joint_outcome(group) == "does not hold":
                wrong.append(_Wrong(section.claim, f"It does not hold that {_inside(said)}"))
    return wrong


def _first_clause(text: str) -> str:
    """A finding up to its first colon, semicolon or full stop."""
    return f"{re.split('[;:.] ', text)[0].removesuffix('.')}."


def _inside(sentence: str) -> str:
    return f"{sentence[0].lower()}{sentence[1:]}"


def _together(group: Sequence[Verdict]) -> _Together:
    outcome = joint_outcome(group)
    return _Together(outcome, outcome)


def load_templates() -> Any:
    """The templates beside this file; everything that they show is escaped, except `Markup`."""
    jinja2 = require_jinja2()
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("fegsam.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.globals |= {
        "tally": tally,
        "together": _together,
        "figure_sets": figure_sets,
        "overview": overview,
        "thumbnail": thumbnail,
        "value_text": value_text,
        "measured_head": _measured_head,
        "csv_link": _csv_link,
        "setting_text": _setting_text,
        "typeset": _typeset,
    }
    return templates


def require_jinja2() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise ProblemError("The report needs Jinja2; run: pip install 'fegsam[report]'") from error
    return jinja2


def read_part(name: str) -> str:
    return resources.files("fegsam.report").joinpath("templates", name).read_text(encoding="utf-8")


def _measured_head(verdicts: Sequence[Verdict]) -> str:
    level = next((v.estimate.level for v in verdicts if v.estimate is not None), 0.95)
    return f"Value [{100 * level:g} % interval]"


def _csv_link(figure: FigureData) -> str:
    return "data:text/csv;charset=utf-8," + quote(figure.csv(), safe=",.-+ ")


def _typeset(text: str) -> str:
    """The text with minus signs, and with no line break around them and before a percent sign.

    >>> _typeset("(K - 1)^-2 is small-step").replace("\N{NO-BREAK SPACE}", "~")
    '(K~−~1)^−2 is small-step'
    """
    text = re.sub(
        r"(?<=[\w)]) [-\N{MINUS SIGN}] (?=[\w(])",
        "\N{NO-BREAK SPACE}\N{MINUS SIGN}\N{NO-BREAK SPACE}",
        text,
    )
    return re.sub(r"(?<![\w.)])-(?=[\d.])", "\N{MINUS SIGN}", text).replace(
        " %", "\N{NO-BREAK SPACE}%"
    )


def _setting_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_setting_text(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple | range):
        return ", ".join(_setting_text(entry) for entry in value)
    return short(value) if isinstance(value, float) else str(value)
