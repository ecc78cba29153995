"""Small pages of each kind: of a paper, of a study, and of the comparison of methods."""

from __future__ import annotations

import pathlib
from types import SimpleNamespace

import numpy as np

from fegsam.cli import main
from fegsam.comparison import against_plain, longer_rounds
from fegsam.comparison.contest import Contest, Curve, contestants_for, section
from fegsam.comparison.contestants import ComparedMethod
from fegsam.comparison.frontier import GridPoint
from fegsam.comparison.suite import SuiteProblem, entries
from fegsam.report import write_report
from fegsam.report.paper import Erratum, Paper
from fegsam.reproduction.thresholds import claim_spec
from helpers.synthetic_sections import sections

PAPER = Paper(
    "On coins",
    "A. Author",
    "https://example.org",
    [Erratum("2", "A sign", "Theorem 3.1.", "-1", "1", "false", "test_sign")],
)
STUDY = """
[study]
name = "small"
title = "A small study"
seeds = 3
engine = "reference"
[problem]
generator = "random_walk"
states = 5
discount = 0.8
[problem.target]
kind = "uniform"
[problem.features]
kind = "random"
dim = 2
seed = 0
[algorithm]
name = "off_policy_linear_td"
[run]
num_steps = 60
[grid]
num_agents = [1, 4]
sync_period = [1, 6]
step_size = 0.1
[problem.behavior]
kind = "random"
count = 2
seed = 1
[[figures]]
kind = "error_curves"
by = "num_agents"
bound = true
[[figures]]
kind = "speed_up"
[[figures]]
kind = "tradeoff"
[[figures]]
kind = "floor"
by = "num_agents"
"""


def paper_page(folder: pathlib.Path) -> pathlib.Path:
    settings = {"seeds": 20, "command": "fegsam reproduce --quick -o demo"}
    return write_report(sections(), folder, title="Claims, checked", settings=settings, paper=PAPER)


def study_page(folder: pathlib.Path) -> pathlib.Path:
    """The page of a study that was run."""
    folder.mkdir(parents=True)
    spec, results = folder / "study.toml", folder / "results"
    spec.write_text(STUDY)
    assert main(["run", str(spec), "-o", str(results), "--workers", "1"]) == 0
    assert main(["report", str(results)]) == 0
    return results / "report.html"


def comparison_page(folder: pathlib.Path) -> pathlib.Path:
    """Every method on every problem, with errors made by hand, and one published claim."""
    rng, spec = np.random.default_rng(0), claim_spec("contest", True, "fegsam.comparison")
    contests = [_contest(rng, entry, spec.sizes) for entry in entries()]
    rounds = claim_spec("longer_rounds", True, "fegsam.comparison").resized(periods=[10, 100, 1000])
    found = [
        against_plain.examine(spec, contests, ["One problem is left out: it has no fixed point."]),
        longer_rounds.examine(rounds),
        *(section(each, number, spec.sizes) for number, each in enumerate(contests, start=1)),
    ]
    return write_report(found, folder, title="Methods, compared", settings={"agents": 8})


def _contest(rng: np.random.Generator, entry: SuiteProblem, sizes: SimpleNamespace) -> Contest:
    first, second = (
        {each: _curve(rng, each, entry, budgets) for each in contestants_for(entry)}
        for budgets in (sizes.budgets, sizes.lengths)
    )
    return Contest(entry, first, second)


def _curve(
    rng: np.random.Generator, each: ComparedMethod, entry: SuiteProblem, budgets: list[int]
) -> Curve:
    x = np.array(budgets)
    truth = rng.uniform(0.5, 2.0) * (1.0 / x + 1e-3)
    errors = truth[:, None] * rng.gamma(3.0, 1 / 3, size=(len(x), 40))
    known = entry.has_exact and each.has_exact
    setting = GridPoint(0.32 * each.scale, 4, 64)
    return Curve(x, (setting,) * len(x), errors, truth if known else np.full(len(x), np.nan))
