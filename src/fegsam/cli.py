"""The command line: parses, calls the library, and says what went wrong in one sentence."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import fegsam
from fegsam.errors import ProblemError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 if it ran, 2 if what it was given cannot be used, 130 if it was interrupted."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 0
    try:
        return _COMMANDS[given.command](given)
    except ProblemError as error:
        print(f"fegsam: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"fegsam: {error.filename or 'a file'} cannot be used: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"fegsam: {stop or 'interrupted'}", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fegsam", description=fegsam.__doc__)
    parser.add_argument("--version", action="version", version=f"fegsam {importlib.metadata.version('fegsam')}")
    commands = parser.add_subparsers(dest="command", metavar="command")

    reproduce = commands.add_parser("reproduce", help="check and draw every claim of the paper; an HTML report at the end")
    reproduce.add_argument("--quick", action="store_true", help="one problem an algorithm: minutes instead of an hour")
    reproduce.add_argument("-o", "--output", type=Path, default=Path("reproduction"), metavar="DIR")

    run = commands.add_parser("run", help="run the study of a TOML file; killed, it goes on where it was")
    run.add_argument("spec", type=Path)
    run.add_argument("-o", "--output", type=Path, metavar="DIR", help="where results go; named after the study by default")
    run.add_argument("--check", action="store_true", help="only say whether the file is right")
    run.add_argument("--engine", choices=("cpu", "reference"))
    run.add_argument("--executor", choices=("local", "ray"), default="local")
    run.add_argument("--workers", type=int, metavar="N", help="processes; as many as cores by default")

    report = commands.add_parser("report", help="figures and an HTML page from stored results")
    report.add_argument("directory", type=Path)

    plan = commands.add_parser("plan", help="which step size, sync period and number of steps reach an accuracy")
    plan.add_argument("spec", type=Path, help="its first cell says the problem, the algorithm and the number of agents")
    plan.add_argument("--accuracy", type=float, required=True, help="E||average - theta*||_2^2 of the last iterate")
    plan.add_argument("--goal", choices=("communications", "samples"), default="communications", help="what to spend least of")
    plan.add_argument(
        "--budget",
        type=int,
        metavar="N",
        help="the most steps (goal communications; 16 times the fewest by default) or the most communications (goal samples)",
    )

    commands.add_parser("doctor", help="what is installed, what is missing, what to do")
    return parser


def _reproduce(given: argparse.Namespace) -> int:
    from fegsam.report import summary
    from fegsam.reproduction import reproduce

    sections, page = reproduce(given.output, quick=given.quick)
    print(summary(sections))
    print(f"report: {page}")
    return 0


def _run(given: argparse.Namespace) -> int:
    from fegsam.experiments.spec import load_study

    study = load_study(given.spec)
    if given.engine is not None:
        study = study.override({"study.engine": given.engine})
    cells = study.cells()
    if given.check:
        print(f"{given.spec}: {len(cells)} cells")
        return 0
    from fegsam.experiments.sweep import run_sweep

    directory = given.output or Path(study.name)
    run_sweep(study, directory, executor=given.executor, workers=given.workers)
    print(f"{len(cells)} cells in {directory}; fegsam report {directory} draws them")
    return 0


def _report(given: argparse.Namespace) -> int:
    from fegsam.report.study import report_study

    print(f"report: {report_study(given.directory)}")
    return 0


def _plan(given: argparse.Namespace) -> int:
    from fegsam.experiments.spec import load_study
    from fegsam.planning import plan

    problem, algorithm = load_study(given.spec).cells()[0].build()
    print(plan(problem, algorithm, accuracy=given.accuracy, goal=given.goal, budget=given.budget))
    return 0


_OPTIONAL = {
    "netCDF4": ("saving and loading histories", "netcdf"),
    "gymnasium": ("environments from Gymnasium", "gymnasium"),
    "matplotlib": ("figures", "report"),
    "plotly": ("the HTML report", "report"),
    "pydantic": ("studies from TOML files", "experiments"),
    "ray": ("sweeps on a Ray cluster", "ray"),
}


def _doctor(given: argparse.Namespace) -> int:
    print(f"fegsam {importlib.metadata.version('fegsam')}, Python {platform.python_version()}, {os.cpu_count()} cores")
    for name in ("numpy", "scipy", "numba", "xarray"):
        print(f"  {name:<12} {importlib.metadata.version(name)}")
    for name, (purpose, extra) in _OPTIONAL.items():
        try:
            print(f"  {name:<12} {importlib.metadata.version(name):<12} {purpose}")
        except importlib.metadata.PackageNotFoundError:
            print(f"  {name:<12} {'missing':<12} {purpose}: pip install 'fegsam[{extra}]'")
    if shutil.which("cc") is None:
        print("  cc           missing      the benchmarks' C loop: install a C compiler")
    return 0


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "reproduce": _reproduce,
    "run": _run,
    "report": _report,
    "plan": _plan,
    "doctor": _doctor,
}
