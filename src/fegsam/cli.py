"""The command line: parses arguments, calls the library, and reports errors in one sentence."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fegsam
from fegsam.completion import SHELLS, add_path, completion_script, shell_in_use
from fegsam.data import command as data_command
from fegsam.errors import ProblemError
from fegsam.federation.command import TRUST, add_actions, federate
from fegsam.versions import installed_version

_ABOUT = f"""\
{fegsam.__doc__}

N agents, each with its own data, take K local steps, average their parameters and continue.
Studies are TOML files. Results are stored as they are computed, so a killed run resumes where it
stopped."""

_MORE = """\
examples:
  fegsam reproduce --quick                  check the claims of the paper in a few minutes
  fegsam new mine                           write a study to begin with
  fegsam run study.toml                     run a study, then: fegsam report study
  fegsam plan study.toml --accuracy 0.01    step size, sync period and steps that reach it

exit status:
  0 on success, 2 if the input cannot be used (one sentence on standard error says why and what to
  do), 130 if interrupted.

environment:
  NUMBA_NUM_THREADS   number of threads of a run; all cores by default
  NUMBA_CACHE_DIR     directory of compiled code; beside the package by default

fegsam COMMAND --help explains a command."""


class _Command(NamedTuple):
    line: str
    """its help in one line"""
    about: str
    """its help text above the options"""
    examples: str
    """its help text below the options"""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 2 if its input cannot be used, 130 if interrupted."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 0
    try:
        return _COMMANDS[given.command].run(given)
    except ProblemError as error:
        print(f"fegsam: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(
            f"fegsam: {error.filename or 'a file'} cannot be used: {error.strerror or error}",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt as stop:
        print(f"fegsam: {str(stop) or 'interrupted'}", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    return _parsers()["fegsam"]


def help_pages() -> dict[str, str]:
    """The help text of ``fegsam`` and of each command, by command."""
    return {name: parser.format_help() for name, parser in _parsers().items()}


def _parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of the whole command line and of each command, by command."""
    whole = argparse.ArgumentParser(
        prog="fegsam",
        description=_ABOUT,
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument(
        "--version", action="version", version=f"fegsam {installed_version('fegsam')}"
    )
    commands = whole.add_subparsers(dest="command", metavar="command")
    parsers = {"fegsam": whole}
    for name, command in _COMMANDS.items():
        parser = commands.add_parser(
            name,
            help=command.line,
            description=command.about,
            epilog=command.examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(parser)
        parsers[f"fegsam {name}"] = parser
    return parsers


def _reproduce_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one problem per algorithm: minutes instead of half an hour",
    )
    parser.add_argument(
        "--only", metavar="LETTERS", help="check only these claims, such as cd; all by default"
    )
    _depth_arguments(parser)
    add_path(
        parser,
        "-o",
        "--output",
        default=Path("reproduction"),
        metavar="DIR",
        help="directory of the report",
    )


def _depth_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--more-seeds",
        type=_count,
        default=1,
        metavar="TIMES",
        help="run this many times the seeds, to decide what cannot be told with fewer",
    )
    parser.add_argument("--verbose", action="store_true", help="print every number too")


def _compare_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick",
        action="store_true",
        help="shorter runs and fewer seeds: minutes instead of an hour",
    )
    _depth_arguments(parser)
    add_path(
        parser,
        "-o",
        "--output",
        default=Path("comparison"),
        metavar="DIR",
        help="directory of the report",
    )


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


def _new_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "directory", metavar="DIR", help="where to write study.toml; created")


def _run_arguments(parser: argparse.ArgumentParser) -> None:
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
    _add_trust(parser)


def _report_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "directory", help="the results of fegsam run")
    _add_trust(parser)


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "results", help="a history (.nc), or the results of fegsam run")
    add_path(
        parser,
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="file to write: .json, or .py for a Python module",
    )
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="AXIS=VALUE",
        help="which cell of the results, such as step_size=0.1; may be repeated",
    )
    parser.add_argument("--seed", type=int, help="one of the run's seeds; the first by default")
    parser.add_argument("--actions", type=int, metavar="A", help="number of actions of a history")
    parser.add_argument(
        "--features",
        metavar="TOML",
        help="""features of a history, such as 'kind="fourier", low=[0], high=[1], order=3'""",
    )
    _add_trust(parser)


