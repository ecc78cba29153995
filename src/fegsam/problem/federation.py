"""Who learns: N agents of M kinds, each with its environment and behaviour policy (Section 3).

Algorithms 2 to 5 run on a `Federation`. Algorithm 1 runs on `MarkovNoise`, where an agent sees the
states of a Markov chain and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from fegsam.problem.checks import (
    FloatArray,
    IntArray,
    agent_count,
    agent_kinds,
    chain_kernels,
    distribution,
    read_only,
)
from fegsam.problem.federation_checks import (
    check_behaviors,
    check_features,
    check_mdps,
    count_kinds,
    warn_of_idle_kinds,
)
from fegsam.problem.mdp import MDP
from fegsam.problem.policies import check_policy


class _Assigned:
    """The kind of each agent: i % M for agent i, unless an assignment was given.

    The default assignment is made only when it is asked for: a bound may be for more agents than
    memory can list.
    """

    num_agents: int
    num_kinds: int
    _assignment: IntArray | None

    @cached_property
    def assignment(self) -> IntArray:
        """(N,)"""
        if self._assignment is not None:
            return self._assignment
        return read_only(np.arange(self.num_agents, dtype=np.int64) % self.num_kinds)

    @cached_property
    def kind_counts(self) -> IntArray:
        """(M,)"""
        if self._assignment is not None:
            return read_only(
                np.bincount(self._assignment, minlength=self.num_kinds).astype(np.int64)
            )
        each, more = divmod(self.num_agents, self.num_kinds)
        return read_only(each + (np.arange(self.num_kinds) < more).astype(np.int64))


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Federation(_Assigned):
    """N agents that solve one problem together, each in its environment and with its behaviour.

    Parameters
    ----------
    mdp : MDP, or a sequence of M of them
        One environment for all, or one per kind of agent; all with the same S, A and discount
        (the largest, where transitions have discounts of their own).
    behavior_policies : (M, S, A) array, or (S, A) for all, optional
        The policy that each kind follows while it learns off-policy; by default every agent follows
        `target_policy`. `OnPolicyTD` always follows the target policy and ignores these.
    num_agents : int
        N. Required.
    assignment : (N,) array of int, optional
        The kind of each agent; by default agent i is of kind i % M.
    target_policy : (S, A) array, optional
        The policy to evaluate (Algorithms 2, 3 and 5).
    features : (S, d) array, optional
        Features of a linear value function (Algorithms 2 and 5); the columns must be linearly
        independent.
    initial_distribution : (S,) array, optional
        The distribution of every agent's first state; uniform by default.

    Attributes
    ----------
    mdps : tuple of 1 or M MDPs
    behavior_policies : (1 or M, S, A) array, or None
    num_agents, num_kinds, num_states, num_actions : int
    discount : float
        The largest discount of a transition, the same in all MDPs.
    discounts : (1 or M, 1 or S, 1 or A, 1 or S) array, or None
        The discount of each transition of each MDP; None if all have the same.
    assignment : (N,) int64 array
    kind_counts : (M,) int64 array
        The number of agents of each kind.
    target_policy : (S, A) array, or None
    features : (S, d) array, or None
    initial_distribution : (S,) array

    Examples
    --------
    >>> from fegsam.problem import examples, policies
    >>> mdp = examples.garnet(states=10, actions=3, branching=4, discount=0.9, seed=0)
    >>> fed = Federation(mdp, policies.random(10, 3, count=2, seed=1), num_agents=5)
    >>> fed
    Federation(agents=5, kinds=2, states=10, actions=3, discount=0.9)
    >>> fed.assignment
    array([0, 1, 0, 1, 0])
    """

    mdps: tuple[MDP, ...]
    behavior_policies: FloatArray | None
    num_agents: int
    num_kinds: int
    target_policy: FloatArray | None
    features: FloatArray | None
    initial_distribution: FloatArray

    def __init__(
        self,
        mdp: MDP | Sequence[MDP],
        behavior_policies: ArrayLike | None = None,
        *,
        num_agents: int | None = None,
        assignment: ArrayLike | None = None,
        target_policy: ArrayLike | None = None,
        features: ArrayLike | None = None,
        initial_distribution: ArrayLike | None = None,
    ) -> None:
        mdps = check_mdps(mdp)
        states, actions = mdps[0].num_states, mdps[0].num_actions
        policies = (
            None
            if behavior_policies is None
            else check_behaviors(behavior_policies, states, actions)
        )
        kinds = count_kinds(len(mdps), 1 if policies is None else len(policies))
        agents = agent_count(num_agents)
        if assignment is None:
            warn_of_idle_kinds(agents, kinds, "behavior_policies or MDPs")
        target = (
            None
            if target_policy is None
            else check_policy(target_policy, states, actions, "target_policy")
        )
        values = {
            "mdps": mdps,
            "behavior_policies": policies,
            "num_agents": agents,
            "num_kinds": kinds,
            "_assignment": None if assignment is None else agent_kinds(assignment, agents, kinds),
            "target_policy": target,
            "features": None if features is None else check_features(features, states),
            "initial_distribution": distribution(
                initial_distribution, states, "initial_distribution"
            ),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return (
            f"Federation(agents={self.num_agents}, kinds={self.num_kinds}, "
            f"states={self.num_states}, actions={self.num_actions}, "
            f"discount={self._discount_range})"
        )

    def _repr_html_(self) -> str:
        from fegsam.pictures import blocks, card, matrix

        followed = (
            self.behavior_policies if self.behavior_policies is not None else self.target_policy
        )
        policies = (
            np.full((1, self.num_states, self.num_actions), 1.0 / self.num_actions)
            if followed is None
            else followed
        )
        policies = policies.reshape(-1, self.num_states * self.num_actions)
        row, column = blocks(len(policies)), blocks(policies.shape[1])
        shown = np.zeros((row[-1] + 1, column[-1] + 1))
        np.add.at(shown, (row[:, None], column[None, :]), policies)
        rows = [
            ("agents", f"{self.num_agents}"),
            ("kinds", f"{self.num_kinds}, the largest of {self.kind_counts.max()} agents"),
            ("environments", f"{len(self.mdps)}"),
            (
                "states, actions, discount",
                f"{self.num_states}, {self.num_actions}, {self._discount_range}",
            ),
            ("evaluates", "no policy" if self.target_policy is None else "target_policy"),
            ("features", "none" if self.features is None else f"{self.features.shape[1]}"),
        ]
        return card(
            "Federation: how each kind (row) chooses actions, state by state",
            rows,
            matrix(shown, "behaviour policies"),
        )

    @property
    def num_states(self) -> int:
        """S.

        >>> Federation(MDP([[[1.0]]], [[0.0]], 0.5), num_agents=1).num_states
        1
        """
        return self.mdps[0].num_states

    @property
    def num_actions(self) -> int:
        """A.

        >>> Federation(MDP([[[1.0]]], [[0.0]], 0.5), num_agents=1).num_actions
        1
        """
        return self.mdps[0].num_actions

    @property
    def discount(self) -> float:
        """The discount that all MDPs share: the largest one of a transition.

        >>> Federation(MDP([[[1.0]]], [[0.0]], 0.5), num_agents=1).discount
        0.5
        """
        return self.mdps[0].discount

    @cached_property
    def discounts(self) -> FloatArray | None:
        """(1 or M, 1 or S, 1 or A, 1 or S): each transition's discount; None if all are equal.

        >>> mdp = MDP([[[0.5, 0.5]], [[1, 0]]], [[1], [0]], [0.9, 0.0])
        >>> Federation(mdp, num_agents=1).discounts
        array([[[[0.9, 0. ]]]])
        """
        every = [mdp.discounts for mdp in self.mdps]
        if all(each is None for each in every):
            return None
        tables = [np.full((1, 1, 1), self.discount) if each is None else each for each in every]
        if all(np.array_equal(table, tables[0]) for table in tables):
            return read_only(tables[0][None])
        shape = np.max([table.shape for table in tables], axis=0)
        return read_only(np.stack([np.broadcast_to(table, shape) for table in tables]))

    @property
    def _discount_range(self) -> str:
        varying = (mdp for mdp in self.mdps if mdp.discounts is not None)
        return next(varying, self.mdps[0]).discount_range

    def mdp_index(self, kind: int) -> int:
        """The index in `mdps` of a kind's environment.

        >>> Federation(MDP([[[1.0]]], [[0.0]], 0.5), [[[1.0]], [[1.0]]], num_agents=2).mdp_index(1)
        0
        """
        return kind if len(self.mdps) > 1 else 0

    def fingerprint(self) -> str:
        """SHA-256 of everything that determines what is learned; equal problems have equal hashes.

        >>> mdp = MDP([[[1.0]]], [[0.0]], 0.5)
        >>> Federation(mdp, num_agents=1).fingerprint() == Federation(
        ...     mdp, num_agents=1
        ... ).fingerprint()
        True
        """
        parts: list[NDArray[Any] | None] = [np.array([self.discount])]
        for mdp in self.mdps:
            parts += [*_csr_parts(mdp.transitions), mdp.rewards]
            parts += [] if mdp.discounts is None else [mdp.discounts]
        parts += [
            self.behavior_policies,
            self.assignment,
            self.target_policy,
            self.features,
            self.initial_distribution,
        ]
        return _digest("Federation", parts)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class MarkovNoise(_Assigned):
    """N agents that each walk a Markov chain of their kind on the same Y states.

    Parameters
    ----------
    kernels : (M, Y, Y) array, (Y, Y) for all, or a sequence of M scipy sparse (Y, Y) matrices
        Probability of the next state; rows sum to one within 1e-8, and are divided by their sum.
    num_agents : int
        N. Required.
    assignment : (N,) array of int, optional
        The kind of each agent; by default agent i is of kind i % M.
    initial_distribution : (Y,) array, optional
        The distribution of every agent's first state; uniform by default.

    Attributes
    ----------
    kernels : tuple of M (Y, Y) csr_arrays, read-only
    num_agents, num_kinds, num_states : int
    assignment : (N,) int64 array
    kind_counts : (M,) int64 array
    initial_distribution : (Y,) array

    Examples
    --------
    >>> MarkovNoise([[0.75, 0.25], [0.25, 0.75]], num_agents=5)
    MarkovNoise(agents=5, kinds=1, states=2)
    """

    kernels: tuple[sparse.csr_array, ...]
    num_agents: int
    num_kinds: int
    initial_distribution: FloatArray

    def __init__(
        self,
        kernels: ArrayLike | sparse.sparray | sparse.spmatrix | Sequence[Any],
        *,
        num_agents: int | None = None,
        assignment: ArrayLike | None = None,
        initial_distribution: ArrayLike | None = None,
    ) -> None:
        chains = chain_kernels(kernels)
        agents = agent_count(num_agents)
        if assignment is None:
            warn_of_idle_kinds(agents, len(chains), "kernels")
        values = {
            "kernels": chains,
            "num_agents": agents,
            "num_kinds": len(chains),
            "_assignment": None
            if assignment is None
            else agent_kinds(assignment, agents, len(chains)),
            "initial_distribution": distribution(
                initial_distribution, len(chains[0].indptr) - 1, "initial_distribution"
            ),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return (
            f"MarkovNoise(agents={self.num_agents}, kinds={self.num_kinds}, "
            f"states={self.num_states})"
        )

    @property
    def num_states(self) -> int:
        """Y.

        >>> MarkovNoise([[1.0]], num_agents=1).num_states
        1
        """
        return len(self.kernels[0].indptr) - 1

    def fingerprint(self) -> str:
        """SHA-256 of everything that determines what is learned; equal problems have equal hashes.

        >>> MarkovNoise([[1.0]], num_agents=1).fingerprint() == MarkovNoise(
        ...     [[[1]]], num_agents=1
        ... ).fingerprint()
        True
        """
        parts = [part for kernel in self.kernels for part in _csr_parts(kernel)]
        return _digest("MarkovNoise", [*parts, self.assignment, self.initial_distribution])


Problem = Federation | MarkovNoise
"""What is learned and by which agents: agents in MDPs, or on Markov chains without actions."""


def _csr_parts(matrix: sparse.csr_array) -> list[NDArray[Any]]:
    return [matrix.indptr, matrix.indices, matrix.data]


def _digest(what: str, parts: Iterable[NDArray[Any] | None]) -> str:
    digest = hashlib.sha256(what.encode())
    for part in parts:
        if part is None:
            digest.update(b"none;")
        else:
            digest.update(f"{part.dtype.str}{part.shape};".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()
