"""The structure of an algorithm: the equation that its steps solve, with the arrays in it.

Fixed points, exact moments, the theorems' constants, the planner, TOML studies and the shares of a
federation look at this value and never at an algorithm's class. So a new algorithm in its own file
gets everything from the package that its structure allows.

====================  ==============================================================================
structure             the increment of an agent's parameters
====================  ==============================================================================
`TemporalDifference`  n-step evaluation of a policy, tabular or with linear features, with or
                      without importance ratios (Algorithms 2, 3 and 5)
`Control`             ``R + gamma max_a Q(S', a) - Q(S, A)`` in cell (S, A) (Algorithm 4)
`LinearOperator`      ``A(y) theta + b(y)`` on Markov noise (Algorithm 1)
`TransitionOperator`  ``A theta + b`` with A and b of the transition (S, A, S') (TDC)
`OnPolicyControl`     ``R + gamma Q(S', A') - Q(S, A)`` in cell (S, A), with actions by Q itself
                      (`Sarsa`)
`Opaque`              known only through the rule (Algorithm 1 with a user's function)
====================  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fegsam.algorithms.rule import Algorithm
from fegsam.algorithms.td import require_federation
from fegsam.errors import ProblemError, shown
from fegsam.problem.acting import Acting
from fegsam.problem.checks import finite_array
from fegsam.problem.federation import Federation, MarkovNoise, Problem

ASSUMPTIONS = ("gamma_c", "A_1", "A_2", "B", "m_1", "m_2", "m_3", "m_4", "rho")
"""The constants of the theorem that the author of a rule may state."""
RATIO_TOLERANCE = 1e-8
"""How far ratio times behaviour policy may lie from the target policy."""


@dataclass(frozen=True, eq=False)
class TemporalDifference:
    """n-step temporal differences of the target policy, with the MDP's rewards and discount.

    An agent of kind k in state S_t with the window S_t, A_t, ..., S_{t+n} adds

        row_k(S_t) * sum_{l=0}^{n-1} gamma^l [prod_{j<=l} ratio_k(S_{t+j}, A_{t+j})] e_{t+l},
        e_l = R(S_l, A_l) + gamma v(S_{l+1}) - v(S_l),    v(s) = features[s] @ params.

    With `ratios` None the products are one, and the agents follow the target policy itself.
    """

    horizon: int
    """n"""
    target_policy: np.ndarray
    """(S, A): the policy that is evaluated"""
    features: np.ndarray | None = None
    """(S, d); None for a table, whose features and rows are the unit vectors"""
    ratios: np.ndarray | None = None
    """(1 or M, S, A): importance ratios, target policy over behaviour policy"""
    rows: np.ndarray | None = None
    """(1 or M, S, d): the direction of a step from each state, where it is not the features"""
    is_preconditioned: bool = False
    """Whether `rows` are ``(Phi' D_k Phi)^-1 phi(s)``, D_k the stationary distribution of kind k"""

    @property
    def is_tabular(self) -> bool:
        return self.features is None

    @property
    def is_on_policy(self) -> bool:
        return self.ratios is None

    @property
    def linear_features(self) -> np.ndarray:
        """(S, d): the features of what is not a table."""
        assert self.features is not None
        return self.features

    @property
    def directions(self) -> np.ndarray:
        """(1 or M, S, d): the direction of a step from each state, for what is not a table."""
        return self.linear_features[None] if self.rows is None else self.rows


@dataclass(frozen=True)
class Control:
    """Q-learning on the flat table of action values; (s, a) is cell ``s * num_actions + a``."""


@dataclass(frozen=True, eq=False)
class LinearOperator:
    """The increment in state y of the noise is ``matrices[k, y] @ params + offsets[k, y]``."""

    matrices: np.ndarray
    """(1 or M, Y, d, d)"""
    offsets: np.ndarray
    """(1 or M, Y, d)"""

    def of_kinds(self, num_kinds: int) -> tuple[np.ndarray, np.ndarray]:
        """(M, Y, d, d) and (M, Y, d): repeated where all kinds share them."""
        repeats = num_kinds // len(self.matrices)
        return np.repeat(self.matrices, repeats, axis=0), np.repeat(self.offsets, repeats, axis=0)


@dataclass(frozen=True, eq=False)
class TransitionOperator:
    """The increment on a transition (s, a, s') of an MDP is ``matrix @ params + offset``."""

    terms: Callable[[int, np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    """``terms(kind, s, a, s')`` for E transitions gives matrices (E, d, d) and offsets (E, d); they
    are the same for kinds that share their environment and their policy"""
    target_policy: np.ndarray | None = None
    """(S, A): the policy that is evaluated, if any"""
    features: np.ndarray | None = None
    """(S, d): ``v(s) = features[s] @ params`` are the values of that policy"""


@dataclass(frozen=True)
class OnPolicyControl:
    """SARSA on the flat table of action values, by agents that act by their own values."""

    acting: Acting
    """how actions follow from the values"""


@dataclass(frozen=True)
class Opaque:
    """Only the rule is known, and the constants that its author states."""

    assumptions: Mapping[str, float] = field(default_factory=dict)
    """constants of the theorem: some of gamma_c, A_1, A_2, B, m_1, m_2, m_3, m_4 and rho"""
    uncovered: str = ""
    """why no constants make the theorem cover the rule, as a sentence, where that is known"""


Linear = TemporalDifference | LinearOperator | TransitionOperator
"""The structures that are linear in the parameters."""
Structure = (
    TemporalDifference | Control | LinearOperator | TransitionOperator | OnPolicyControl | Opaque
)


@runtime_checkable
class Structured(Algorithm, Protocol):
    """An algorithm with a known structure."""

    def structure(self, problem: Problem) -> Structure:
        """The structure on a `problem` that the algorithm has checked."""
        ...


def structure_of(algorithm: Algorithm, problem: Problem) -> Structure:
    """The structure of `algorithm` on a `problem` that it has checked; `Opaque` if it has none.

    Raises
    ------
    ProblemError
        Where the arrays of the structure do not fit the problem or the algorithm: their shapes, or
        importance ratios that do not lead from the agents' policies to the target policy.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> structure_of(fg.QLearning(), fed)
    Control()
    """
    if not isinstance(algorithm, Structured):
        return Opaque()
    structure = algorithm.structure(problem)
    match structure:
        case TemporalDifference():
            _check_temporal_difference(structure, algorithm, require_federation(problem, algorithm))
        case Control() | OnPolicyControl():
            federation = require_federation(problem, algorithm)
            cells = federation.num_states * federation.num_actions
            _check_equal("dimension", algorithm.dimension(problem), cells, algorithm)
        case LinearOperator():
            _check_operator(structure, algorithm, problem)
        case TransitionOperator():
            _check_transitions(structure, algorithm, require_federation(problem, algorithm))
        case Opaque():
            check_assumptions(structure.assumptions)
        case _:
            raise ProblemError(
                f"The structure of {type(algorithm).__name__} is {shown(structure)}; return a "
                "TemporalDifference, Control, LinearOperator, TransitionOperator, OnPolicyControl "
                "or Opaque of fegsam.algorithms.structure."
            )
    return structure


def temporal_difference(algorithm: Algorithm, problem: Problem) -> TemporalDifference | None:
    """The structure of an algorithm that is a temporal difference, None for others."""
    structure = structure_of(algorithm, problem)
    return structure if isinstance(structure, TemporalDifference) else None


def check_assumptions(stated: Any) -> None:
    """Raise `ProblemError` unless `stated` maps constants of the theorem to numbers."""
    if not isinstance(stated, Mapping):
        raise ProblemError(
            f"assumptions is {shown(stated)}; give a mapping from {', '.join(ASSUMPTIONS)} to "
            "numbers."
        )
    for name, value in stated.items():
        if not isinstance(name, str) or name not in ASSUMPTIONS:
            raise ProblemError(
                f"assumptions names {shown(name)}; give some of {', '.join(ASSUMPTIONS)}."
            )
        finite_array(value, f'assumptions["{name}"]', "()")
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            raise ProblemError(f'assumptions["{name}"] is {shown(value)}; give a number.')


def _check_temporal_difference(
    structure: TemporalDifference, algorithm: Algorithm, problem: Federation
) -> None:
    states, actions, kinds = problem.num_states, problem.num_actions, problem.num_kinds
    dim = states if structure.features is None else structure.features.shape[-1]
    _check_equal("dimension", algorithm.dimension(problem), dim, algorithm)
    _check_equal("window", algorithm.window, structure.horizon, algorithm)
    _check_equal(
        "target_policy of shape", structure.target_policy.shape, (states, actions), algorithm
    )
    if structure.features is not None:
        _check_equal("features of shape", structure.features.shape, (states, dim), algorithm)
    if structure.ratios is not None:
        shape = _kinds_of(structure.ratios, kinds), states, actions
        _check_equal("ratios of shape", structure.ratios.shape, shape, algorithm)
    if structure.rows is not None:
        shape = _kinds_of(structure.rows, kinds), states, dim
        _check_equal("rows of shape", structure.rows.shape, shape, algorithm)
    if structure.features is None and structure.rows is not None:
        raise ProblemError(
            f"The structure of {type(algorithm).__name__} has rows and no features; give "
            "features=np.eye(S) for a table whose steps leave the visited cell."
        )
    _check_ratios(structure, algorithm, problem)


def _check_ratios(structure: TemporalDifference, algorithm: Algorithm, problem: Federation) -> None:
    """The expected step is one of the target policy only if ratio times behaviour is the target."""
    policies = algorithm.policies(problem)
    reached = policies if structure.ratios is None else structure.ratios * policies
    wrong = np.argwhere(np.abs(reached - structure.target_policy) > RATIO_TOLERANCE)
    if len(wrong):
        kind, state, action = wrong[0]
        what = "the agents' policy" if structure.ratios is None else "ratio times behaviour policy"
        raise ProblemError(
            f"In the structure of {type(algorithm).__name__}, {what} is "
            f"{reached[kind, state, action]:.6g} for agent kind {kind} in state {state} and action "
            f"{action}, and the target policy {structure.target_policy[state, action]:.6g}; give "
            "importance ratios that lead to the target policy, or return Opaque()."
        )


def _check_operator(structure: LinearOperator, algorithm: Algorithm, problem: Problem) -> None:
    if not isinstance(problem, MarkovNoise):
        raise ProblemError(
            f"The structure of {type(algorithm).__name__} is a LinearOperator, which runs on a "
            f"fegsam.MarkovNoise, and the problem is of type {type(problem).__name__}; return "
            "Opaque() there."
        )
    dim = algorithm.dimension(problem)
    shape = _kinds_of(structure.matrices, problem.num_kinds), problem.num_states, dim
    _check_equal("matrices of shape", structure.matrices.shape, (*shape, dim), algorithm)
    _check_equal("offsets of shape", structure.offsets.shape, shape, algorithm)


def _check_transitions(
    structure: TransitionOperator, algorithm: Algorithm, problem: Federation
) -> None:
    _check_equal("window", algorithm.window, 1, algorithm)
    dim, none = algorithm.dimension(problem), np.empty(0, np.int64)
    matrices, offsets = structure.terms(0, none, none, none)
    _check_equal("matrices of shape", matrices.shape, (0, dim, dim), algorithm)
    _check_equal("offsets of shape", offsets.shape, (0, dim), algorithm)
    if structure.features is not None:
        shape = problem.num_states, dim
        _check_equal("features of shape", structure.features.shape, shape, algorithm)


def _kinds_of(table: np.ndarray, num_kinds: int) -> int:
    return 1 if len(table) == 1 else num_kinds


def _check_equal(name: str, found: Any, wanted: Any, algorithm: Algorithm) -> None:
    if found != wanted:
        raise ProblemError(
            f"{type(algorithm).__name__} has {name} {found}, and its structure on this problem "
            f"asks for {wanted}; make them agree."
        )