def _plan_arguments(parser: argparse.ArgumentParser) -> None:
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
    _add_trust(parser)


def _bench_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="fewer and smaller cells: a minute")
    parser.add_argument(
        "--axes",
        type=lambda text: text.split(","),
        metavar="A,B",
        help="axes to time, such as agents,threads; all by default",
    )
    parser.add_argument(
        "--contestants",
        type=lambda text: text.split(","),
        metavar="A,B",
        help="contestants to time, such as cpu,JAX; all by default",
    )
    parser.add_argument("--seconds", type=_positive, help="duration of one timing")
    parser.add_argument("--repeats", type=_count, help="number of timings of each contestant")
    add_path(parser, "--output", metavar="FILE", help="write results as JSON after every cell")
    add_path(
        parser,
        "--show",
        metavar="FILE",
        help="show the results of an earlier run instead of timing",
    )
    add_path(
        parser, "--compare", metavar="FILE", help="print ratios to the results of an earlier run"
    )
    add_path(parser, "--figures", metavar="DIR", help="draw scaling curves")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")


def _completion_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell",
        nargs="?",
        choices=SHELLS,
        default=shell_in_use(),
        help="your login shell by default",
    )


def _add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trust", action="store_true", help=TRUST)


def _positive(text: str) -> float:
    if not 0 < float(text) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return float(text)


def _count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return int(text)


def _reproduce(given: argparse.Namespace) -> int:
    from fegsam.report import summary
    from fegsam.reproduction import reproduce

    sections, page = reproduce(
        given.output, quick=given.quick, only=given.only, more_seeds=given.more_seeds
    )
    print(summary(sections, verbose=given.verbose))
    _print_page(page, given.verbose)
    return 0


def _print_page(page: Path, verbose: bool) -> None:
    print("A claim that does not hold is a finding, not a failure of the run.")
    if not verbose:
        print("Every number: the same command with --verbose, or the report.")
    print(f"report: {page}")


def _compare(given: argparse.Namespace) -> int:
    from fegsam.comparison import compare
    from fegsam.report import summary

    sections, page = compare(given.output, quick=given.quick, more_seeds=given.more_seeds)
    judged = [section for section in sections if section.verdicts]
    print(summary(judged, verbose=given.verbose))
    _print_page(page, given.verbose)
    return 0


def _new(given: argparse.Namespace) -> int:
    from fegsam.experiments.starter import way_on, write_starter

    print(way_on(write_starter(given.directory)))
    return 0


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


def _report(given: argparse.Namespace) -> int:
    from fegsam.report.study import report_study

    print(f"report: {report_study(given.directory, trust=given.trust)}")
    return 0


def _export(given: argparse.Namespace) -> int:
    from fegsam.export.command import export

    return export(given)


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


def _bench(given: argparse.Namespace) -> int:
    from fegsam.bench.command import Race, bench

    race = Race(given.axes, given.contestants, given.quick, given.seconds, given.repeats)
    return bench(
        race,
        output=given.output,
        stored=given.show,
        old=given.compare,
        figures=given.figures,
        markdown=given.markdown,
    )


def _completion(given: argparse.Namespace) -> int:
    print(completion_script(_parser(), given.shell))
    return 0


def _doctor(given: argparse.Namespace) -> int:
    from fegsam.doctor import examine

    print(examine())
    return 0


