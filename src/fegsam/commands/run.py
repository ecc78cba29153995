"""``fegsam run``: run the study of a TOML file."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from fegsam.commands.command import Command, add_trust
from fegsam.completion import add_path
from fegsam.errors import ProblemError


class _ShowKeys(argparse.Action):
    """Prints the keys of a study and ends, as --help does; no file is needed."""

    def __call__(self, parser: argparse.ArgumentParser, *given: Any) -> None:
        from fegsam.experiments.spec.keys import keys_text

        _, table, *_ = given
        try:
            print(keys_text(table), flush=True)
        except ProblemError as error:
            parser.exit(2, f"fegsam: {error}\n")
        except BrokenPipeError:
            # The reader, such as head, has seen enough; Python would complain when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        parser.exit()


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "spec", help="a TOML file")
    add_path(
        parser,
        "-o",
        "--output",
        metavar="DIR",
        help="directory of the results; named after the study by default",
    )
    parser.add_argument("--check", action="store_true", help="only check the file")
    parser.add_argument(
        "--keys",
        action=_ShowKeys,
        nargs="?",
        metavar="TABLE",
        help="list the keys of a study, or of one of its tables, such as problem",
    )
    parser.add_argument(
        "--engine",
        choices=("cpu", "cuda", "reference"),
        help="engine to use instead of the study's",
    )
    parser.add_argument(
        "--executor",
        choices=("local", "ray"),
        default="local",
        help="run on local processes or on a Ray cluster",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="number of processes; one per core by default"
    )
    add_trust(parser)


def _run(given: argparse.Namespace) -> int:
    from fegsam.experiments.spec.foreign_code import code_of
    from fegsam.experiments.spec.study import load_study

    # Checking only reads the file: no code that it names is run.
    study = load_study(given.spec, trust=True if given.trust else False if given.check else None)
    if given.engine is not None:
        study = study.override({"study.engine": given.engine})
    cells = study.cells()
    if given.check:
        if not given.trust:  # a trusted study was already checked when it was read
            study.check()
        named = dict.fromkeys(
            code.what for cell in cells for code in code_of(cell) if not code.may_run(cell.trust)
        )
        unchecked = f"; not checked without --trust: {', '.join(named)}" if named else ""
        print(f"{given.spec}: {len(cells)} cells{unchecked}")
        return 0
    from fegsam.experiments.sweep.sweep import run_sweep

    directory = given.output or Path(study.name)
    run_sweep(study, directory, executor=given.executor, workers=given.workers)
    print(f"{len(cells)} cells in {directory}; fegsam report {directory} draws them")
    return 0


COMMAND = Command(
    "run the study of a TOML file; a killed run resumes where it stopped",
    """\
Run all cells of a study: each combination of agents, sync periods, step sizes and other axes.
Finished cells are stored: the same command resumes a stopped run, and ends with the same bytes as
a run that was never stopped.""",
    """\
examples:
  fegsam run --keys                         list every key of a study
  fegsam run study.toml --check             check the file and count its cells
  fegsam run study.toml -o results          run it
  fegsam run study.toml --executor ray      run it on a Ray cluster""",
    _add_arguments,
    _run,
)
