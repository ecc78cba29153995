"""The report: one HTML file that needs nothing else, a tab for each claim, and a verdict on
everything that was checked."""

from __future__ import annotations

import os
import pathlib
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from importlib import metadata, resources
from string import Template
from typing import Any
from urllib.parse import quote

from fegsam.errors import ProblemError
from fegsam.experiments.estimates import short
from fegsam.report.evidence import evidence
from fegsam.report.figure_data import MEANING, FigureData
from fegsam.report.interactive import plot_json, plotly_script
from fegsam.report.verdict import Outcome, Section, Verdict, tally, value_text

_BADGES: dict[Outcome, tuple[str, str]] = {
    "holds": ("holds", "✓"),
    "does not hold": ("fails", "✗"),
    "cannot be told": ("unknown", "?"),
}
"""Class and sign: colour is never all that tells them apart."""


def write_report(
    sections: Sequence[Section],
    directory: str | os.PathLike[str],
    *,
    title: str,
    settings: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Write ``directory/report.html``, whole or not at all; the folder is made if need be. Returns
    its path.

    Parameters
    ----------
    sections : sequence of Section
        One tab each, in order; their letters differ.
    title : str
    settings : mapping
        Shown on a tab of its own beside the package's version; mappings within it become tables of
        their own.

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
                f"{count} sections have the letter {letter!r}; give each one of its own, in "
                "letters and digits."
            )
    folder = pathlib.Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "report.html"
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        temporary.write_text(_page(sections, title, settings or {}), encoding="utf-8")
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _page(sections: Sequence[Section], title: str, settings: Mapping[str, Any]) -> str:
    version = metadata.version("fegsam")
    everything = [verdict for section in sections for verdict in section.verdicts]
    panels = [
        *([("summary", "Summary", None, _summary(sections))] if everything else []),
        *([("evidence", "Every verdict", None, table)] if (table := evidence(sections)) else []),
        *(
            (
                f"claim-{s.claim}",
                f"({s.claim}) {s.title}",
                s.outcome if everything else None,
                _section(s),
            )
            for s in sections
        ),
        ("settings", "Settings", None, _settings({"fegsam": version, **settings})),
    ]
    return Template(_part("page.html")).substitute(
        title=escape(title),
        version=escape(version),
        counts=f"Of everything checked: {tally(everything)}" if everything else "",
        style=_part("page.css"),
        script=_part("page.js"),
        plotly=plotly_script(),
        tabs="\n".join(_tab(key, name, outcome) for key, name, outcome, _ in panels),
        panels="\n".join(
            f'<section id="{key}" role="tabpanel" tabindex="0" '
            f'aria-labelledby="tab-{key}">\n{body}\n</section>'
            for key, _, _, body in panels
        ),
    )


def _part(name: str) -> str:
    return resources.files("fegsam.report").joinpath("template", name).read_text(encoding="utf-8")


def _tab(key: str, name: str, outcome: Outcome | None) -> str:
    mark = ""
    if outcome is not None:
        kind, sign = _BADGES[outcome]
        mark = f'<span class="mark {kind}" role="img" aria-label="{outcome}" title="{outcome}">{sign}</span>'
    return (
        f'<button type="button" role="tab" id="tab-{key}" aria-controls="{key}" '
        'aria-selected="false">'
        f"<span>{escape(name)}</span>{mark}</button>"
    )


def _badge(outcome: Outcome) -> str:
    kind, sign = _BADGES[outcome]
    return f'<span class="badge {kind}"><span aria-hidden="true">{sign}</span> {outcome}</span>'


def _mark(verdict: Verdict) -> str:
    """Its outcome and kind; an identity is no evidence, so that it gets no mark for holding."""
    if verdict.kind == "identity" and verdict.outcome == "holds":
        return '<span class="badge identity"><span aria-hidden="true">=</span> identity</span>'
    return f'{_badge(verdict.outcome)}<span class="detail">{verdict.kind}</span>'


