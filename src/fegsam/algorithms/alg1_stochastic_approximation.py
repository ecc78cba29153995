"""Algorithm 1, FeGSAM: federated stochastic approximation with Markov noise (Theorem 3.1).

See Section 3.2 of the paper. Agent i sees its own Markov chain y^i_t and updates

    theta += alpha * (G^i(theta, y_t) - theta + b^i(y_t)),

and every K steps all agents replace their parameters by the average. `LinearSA` takes the increment
as arrays, A(y) theta + b(y); `StochasticApproximation` takes it as a function. Both run on
`MarkovNoise`.
"""

from __future__ import annotations

import inspect
import itertools
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from fegsam.algorithms.rule import Algorithm, Path
from fegsam.algorithms.structure import LinearOperator, Opaque, check_assumptions
from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import finite_array, integer
from fegsam.problem.federation import MarkovNoise, Problem

_TRIED = 256
"""The number of pairs (kind, state) on which a user's rule is tried."""


class LinearTables(NamedTuple):
    matrices: np.ndarray
    """(M, Y, d, d)"""
    offsets: np.ndarray
    """(M, Y, d)"""


class NoTables(NamedTuple):
    """The tables of a user's rule, which holds its own constants."""

    nothing: np.float64 = np.float64(0.0)


def linear_sa_rule(
    params: np.ndarray, path: Path, t: Any, tables: LinearTables, out: np.ndarray
) -> None:
    """A(y) theta + b(y)."""
    y = path.states[t]
    for i in range(params.shape[0]):
        total = tables.offsets[path.kind, y, i]
        for j in range(params.shape[0]):
            total += tables.matrices[path.kind, y, i, j] * params[j]
        out[i] = total


def _require_noise(problem: Problem, algorithm: Algorithm) -> MarkovNoise:
    if not isinstance(problem, MarkovNoise):
        raise ProblemError(
            f"{type(algorithm).__name__} runs on a Markov chain and was given a "
            f"{type(problem).__name__}; pass a fegsam.MarkovNoise."
        )
    return problem


def _require_own_answer(rule: Callable[..., None], dim: int, noise: MarkovNoise) -> None:
    """Try a user's rule: it must set all of `out`, whatever `out` held before, and nothing else."""
    params = np.zeros(dim)
    pairs = itertools.product(range(noise.num_kinds), range(noise.num_states))
    with np.errstate(all="ignore"):
        for kind, y in itertools.islice(pairs, _TRIED):
            found = np.full(dim, 0.25), np.full(dim, 0.75), np.full(dim, 0.25)
            try:
                for out in found:
                    rule(params, y, kind, out)
            except Exception:  # the run itself reports what is wrong, and where
                return
            if params.any():
                raise ProblemError(
                    f"The rule {rule.__name__!r} writes to params; write only to out, which the "
                    "engine adds to them."
                )
            if not np.array_equal(found[0], found[2], equal_nan=True):
                raise ProblemError(
                    f"The rule {rule.__name__!r} gives another result when it is called again; "
                    "draw no random numbers in it and keep no state: let the noise come from y, "
                    "the state of the agent's Markov chain."
                )
            other = np.flatnonzero(~np.isclose(*found[:2], rtol=0, atol=0, equal_nan=True))
            if len(other):
                raise ProblemError(
                    f"The rule {rule.__name__!r} does not set out[{other[0]}] from params, y and "
                    "kind alone; assign every entry of out, with = and not with += or return."
                )


@dataclass(frozen=True, eq=False)
class LinearSA:
    """Algorithm 1 with a linear operator.

    An agent of kind k in state y updates
    ``theta += alpha * (matrices[k, y] @ theta + offsets[k, y])``.

    Parameters
    ----------
    matrices : (M, Y, d, d) array
        One matrix per agent kind and state of its chain; (Y, d, d) where all kinds share them.
    offsets : (M, Y, d) array
        One vector per agent kind and state; (Y, d) where all kinds share them.

    Examples
    --------
    Two agents average the noise of a fair coin:

    >>> import fegsam as fg
    >>> coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    >>> average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    >>> fg.fixed_point(coin, average)
    array([0.5])
    """

    matrices: Any
    offsets: Any

    form = "dense"
    norm = "2"
    window = 0
    theorem = "main_body"

    def __post_init__(self) -> None:
        matrices = finite_array(self.matrices, "matrices", "(M, Y, d, d)")
        offsets = finite_array(self.offsets, "offsets", "(M, Y, d)")
        matrices = matrices[None] if matrices.ndim == 3 else matrices
        offsets = offsets[None] if offsets.ndim == 2 else offsets
        if (
            matrices.ndim != 4
            or matrices.shape[2] != matrices.shape[3]
            or offsets.shape != matrices.shape[:3]
        ):
            raise ProblemError(
                f"LinearSA got matrices of shape {np.shape(self.matrices)} and offsets of shape "
                f"{np.shape(self.offsets)}; give (M, Y, d, d) and (M, Y, d), or (Y, d, d) and "
                "(Y, d) for all kinds."
            )
        for name, value in (("matrices", matrices), ("offsets", offsets)):
            value.setflags(write=False)
            object.__setattr__(self, name, value)

    @property
    def rule(self) -> Callable[..., Any]:
        return linear_sa_rule

    def check(self, problem: Problem) -> None:
        noise = _require_noise(problem, self)
        kinds, states = self.matrices.shape[:2]
        if kinds not in (1, noise.num_kinds) or states != noise.num_states:
            raise ProblemError(
                f"LinearSA has matrices for {kinds} kinds and {states} states, the Markov noise "
                f"has {noise.num_kinds} kinds and {noise.num_states} states; make them agree (one "
                "kind of matrices may serve all)."
            )

    def dimension(self, problem: Problem) -> int:
        return self.matrices.shape[2]

    def policies(self, problem: Problem) -> np.ndarray:
        return np.ones((1, problem.num_states, 1))

    def tables(self, problem: Problem) -> LinearTables:
        return LinearTables(*self.structure(problem).of_kinds(problem.num_kinds))

    def structure(self, problem: Problem) -> LinearOperator:
        return LinearOperator(self.matrices, self.offsets)


