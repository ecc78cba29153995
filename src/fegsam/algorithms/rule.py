"""What an algorithm is: one agent's update at one step, written once and run by every engine.

A *rule* is a pure Python function that reads the agent's parameters, the agent's path and constant
tables, and says what to add where. It draws no random numbers and writes nothing but `out`. There
are three forms:

=====  ======================================  ===================================================
form   signature                               the engine then does
=====  ======================================  ===================================================
cell   ``rule(params, path, t, tables)``       ``params[index] += step_size * scale``
row    ``rule(params, path, t, tables)``       ``params += step_size * scale * tables.rows[index]``
dense  ``rule(params, path, t, tables, out)``  ``params += step_size * out``
=====  ======================================  ===================================================

Cell and row rules return ``(index, scale)``. The same function object is interpreted by the
`reference` engine and compiled by the others, so it may use only what Numba compiles for a CPU and
for a GPU; a helper it calls carries `numba.extending.register_jitable`. Indices are unsigned: a
signed index costs a wrap-around test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fegsam.errors import ProblemError, shown
from fegsam.problem.federation import Federation, Problem

ONE = np.uint64(1)
"""A one that leaves an unsigned index unsigned when added to it."""
ZERO = np.uint64(0)
"""A zero of the type of an unsigned index."""


class Path(NamedTuple):
    """What one agent sees; the window of step `t` starts at ``states[t]``, ``actions[t]``."""

    states: np.ndarray
    actions: np.ndarray
    kind: Any
    """The agent's kind."""
    mdp: Any
    """The index of that kind's MDP: `kind`, or 0 where all share one."""
    policy: Any
    """The index of that kind's policy: `kind`, or 0 where all share one."""


class RecordedPath(NamedTuple):
    """What one agent sees of recorded data: rows, and the transitions between them.

    Row j is ``states[j]``, a state number or the place of its features; transition j leads from row
    j to row j + 1. After a gap nothing of the window counts.
    """

    states: np.ndarray
    actions: np.ndarray
    kind: Any
    """The agent's kind."""
    rewards: np.ndarray
    discounts: np.ndarray
    """of what follows the transition; 0 where it terminates an episode"""
    ratios: np.ndarray
    """of the target policy's probability of the action to the behaviour's"""
    gaps: np.ndarray
    """bool: no transition leads on from this row, the last one of its episode"""


@runtime_checkable
class Algorithm(Protocol):
    """What an engine needs to know of an algorithm. Instances are frozen values."""

    @property
    def form(self) -> str:
        """ "cell", "row" or "dense"."""
        ...

    @property
    def rule(self) -> Callable[..., Any]: ...

    @property
    def window(self) -> int:
        """The number of transitions that one step sees: the paper's n.

        It is 0 for Algorithm 1, which sees a state.
        """
        ...

    @property
    def norm(self) -> str:
        """The norm of the algorithm's theorem: "2" or "sup"."""
        ...

    def check(self, problem: Problem) -> None:
        """Raise `ProblemError` where this algorithm cannot run on `problem`."""
        ...

    def dimension(self, problem: Problem) -> int: ...

    def policies(self, problem: Problem) -> np.ndarray:
        """(1 or M, S, A): the policies that the agents follow while they learn."""
        ...

    def tables(self, problem: Problem) -> Any:
        """The constants the rule reads, as a NamedTuple of arrays and NumPy scalars."""
        ...


def require_fixed_policies(algorithm: Algorithm, what: str) -> None:
    """Raise `ProblemError` if the agents' actions depend on their parameters.

    An algorithm whose agents act by their own parameters has an attribute `acting`, one of
    `fegsam.problem.acting`; its form is "cell" and its window 1.
    """
    if getattr(algorithm, "acting", None) is not None:
        raise ProblemError(
            f"The actions of {type(algorithm).__name__} depend on its parameters, and {what}; use "
            "fegsam.run with engine='cpu' or 'reference' and sampling='markov'."
        )


def check_algorithm(algorithm: Algorithm, problem: Problem) -> None:
    """Raise `ProblemError` unless `algorithm` is an algorithm that runs on `problem`.

    An algorithm may have a method ``check_together(problem)``, which raises where what all agents
    do together does not suffice.
    """
    check_part(algorithm, problem)
    together = getattr(algorithm, "check_together", None)
    if together is not None:
        together(problem)


def check_part(algorithm: Algorithm, problem: Problem) -> None:
    """Like `check_algorithm`, for a `problem` that may have only some of the agents."""
    if isinstance(algorithm, type) or not callable(getattr(algorithm, "check", None)):
        raise ProblemError(
            f"The algorithm is {shown(algorithm)}; give one of fegsam's, for example "
            "fegsam.QLearning()."
        )
    missing = [name for name in _MEMBERS if not hasattr(algorithm, name)]
    if missing:
        raise ProblemError(
            f"{type(algorithm).__name__} has no {', '.join(missing)}; give it all that "
            "fegsam.algorithms.rule.Algorithm asks for, or use one of fegsam's algorithms."
        )
    if algorithm.form not in ("cell", "row", "dense"):
        raise ProblemError(
            f"The form of {type(algorithm).__name__} is {shown(algorithm.form)}; give 'cell', "
            "'row' or 'dense'."
        )
    if algorithm.norm not in ("2", "sup"):
        raise ProblemError(
            f"The norm of {type(algorithm).__name__} is {shown(algorithm.norm)}; give '2' or 'sup'."
        )
    _check_discounts(algorithm, problem)
    algorithm.check(problem)


def _check_discounts(algorithm: Algorithm, problem: Problem) -> None:
    """Raise where transitions have discounts that the rule does not read.

    A rule that reads the discount of each transition, and not one for all, says so in an attribute:
    ``reads_discounts = True``.
    """
    if not isinstance(problem, Federation) or problem.discounts is None:
        return
    if not getattr(algorithm, "reads_discounts", False):
        raise ProblemError(
            f"{type(algorithm).__name__} does not say that its rule reads the discount of each "
            "transition, and here they differ; read it with fegsam.algorithms.reading.discount and "
            "set reads_discounts = True, or give MDPs with one discount."
        )


_MEMBERS = ("form", "rule", "window", "norm", "dimension", "policies", "tables")
"""What every algorithm has beside `check`."""
