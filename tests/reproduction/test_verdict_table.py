"""Every check says what it is about, how it can fail and where its threshold comes from; the page
in docs is made from that."""

from __future__ import annotations

import pathlib
import re
import string

import pytest

from fegsam.report import Verdict
from fegsam.report.paper import names_in
from fegsam.report.verdict import Outcome
from fegsam.reproduction.errata import errata, parse
from fegsam.reproduction.findings import finding
from fegsam.reproduction.paper_page import this_paper
from fegsam.reproduction.reproduce import CLAIMS
from fegsam.reproduction.statements import ELSEWHERE, STATEMENTS
from fegsam.reproduction.thresholds import RULES, ClaimSpec, certain, claim_spec
from fegsam.reproduction.verdict_table import anchor, page

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def test_page_of_every_verdict_is_made_from_the_specs() -> None:
    """Renew it by ``python -m fegsam.reproduction.verdict_table > docs/verdicts.md``."""
    assert (DOCS / "verdicts.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", CLAIMS)
def test_every_check_is_complete(name: str, quick: bool) -> None:
    checks = claim_spec(name, quick).checks
    assert checks
    for key, check in checks.items():
        assert check.rule in RULES, key
        assert min(map(len, (check.claim, check.theorem, check.fails))) > 10, key
        low, high = check.bounds
        assert low is None or high is None or low <= high
        # A limit is a number that exists or not, and nothing else goes without a bound.
        assert ((low, high) == (None, None)) == (check.rule == "limit"), key
        assert check.kind != "identity" or check.fails.startswith("It cannot"), key


def test_letters_are_those_of_the_claims_in_order() -> None:
    letters = [claim_spec(name, quick=True).letter for name in CLAIMS]
    assert letters == list(string.ascii_lowercase[: len(CLAIMS)])


def test_every_check_is_used_by_its_claim() -> None:
    folder = pathlib.Path(__file__).parents[2] / "src" / "fegsam" / "reproduction"
    for name in CLAIMS:
        code = (folder / f"{name}.py").read_text(encoding="utf-8")
        for key in claim_spec(name, quick=True).checks:
            assert f'"{key}"' in code, (name, key)


def test_the_errata_of_the_page_are_those_of_the_docs() -> None:
    """Renew them by ``python -m fegsam.reproduction.errata docs/errata.md``."""
    listed = errata()
    assert listed == parse((DOCS / "errata.md").read_text(encoding="utf-8"))
    numbers = {one.number for one in listed}
    assert {one.severity for one in listed} == {"false", "inconsistent", "loose"}
    for name in CLAIMS:
        spec = claim_spec(name, quick=True)
        assert set(spec.errata) <= numbers, name
        assert spec.theorem, name
        assert spec.finding.endswith("."), name
        assert spec.expected.keys() <= spec.checks.keys(), name


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", CLAIMS)
def test_every_verdict_says_where_the_paper_states_it(name: str, quick: bool) -> None:
    """Each name is in the one table of statements, which has its section."""
    spec, table = claim_spec(name, quick), {one.name for one in STATEMENTS}
    assert names_in(spec.theorem)
    for text in (spec.theorem, *(check.theorem for check in spec.checks.values())):
        assert set(names_in(text)) <= table, text
        assert names_in(text) or text.startswith(ELSEWHERE), text
        assert not re.search(r"(?i)(theorem|lemma|proposition|corollary) [a-z]+_", text), "a label"


def test_every_statement_of_the_table_leads_somewhere() -> None:
    text = (DOCS / "paper.md").read_text(encoding="utf-8")
    headed = [part.partition("\n") for part in text.split("\n## ")[1:]]
    parts = {heading: body for heading, _, body in headed}
    used = {
        name
        for claim in CLAIMS
        for check in claim_spec(claim, quick=True).checks.values()
        for name in names_in(f"{claim_spec(claim, quick=True).theorem}; {check.theorem}")
    }
    errors = this_paper()
    for one in STATEMENTS:
        kind, _, number = one.name.partition(" ")
        assert number.split(".")[0] == one.section.split(".")[0], one.name
        assert kind in ("Section", "Appendix") or one.name in parts[one.page], one.name
        assert f"(paper.md#{anchor(one.page)})" in page() or one.name not in used, one.name
        assert one.name in used or errors.errata_of(one), one.name
    assert len({one.anchor for one in STATEMENTS}) == len(STATEMENTS)


@pytest.mark.parametrize("name", CLAIMS)
def test_a_finding_is_said_only_if_every_check_came_out_as_it_says(name: str) -> None:
    spec = claim_spec(name, quick=True)
    verdicts = [told(spec, key, spec.expected.get(key, "holds")) for key in spec.checks]
    assert "{" not in finding(spec, verdicts)
    expected = finding(spec, verdicts)
    for k, key in enumerate(spec.checks):
        usual = spec.expected.get(key, "holds")
        other = "holds" if usual == "does not hold" else "does not hold"
        odd = [*verdicts[:k], told(spec, key, other), *verdicts[k + 1 :]]
        assert finding(spec, odd) != expected, key
        assert finding(spec, odd).lower().startswith(other), key


def told(spec: ClaimSpec, key: str, outcome: Outcome) -> Verdict:
    """A verdict of a check with a given outcome."""
    check = spec.checks[key]
    return Verdict(
        "here",
        "Some sentence.",
        outcome,
        certain(0.5),
        kind=check.kind,
        target=check.target,
        role=check.role,
        check=key,
    )
