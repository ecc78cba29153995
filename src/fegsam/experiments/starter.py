"""`fegsam new`: a commented study to begin with."""

from __future__ import annotations

from pathlib import Path

from fegsam.errors import ProblemError

STUDY_FILE = "study.toml"
STARTER = """\
# A study: every combination of the values in [grid] is a cell, run over all seeds.
# fegsam run --keys lists every table and key.

[study]
name = "starter"
title = "More agents, less error"
seeds = 8                       # independent runs of each cell; more make intervals shorter

[problem]                       # what is learned: here a random MDP
generator = "garnet"
states = 10
actions = 2
branching = 3                   # next states of each action
discount = 0.8
seed = 0
connected = true                # every state can be reached from every other

[problem.behavior]              # how the agents act while they learn: all alike here
kind = "uniform"
# kind = "random"               # instead: private policies, drawn at random
# count = 4
# seed = 1

[algorithm]
name = "q_learning"             # or another of fegsam run --keys algorithm; those that evaluate a
                                # policy need it as [problem.target]

[run]
num_steps = 40_000              # long enough for the error to level off

[grid]
num_agents = [1, 4, 16]         # N
sync_period = 10                # K: local steps between two synchronisations
step_size = 0.1                 # alpha

[[figures]]
kind = "error_curves"           # the error over time, one curve for each cell

[[figures]]
kind = "speed_up"               # how many times lower the error is with more agents
"""


def write_starter(directory: Path) -> Path:
    """Write the study to a new file in `directory`, which is created if it is missing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_starter(Path(folder) / "mine").name
    'study.toml'
    """
    path = directory / STUDY_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(STARTER)
    except FileExistsError:
        raise ProblemError(
            f"{str(path)!r} exists already and is left as it is; give another directory."
        ) from None
    except OSError as error:
        raise ProblemError(
            f"{str(path)!r} cannot be written ({error.strerror}); give another directory."
        ) from error
    return path


def way_on(path: Path) -> str:
    """What to do with a new study, command by command.

    >>> print(way_on(Path("mine/study.toml")).splitlines()[1])
      fegsam run mine/study.toml --check              check it and count its cells
    """
    results = path.parent / "results"
    steps = [
        (f"fegsam run {path} --check", "check it and count its cells"),
        (f"fegsam run {path} -o {results}", "run it; a minute the first time"),
        (f"fegsam report {results}", "draw it: one page that needs no network"),
        ("fegsam run --keys", "every key that a study can have"),
    ]
    widest = max(len(command) for command, _ in steps)
    lines = [f"  {command.ljust(widest)}  {said}" for command, said in steps]
    return "\n".join([f"{path} is a study to change as you like. The way on:", *lines])
