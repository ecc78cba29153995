"""The report: one self-contained HTML file, with a tab for each claim and every verdict."""

from __future__ import annotations

import os
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import metadata, resources
from typing import Any, NamedTuple
from urllib.parse import quote

from fegsam.errors import ProblemError
from fegsam.report.evidence import HEADS, MEANING_OF_KINDS, evidence
from fegsam.report.figure_data import MEANING, FigureData
from fegsam.report.interactive import plot_json, plotly_script
from fegsam.report.verdict import Outcome, Section, Verdict, tally, value_text
from fegsam.safe_files import whole
from fegsam.text import short


def write_report(
    sections: Sequence[Section],
    directory: str | os.PathLike[str],
    *,
    title: str,
    settings: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Write ``directory/report.html`` and return its path.

    The folder is created if it is missing. The file is written completely or not at all.

    Parameters
    ----------
    sections : sequence of Section
        One tab each, in order; each has its own letter.
    title : str
    settings : mapping
        Shown on a separate tab beside the package's version; a mapping within it becomes a separate
        table.

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
    page = _page(sections, title, settings or {})
    with whole(target) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return target


class _Tab(NamedTuple):
    key: str
    name: str
    template: str
    outcome: Outcome | None = None
    section: Section | None = None


def _page(sections: Sequence[Section], title: str, settings: Mapping[str, Any]) -> str:
    templates = _templates()
    from markupsafe import Markup  # comes with Jinja2

    verdicts = [verdict for section in sections for verdict in section.verdicts]
    rows = evidence(sections)
    tabs = [
        _Tab(
            f"claim-{section.claim}",
            f"({section.claim}) {section.title}",
            "claim.html.j2",
            section.outcome if section.verdicts else None,
            section,
        )
        for section in sections
    ]
    if rows:
        tabs.insert(0, _Tab("evidence", "Every verdict", "evidence.html.j2"))
    if verdicts:
        tabs.insert(0, _Tab("summary", "Summary", "summary.html.j2"))
    tabs.append(_Tab("settings", "Settings", "settings.html.j2"))
    version = metadata.version("fegsam")
    settings = {"fegsam": version, **settings}
    grouped = {name: value for name, value in settings.items() if isinstance(value, Mapping)}
    return templates.get_template("page.html.j2").render(
        title=title,
        version=version,
        tabs=tabs,
        sections=sections,
        verdicts=verdicts,
        evidence=rows,
        evidence_heads=HEADS,
        kinds=MEANING_OF_KINDS,
        settings={name: settings[name] for name in settings if name not in grouped},
        grouped_settings=grouped,
        style=Markup(_part("page.css")),
        script=Markup(_part("page.js")),
        plotly=Markup(plotly_script()),
        plot=lambda figure: Markup(plot_json(figure)),
    )


def _templates() -> Any:
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
        "value_text": value_text,
        "measured_head": _measured_head,
        "key_text": _key_text,
        "csv_link": _csv_link,
        "setting_text": _setting_text,
    }
    return templates


def require_jinja2() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise ProblemError("The report needs Jinja2; run: pip install 'fegsam[report]'") from error
    return jinja2


def _part(name: str) -> str:
    return resources.files("fegsam.report").joinpath("templates", name).read_text(encoding="utf-8")


def _measured_head(verdicts: Sequence[Verdict]) -> str:
    level = next((v.estimate.level for v in verdicts if v.estimate is not None), 0.95)
    return f"Value [{100 * level:g} % interval]"


def _key_text(figure: FigureData) -> str:
    key = "; ".join(MEANING[style] for style in figure.styles)
    return f"{key[:1].upper()}{key[1:]}."


def _csv_link(figure: FigureData) -> str:
    return "data:text/csv;charset=utf-8," + quote(figure.csv(), safe=",.-+ ")


def _setting_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_setting_text(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple | range):
        return ", ".join(_setting_text(entry) for entry in value)
    return short(value) if isinstance(value, float) else str(value)
