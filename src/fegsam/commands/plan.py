"""``fegsam plan``: find settings that reach an accuracy."""

from __future__ import annotations

import argparse

from fegsam.commands.command import Command, add_trust
from fegsam.completion import add_path


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(
        parser,
        "spec",
        help="a TOML file; its first cell with the most agents gives the problem and the algorithm",
    )
    parser.add_argument(
        "--accuracy",
        type=float,
        required=True,
        help="target for E||average - theta*||_2^2 of the last iterate",
    )
    parser.add_argument(
        "--goal",
        choices=("communications", "samples"),
        default="communications",
        help="what to minimise",
    )
    parser.add_argument(
        "--budget",
        type=int,
        metavar="N",
        help="largest number of steps (goal communications; by default 16 times the smallest "
        "possible) or of communications (goal samples)",
    )
    parser.add_argument(
        "--methods",
        nargs="*",
        metavar="NAME",
        help="compare methods: those named, of the study's [methods] or published ones; without a "
        "name, plain averaging and the common alternatives",
    )
    add_trust(parser)


def _plan(given: argparse.Namespace) -> int:
    from fegsam.experiments.spec.study import load_study
    from fegsam.planning import plan, plan_methods

    study = load_study(given.spec, trust=given.trust or None)
    cell = max(study.cells(), key=lambda cell: cell.num_agents)
    problem, algorithm = cell.build_simulated()
    wanted = {"accuracy": given.accuracy, "goal": given.goal, "budget": given.budget}
    if given.methods is None:
        found = plan(problem, algorithm, **wanted)
    else:
        named = {name: study.method(name) for name in given.methods} or None
        found = plan_methods(problem, algorithm, methods=named, **wanted)
    print(f"{type(algorithm).__name__}, agents: {cell.num_agents}\n{found}")
    return 0


COMMAND = Command(
    "find the step size, sync period and number of steps that reach an accuracy",
    """\
Find the step size, the sync period and the number of steps that bring the squared error down to
an accuracy with the fewest communications (or samples), and verify them by a run. The trade-off
between communications and samples is printed too. With --methods, do so for several methods and
print their plans, the best first.""",
    """\
examples:
  fegsam plan study.toml --accuracy 0.01
  fegsam plan study.toml --accuracy 0.01 --goal samples --budget 500  at most 500 communications
  fegsam plan study.toml --accuracy 0.01 --methods plain scafflsa     the better of the two""",
    _add_arguments,
    _plan,
)