@dataclass(frozen=True, eq=False)
class StochasticApproximation:
    """Algorithm 1 with your own operator.

    Parameters
    ----------
    rule : function ``rule(params, y, kind, out)``
        Writes G(params, y) - params + b(y) of agent kind `kind` into `out`, and nothing else. It is
        plain Python that Numba can compile: loops, arithmetic, `math` functions, and numbers and
        arrays from enclosing scopes.
    dim : int
        The number of parameters.
    norm : 2 or inf
        The norm in which the operator contracts, and in which `squared_error` is measured.
    assumptions : mapping, optional
        Constants of the theorem that you know: gamma_c, A_1, A_2, B, m_1, m_2, m_3, m_4, rho.

    Examples
    --------
    A nonlinear contraction, theta = tanh(theta) / 2 + E[b]:

    >>> import math
    >>> import fegsam as fg
    >>> def rule(params, y, kind, out):
    ...     out[0] = 0.5 * math.tanh(params[0]) - params[0] + y
    >>> noise = fg.MarkovNoise([[0.9, 0.1], [0.1, 0.9]], num_agents=4)
    >>> algorithm = fg.StochasticApproximation(rule, dim=1, assumptions={"gamma_c": 0.5})
    >>> x = fg.fixed_point(noise, algorithm)[0]
    >>> bool(abs(x - (math.tanh(x) / 2 + 0.5)) < 1e-9)
    True
    """

    user_rule: Callable[..., None]
    rule: Callable[..., None]
    """the same function with the signature that engines call (see `algorithms.rule`)"""
    dim: int
    norm_order: Any = field(default=2)
    assumptions: Mapping[str, float] | None = None

    form = "dense"
    window = 0
    theorem = "main_body"

    def __init__(
        self,
        rule: Callable[..., None],
        dim: int,
        norm: float = 2,
        assumptions: Mapping[str, float] | None = None,
    ) -> None:
        rule = getattr(rule, "py_func", rule)
        if not inspect.isfunction(rule):
            raise ProblemError(
                f"The rule is {shown(rule)}; give a function rule(params, y, kind, out), defined "
                "with def."
            )
        if len(inspect.signature(rule).parameters) < 4:
            raise ProblemError(
                f"The rule {rule.__name__!r} takes too few arguments; define it as rule(params, "
                "y, kind, out)."
            )
        if assumptions is not None:
            check_assumptions(assumptions)
        if (
            isinstance(norm, bool)
            or not isinstance(norm, int | float | np.integer | np.floating)
            or norm not in (2, np.inf)
        ):
            raise ProblemError(f"norm is {shown(norm)}; give 2 or float('inf').")
        object.__setattr__(self, "user_rule", rule)
        object.__setattr__(self, "rule", _on_paths(rule))
        object.__setattr__(self, "dim", integer(dim, "dim"))
        object.__setattr__(self, "norm_order", norm)
        object.__setattr__(self, "assumptions", None if assumptions is None else dict(assumptions))

    @property
    def norm(self) -> str:
        return "2" if self.norm_order == 2 else "sup"

    def check(self, problem: Problem) -> None:
        noise = _require_noise(problem, self)
        _require_own_answer(self.user_rule, self.dim, noise)

    def dimension(self, problem: Problem) -> int:
        return self.dim

    def policies(self, problem: Problem) -> np.ndarray:
        return np.ones((1, problem.num_states, 1))

    def tables(self, problem: Problem) -> NoTables:
        return NoTables()

    def structure(self, problem: Problem) -> Opaque:
        return Opaque(self.assumptions or {})


def _on_paths(user_rule: types.FunctionType) -> Callable[..., None]:
    inner = register_jitable(user_rule)

    def stochastic_approximation_rule(params, path, t, tables, out):
        inner(params, np.int64(path.states[t]), np.int64(path.kind), out)

    def renew():
        code, space, closure = user_rule.__code__, user_rule.__globals__, user_rule.__closure__
        copy = types.FunctionType(code, space, user_rule.__name__, user_rule.__defaults__, closure)
        copy.__kwdefaults__ = user_rule.__kwdefaults__
        return _on_paths(copy)

    # Error messages name the user's function. Engines that compile call `renew`, which gives a new
    # function with the current globals.
    stochastic_approximation_rule.user_rule = user_rule  # pyright: ignore[reportFunctionMemberAccess]
    stochastic_approximation_rule.renew = renew  # pyright: ignore[reportFunctionMemberAccess]
    return stochastic_approximation_rule