_COMMANDS: dict[str, _Command] = {
    "reproduce": _Command(
        "check and draw every claim of the paper; an HTML report at the end",
        """\
Check every claim of the paper on several problems, draw it, and judge it against thresholds that
were set beforehand: it holds, holds within x %, does not hold, or cannot be told. Figures (SVG,
PDF, PNG) and report.html are written to the directory. Finished claims are kept there: a run that
was interrupted or killed goes on where it was, and the same command again takes seconds.""",
        """\
examples:
  fegsam reproduce --quick                  a few minutes; writes to reproduction
  fegsam reproduce -o ~/claims              everything: half an hour on two cores
  fegsam reproduce --only cd --more-seeds 4 two claims, with four times the seeds""",
        _reproduce_arguments,
        _reproduce,
    ),
    "compare": _Command(
        "compare all methods, tuned alike, and judge their published claims",
        """\
Tune every method with the same trials on every problem of a suite, draw the error that it reaches
against communications and against samples, and judge the published claims about it. Figures (SVG,
PDF, PNG) and report.html are written to the directory.""",
        """\
examples:
  fegsam compare --quick                    minutes; writes to comparison
  fegsam compare -o ~/methods               everything: about an hour on two cores""",
        _compare_arguments,
        _compare,
    ),
    "new": _Command(
        "write a commented study to begin with, and show the way on",
        """\
Write DIR/study.toml, a small study with a comment on every line that you may want to change, and
print the commands that check, run and draw it. No file is overwritten.""",
        """\
examples:
  fegsam new mine""",
        _new_arguments,
        _new,
    ),
    "run": _Command(
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
        _run_arguments,
        _run,
    ),
    "report": _Command(
        "draw figures and an HTML page from stored results",
        """\
Draw the figures that the stored study asks for, and write report.html: one page that needs no
network.""",
        """\
examples:
  fegsam run study.toml -o results
  fegsam report results""",
        _report_arguments,
        _report,
    ),
    "export": _Command(
        "write what a run learned as JSON or as a Python module",
        """\
Write the table or the weights that a run learned, with the features that they belong to. A Python
module has value(observation) and action(observation), and needs neither fegsam nor NumPy.""",
        """\
examples:
  fegsam export results -o learned.py --where step_size=0.1
  fegsam export history.nc -o learned.json --actions 4""",
        _export_arguments,
        _export,
    ),
    "plan": _Command(
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
        _plan_arguments,
        _plan,
    ),
    "bench": _Command(
        "compare the speed of the engines with baselines and the machine's limits",
        """\
Time the engines, plain Python, NumPy, JAX and a hand-written C loop along several axes, and compare
them with the limit of the machine's memory. The contestants take turns in one run, so that a busy
machine slows all of them alike.""",
        """\
examples:
  fegsam bench --quick                      a minute
  fegsam bench --axes agents,threads --output now.json
  fegsam bench --axes scale --contestants cuda,JAX
  fegsam bench --show now.json --compare before.json""",
        _bench_arguments,
        _bench,
    ),
    "federate": _Command(
        "run a real federation, on this machine or on several",
        """\
Run agents as separate processes, on this machine or on several. Each agent keeps its environment
and its policy to itself; only parameters travel, over TLS and with keys. The results equal those
of the simulator.""",
        """\
examples:
  fegsam federate run study.toml -o federation               a whole federation on this machine
  fegsam federate init DIR study.toml --host server.example  directories for several machines""",
        add_actions,
        federate,
    ),
    "data": _Command(
        "check a log of real data, describe it, or import a dataset",
        """\
Look for damage in a log, show what is in it and which algorithms it can feed, or write a dataset
of Minari as a log. A log is a Parquet or a CSV file, or several.""",
        """\
examples:
  fegsam data check log.parquet             look for damage
  fegsam data describe log.parquet          show what is in it
  fegsam data import minari:toy/lake-v0 -o lake.parquet""",
        data_command.add_actions,
        data_command.data,
    ),
    "completion": _Command(
        "print a script that completes this command in bash and zsh",
        "Print a script that completes commands, options and files when the tab key is pressed.",
        """\
examples:
  eval "$(fegsam completion)"               for this shell
  fegsam completion >> ~/.bashrc            for every new shell""",
        _completion_arguments,
        _completion,
    ),
    "doctor": _Command(
        "show what is installed, what is missing and what to do",
        """\
Show which packages, threads, compiler cache and GPU a run would use, and what to do about each
gap.""",
        """\
examples:
  fegsam doctor""",
        lambda parser: None,
        _doctor,
    ),
}
