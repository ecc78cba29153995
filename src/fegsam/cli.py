"""The command line: parses arguments, calls the library, and reports errors in one sentence."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import fegsam
from fegsam.commands import (
    bench,
    compare,
    data,
    doctor,
    export,
    federate,
    new,
    plan,
    report,
    reproduce,
    run,
)
from fegsam.commands.command import Command
from fegsam.completion import SHELLS, completion_script, shell_in_use
from fegsam.errors import ProblemError
from fegsam.help_text import HelpFormatter
from fegsam.interrupts import lost_interrupts
from fegsam.versions import installed_version
from fegsam.warning_text import brief_warnings

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 2 if its input cannot be used, 130 if interrupted."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 0
    with lost_interrupts() as lost, brief_warnings():
        try:
            return _run(given)
        except KeyboardInterrupt as stop:
            print(f"fegsam: {str(stop) or 'interrupted'}", file=sys.stderr)
            return 130
        except RuntimeError:
            if not lost.is_set():
                raise
            print("fegsam: interrupted", file=sys.stderr)
            return 130


def _run(given: argparse.Namespace) -> int:
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
        formatter_class=HelpFormatter,
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
            formatter_class=HelpFormatter,
        )
        command.add_arguments(parser)
        parsers[f"fegsam {name}"] = parser
    return parsers


def _completion_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell",
        nargs="?",
        choices=SHELLS,
        default=shell_in_use(),
        help="your login shell by default",
    )


def _completion(given: argparse.Namespace) -> int:
    print(completion_script(_parser(), given.shell))
    return 0


_COMPLETION = Command(
    "print a script that completes this command in bash and zsh",
    "Print a script that completes commands, options and files when the tab key is pressed.",
    """\
examples:
  eval "$(fegsam completion)"               for this shell
  fegsam completion >> ~/.bashrc            for every new shell""",
    _completion_arguments,
    _completion,
)

_COMMANDS: dict[str, Command] = {
    "reproduce": reproduce.COMMAND,
    "compare": compare.COMMAND,
    "new": new.COMMAND,
    "run": run.COMMAND,
    "report": report.COMMAND,
    "export": export.COMMAND,
    "plan": plan.COMMAND,
    "bench": bench.COMMAND,
    "federate": federate.COMMAND,
    "data": data.COMMAND,
    "completion": _COMPLETION,
    "doctor": doctor.COMMAND,
}
"""The commands in the order of the help text."""