def _summary(sections: Sequence[Section]) -> str:
    items = "\n".join(
        f'<li><p><a href="#claim-{s.claim}"><strong>({escape(s.claim)}) '
        f"{escape(s.title)}</strong></a></p>{_badge(s.outcome)}"
        f'<p>{escape(s.sentence)}</p><p class="tally">{tally(s.verdicts)}</p></li>'
        for s in sections
    )
    return (
        "<h2>Summary</h2>\n"
        '<p class="lead">Each claim in one sentence, with what the data say of it. '
        "A claim holds if everything checked for it does: if each measured interval lies within a "
        "threshold that was written "
        "down before the run. It does not hold if one interval lies outside; otherwise it cannot "
        "be told. Numbers that were "
        "computed without sampling have no interval, and identities, which cannot fail, are not "
        "counted.</p>\n"
        f'<ul class="claims">\n{items}\n</ul>'
    )


def _section(section: Section) -> str:
    notes = "\n".join(f'<p class="note">{escape(note)}</p>' for note in section.notes)
    figures = "\n".join(_figure(figure, section.claim) for figure in section.figures)
    badge = _badge(section.outcome) if section.verdicts else ""
    return (
        f"<h2>({escape(section.claim)}) {escape(section.title)} {badge}</h2>\n"
        f"<p "
        f'class="lead">{escape(section.sentence)}</p>\n{_verdicts(section.verdicts)}\n{notes}\n{figures}'
    )


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    level = next((v.estimate.level for v in verdicts if v.estimate is not None), 0.95)
    measured = f"Value [{100 * level:g} % interval]"
    rows = []
    for v in verdicts:
        detail = f'<span class="detail">{escape(v.detail)}</span>' if v.detail else ""
        number = escape(value_text(v).replace("-", "\N{MINUS SIGN}")) or "none"
        source = (
            f'<details class="detail"><summary>where from</summary>{escape(v.source)}</details>'
            if v.source
            else ""
        )
        rows.append(
            f'<tr role="row"><th role="rowheader" scope="row">{escape(v.claim)}</th>'
            f'<td role="cell">{escape(v.sentence)}{detail}</td>'
            f'<td role="cell">{_mark(v)}</td>'
            f'<td role="cell" class="number" data-label="{measured}">{number}</td>'
            f'<td role="cell" '
            f'data-label="Threshold">{escape(v.threshold) or "none"}{source}</td></tr>'
        )
    head = "".join(
        f'<th role="columnheader" scope="col">{name}</th>'
        for name in (
            "Where",
            "What is claimed",
            "Verdict",
            measured,
            "Threshold set before the run",
        )
    )
    return (
        f'<table class="verdicts" role="table"><thead role="rowgroup"><tr '
        f'role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">\n{chr(10).join(rows)}\n</tbody></table>'
    )


def _figure(figure: FigureData, claim: str) -> str:
    name = f"{claim}-{figure.key}"
    key = "; ".join(MEANING[style] for style in figure.styles)
    data = "data:text/csv;charset=utf-8," + quote(figure.csv(), safe=",.-+ ")
    return f"""<figure aria-labelledby="title-{name}">
<figcaption><h3 id="title-{name}">{escape(figure.title)}</h3>{escape(figure.caption)}
<span class="key">{key[:1].upper()}{key[1:]}.</span></figcaption>
<div class="plot" id="plot-{name}" data-key="{figure.key}" role="img" aria-label="{escape(figure.caption)}"></div>
<script type="application/json">{plot_json(figure)}</script>
<div class="tools"><a download="{figure.key}.csv" href="{escape(data)}">Download the data (CSV)</a>
<details data-numbers><summary>Show the numbers</summary><div class="numbers" tabindex="0"></div></details></div>
</figure>"""


def _settings(settings: Mapping[str, Any]) -> str:
    blocks, plain = [], {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            blocks.append(f"<h3>{escape(str(key))}</h3>\n{_rows(value)}")
        else:
            plain[key] = value
    return "<h2>Settings</h2>\n" + "\n".join([_rows(plain), *blocks])


def _rows(values: Mapping[str, Any]) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{escape(str(k))}</th><td>{escape(_text(v))}</td></tr>'
        for k, v in values.items()
    )
    return f'<table class="settings"><tbody>\n{rows}\n</tbody></table>'


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(entry)}" for key, entry in value.items())
    if isinstance(value, list | tuple | range):
        return ", ".join(_text(entry) for entry in value)
    return short(value) if isinstance(value, float) else str(value)
