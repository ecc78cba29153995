"""The page ``docs/verdicts.md``: every check of the reproduction, generated from the specs.

``python -m fegsam.reproduction.verdict_table > docs/verdicts.md`` regenerates it, and a test checks
that the page matches the specs.
"""

from __future__ import annotations

import re

from fegsam.report.evidence import MEANING_OF_KINDS
from fegsam.reproduction.paper_page import this_paper
from fegsam.reproduction.reproduce import CLAIMS
from fegsam.reproduction.thresholds import RULES, Check, ClaimSpec, claim_spec
from fegsam.text import markdown_head, markdown_row

_OPENING = """# Every verdict

This page lists every check of `fegsam reproduce`, claim by claim:
the claim, where the [paper](paper.md) states it, how the check can fail, the threshold, and its
origin.
It is generated from the specs in `src/fegsam/reproduction/specs`, which are fixed before any run.
The report of a run shows the same table with the outcomes.

A verdict is one of four:

- *holds*: the whole interval lies within the threshold;
- *holds within x %*: the claim is an equality, and the whole interval lies within x % of it;
- *does not hold*: the whole interval lies outside the threshold;
- *cannot be told*: the interval contains the threshold.

A claim holds if all its checks hold, within the largest percentage of its main checks.
One question is judged apart from its claim:
whether the theorem's conditions admit the corollary's schedule, in (d).

Finished claims are kept in the output directory.
A run that was interrupted goes on, and the same command again takes seconds.
`fegsam reproduce --only c --more-seeds 4 -o claim-c` runs one claim with four times the seeds,
to decide what cannot be told.

"""
_PAPER = this_paper()
_HEADS = ("claim", "theorem", "kind", "how it can fail", "threshold", "source of the threshold")


def page() -> str:
    """The whole page, in Markdown."""
    rules = "\n".join(map(markdown_row, RULES.items()))
    parts = [
        f"{_OPENING}{MEANING_OF_KINDS}\n\n## Sources of the thresholds\n\n"
        f"{markdown_head(('rule', ''))}\n{rules}\n"
    ]
    for name in CLAIMS:
        spec = claim_spec(name, quick=True)
        rows = "\n".join(_row(check) for check in spec.checks.values())
        parts.append(
            f"## ({spec.letter}) {spec.title}\n\n{_sources(spec)}\n{markdown_head(_HEADS)}\n"
            f"{rows}\n"
        )
    return "\n".join(parts)


def _sources(spec: ClaimSpec) -> str:
    """Where the claim stands in the paper, and what is wrong there."""
    text = f"In the paper: {_linked(spec.theorem, placed=True)}.\n"
    if spec.errata:
        leads = "; ".join(
            f"[{number}. {_PAPER.erratum(number).title}](errata.md#{_slug(number)})"
            for number in spec.errata
        )
        text += f"Errata: {leads}.\n"
    return text


def _linked(text: str, placed: bool = False) -> str:
    """The text with links from the statements of the paper to the page that goes through them."""
    parts = []
    for said, statement in _PAPER.pieces(text):
        if statement is None:
            parts.append(said)
        else:
            place = f" ({statement.place})" if placed else ""
            parts.append(f"[{said}](paper.md#{anchor(statement.page)}){place}")
    return "".join(parts)


def anchor(heading: str) -> str:
    """The name of a heading's place on a page, as code hosts and the site make it.

    >>> anchor("Section 3.3: the main result")
    'section-33-the-main-result'
    """
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _slug(number: str) -> str:
    return anchor(f"{number}. {_PAPER.erratum(number).title}")


def _row(check: Check) -> str:
    # Values that a run fills in are in italics.
    claim = re.sub(r"\{(\w+)[^}]*\}", r"*\1*", check.claim)
    cells = (
        claim,
        _linked(check.theorem),
        check.kind,
        check.fails,
        check.threshold,
        f"{check.rule}. {check.note}".rstrip(),
    )
    return markdown_row(cells)


if __name__ == "__main__":
    print(page(), end="")
