"""Builds problems and algorithms from the tables [problem] and [algorithm].

Random parts are drawn from the seed in their own table, kind by kind: the environment, the policies
and the features of agent i do not depend on the number of agents or kinds. Paths depend only on
(seed, agent, t), so cells of a study that differ in the number of agents, the sync period or the
step size have the same paths under one seed. Cells with different chains (for example another
heterogeneity) share their random numbers but not their paths.

With M kinds, agent i is of kind i % M. Fewer than M agents use only the first kinds, and solve a
different problem.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

import fegsam as fg
from fegsam.algorithms.rule import Algorithm
from fegsam.errors import ProblemError
from fegsam.exact.solvers import optimal_q
from fegsam.experiments.spec import data_tables as data
from fegsam.experiments.spec import private_data as private
from fegsam.experiments.spec import problem_tables as tables
from fegsam.experiments.spec.array_sizes import require_memory
from fegsam.experiments.spec.array_values import FileRef, array_names, file_ref, load_array
from fegsam.experiments.spec.data_builds import build_data
from fegsam.experiments.spec.own_algorithms import build_own
from fegsam.experiments.spec.policy_builds import build_policies, kind_count, load_function
from fegsam.experiments.spec.spec_text import SpecText
from fegsam.experiments.spec.study_tables import (
    AlgorithmTable,
    LinearSATable,
    OwnAlgorithmTable,
    OwnRuleTable,
)
from fegsam.experiments.spec.tables import canonical
from fegsam.experiments.spec.toml_lines import Key
from fegsam.experiments.spec.wording import nearest
from fegsam.problem.federation_checks import first_kinds

FROM_FILE = {
    "behavior": ("policies", "behavior_policies"),
    "target": ("policies", "target_policy"),
    "features": ("features", "features"),
}
"""Tables that an .npz file may replace: the table's key, and the array's name in the file."""


@dataclass(frozen=True, eq=False)
class ProblemSpec:
    """The checked table [problem]; it builds the problem for any number of agents.

    Examples
    --------
    >>> walk = tables.RandomWalkTable(generator="random_walk", states=5, discount=0.9)
    >>> ProblemSpec(walk, behavior=tables.UniformTable(kind="uniform")).build(num_agents=4)
    Federation(agents=4, kinds=1, states=5, actions=2, discount=0.9)
    """

    environment: tables.ProblemTable
    behavior: tables.PolicyTable | None = None
    target: tables.PolicyTable | None = None
    features: tables.FeaturesTable | None = None
    environments: tables.EnvironmentsTable | None = None
    evaluation: data.EvaluationTable | None = None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that determines the problem."""
        parts = {
            name: canonical(part)
            for name, part in vars(self).items()
            if part is not None and name != "digest"
        }
        return hashlib.sha256(
            json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()
        ).hexdigest()

    def build(self, num_agents: int) -> fg.Federation | fg.MarkovNoise | fg.DataFederation:
        """The problem for `num_agents` agents."""
        environment = self.environment
        if isinstance(environment, private.PrivateTable):
            return private.build_charter(environment, self.target, self.features, num_agents)
        assigned = _assignment(environment.assignment, num_agents)
        if isinstance(environment, data.DataTable):
            inner = self.behavior, self.target, self.features, self.evaluation
            return build_data(environment, *inner, num_agents, assigned)
        assert isinstance(environment, tables.SimulatedTable)
        common: dict[str, Any] = {"num_agents": num_agents, "assignment": assigned}
        if environment.initial_distribution is not None:
            common["initial_distribution"] = load_array(environment.initial_distribution)
        if isinstance(environment, tables.NoiseTable):
            kernels = load_array(environment.kernels)
            if common["assignment"] is None:
                common["assignment"] = first_kinds(
                    num_agents, len(kernels) if kernels.ndim == 3 else 1
                )
            return fg.MarkovNoise(kernels, **common)
        mdps = _mdps(environment)
        target = None
        if self.target is not None:
            target = _policies(self.target, mdps[0], None, num_agents)[0]
        behavior = None
        if self.behavior is not None and not isinstance(self.behavior, tables.TargetTable):
            behavior = _policies(self.behavior, mdps[0], target, num_agents)
        features = None if self.features is None else _features(self.features, mdps[0].num_states)
        if self.environments is not None:
            mdps = _perturbed(mdps, self.environments, num_agents)
        if common["assignment"] is None:
            kinds = max(len(mdps), 1 if behavior is None else len(behavior))
            common["assignment"] = first_kinds(num_agents, kinds)
        return fg.Federation(mdps, behavior, target_policy=target, features=features, **common)


def read_problem(source: SpecText, table: Any, moved: Mapping[Key, Key]) -> ProblemSpec:
    """[problem] from its raw table; `moved` locates the values that a grid put there."""
    if not isinstance(table, dict):
        raise source.error(("problem",), "is not a table: write [problem]")
    table = _expanded(source, dict(table))
    names = "behavior", "target", "features", "environments", "evaluation"
    inner = {name: table.pop(name, None) for name in names}
    for name, value in table.items():
        advice = nearest(name, names)
        if isinstance(value, dict) and "did you mean" in advice:
            raise source.error(("problem", name), f"is not a known table{advice}")
    known = tables.ENVIRONMENTS | data.DATA | {"private": private.PrivateTable}
    environment = source.choose(table, known, ("problem",), moved)
    for name, value in inner.items():
        if value is not None and isinstance(environment, tables.NoiseTable):
            what = "is for MDPs, but the problem is Markov noise: drop it"
            raise source.error(("problem", name), what)
    if inner["environments"] is not None and isinstance(environment, data.DataTable):
        what = "changes an MDP, but the agents learn from data: drop it"
        raise source.error(("problem", "environments"), what)
    if inner["evaluation"] is not None and not isinstance(environment, data.LiveTable):
        what = "tries policies in a live environment, and the problem has none: drop it"
        raise source.error(("problem", "evaluation"), what)
    models = _inner_models(environment)
    if isinstance(environment, private.PrivateTable):
        for name in ("behavior", "environments"):
            if inner[name] is not None:
                raise source.error(
                    ("problem", name), "is part of the data, which each node has: drop it"
                )
        models |= {"target": private.TARGETS, "features": private.FEATURES}
    chosen: dict[str, Any] = {
        name: source.choose(inner[name], kinds, ("problem", name), moved)
        for name, kinds in models.items()
        if inner[name] is not None
    }
    plain = {"environments": tables.EnvironmentsTable, "evaluation": data.EvaluationTable}
    for name, model in plain.items():
        if inner[name] is not None:
            chosen[name] = source.check(inner[name], model, ("problem", name), moved)
    return ProblemSpec(environment, **chosen)


def _inner_models(environment: tables.ProblemTable) -> dict[str, dict[str, type[Any]]]:
    """The models of [problem.behavior], [problem.target] and [problem.features], by kind."""
    if isinstance(environment, data.DataTable):
        acting = (
            data.LIVE_BEHAVIORS if isinstance(environment, data.LiveTable) else data.LOG_BEHAVIORS
        )
        found = acting, data.DATA_TARGETS, data.DATA_FEATURES
    else:
        found = tables.BEHAVIORS, tables.TARGETS, tables.FEATURES
    return dict(zip(("behavior", "target", "features"), found, strict=True))


def build_algorithm(spec: AlgorithmTable, problem: ProblemSpec) -> Algorithm:
    """The algorithm that a spec names.

    >>> from fegsam.experiments.spec.study_tables import OnPolicyNStepTable
    >>> build_algorithm(OnPolicyNStepTable(name="on_policy_td", horizon=3), None)
    OnPolicyTD(horizon=3)
    """
    match spec:
        case OwnAlgorithmTable():
            return build_own(spec)
        case OwnRuleTable(rule=rule, dim=dim, norm=norm, assumptions=assumptions):
            order = 2 if norm == "2" else np.inf
            return fg.StochasticApproximation(load_function(rule, "rule"), dim, order, assumptions)
        case LinearSATable():
            return _linear_sa(problem.environment)
        case _:
            fields = type(spec).model_fields.keys() - {"name"}
            return _OF_FIELDS[spec.name](**{name: getattr(spec, name) for name in fields})


_OF_FIELDS: dict[str, type[Any]] = {
    "on_policy_td": fg.OnPolicyTD,
    "off_policy_tabular_td": fg.OffPolicyTabularTD,
    "q_learning": fg.QLearning,
    "linear_q_learning": fg.LinearQLearning,
    "off_policy_linear_td": fg.OffPolicyLinearTD,
    "tdc": fg.TDC,
}
"""The algorithms whose fields are the keys of their table."""


def _linear_sa(noise: tables.ProblemTable) -> fg.LinearSA:
    if not isinstance(noise, tables.NoiseTable) or noise.matrices is None or noise.offsets is None:
        raise ProblemError(
            "linear_sa needs a [problem] with generator = 'noise', matrices and offsets: add them"
        )
    return fg.LinearSA(load_array(noise.matrices), load_array(noise.offsets))


def _expanded(source: SpecText, table: dict[str, Any]) -> dict[str, Any]:
    """The table with references to the arrays of its .npz file, if it names one.

    Keys of the table take precedence over arrays of the file.
    """
    if table.get("generator") not in ("file", "noise") or (
        "path" not in table and table["generator"] == "noise"
    ):
        return table
    key = ("problem", "path")
    if "path" not in table:
        raise source.error(key, "is missing (generator = 'file'): name an .npz file")
    path = table.pop("path")
    needed = (
        ("kernels",) if table["generator"] == "noise" else ("transitions", "rewards", "discount")
    )
    try:
        if not isinstance(path, str) or not path.endswith(".npz"):
            raise ValueError("must name an .npz file: write path = 'file.npz'")
        ref = file_ref(path, source.directory)
        names = array_names(ref)
        for name in needed:
            if name not in names and name not in table:
                raise ValueError(f"is {path!r}, but that file has no array '{name}': add it there")
        if "discount" in needed and "discount" not in table:
            stored = load_array(FileRef(ref.path, "discount", ref.sha256))
            table["discount"] = float(stored) if stored.size == 1 else f"{path}:discount"
    except (ValueError, TypeError) as error:
        raise source.error(key, str(error)) from None
    optional = ("matrices", "offsets") if table["generator"] == "noise" else ()
    for name in (*needed, *optional, "initial_distribution", "assignment"):
        if name in names and name not in table:
            table[name] = f"{path}:{name}"
    for name, (field, stored) in FROM_FILE.items():
        if stored in names and name not in table and table["generator"] == "file":
            table[name] = {"kind": "table", field: f"{path}:{stored}"}
    return table


def _assignment(value: Any, num_agents: int) -> np.ndarray | None:
    if value is None:
        return None
    kinds = np.atleast_1d(load_array(value))
    if kinds.ndim != 1 or len(kinds) < num_agents or (kinds != np.round(kinds)).any():
        raise ProblemError(
            f"assignment has shape {kinds.shape}, but must name the kinds of {num_agents} agents: "
            "give that many whole numbers"
        )
    return kinds[:num_agents].astype(np.int64)


def _mdps(spec: tables.ProblemTable) -> list[fg.MDP]:
    """One MDP, or one per kind."""
    if isinstance(spec, tables.ArraysTable):
        transitions, rewards = load_array(spec.transitions), load_array(spec.rewards)
        discount: Any = spec.discount
        discount = discount if isinstance(discount, float) else load_array(discount)
        if (not sparse.issparse(transitions) and transitions.ndim == 4) or rewards.ndim == 3:
            if len(transitions) != len(rewards):
                raise ProblemError(
                    f"transitions are for {len(transitions)} kinds and rewards for "
                    f"{len(rewards)}: give both for the same kinds"
                )
            return [
                fg.MDP(moves, paid, discount)
                for moves, paid in zip(transitions, rewards, strict=True)
            ]
        return [fg.MDP(transitions, rewards, discount)]
    if isinstance(spec, tables.GymnasiumTable):
        options = spec.options if spec.ends is None else {"ends": spec.ends, **spec.options}
        return [fg.examples.from_gymnasium(spec.env_id, spec.discount, **options)]
    if isinstance(spec, tables.GarnetTable):
        require_memory(16 * spec.states * spec.actions * spec.branching, "problem")
    own = {
        name: load_array(value) if isinstance(value, FileRef | tuple) else value
        for name in type(spec).model_fields.keys() - tables.SimulatedTable.model_fields.keys()
        if (value := getattr(spec, name)) is not None
    }
    return [getattr(fg.examples, spec.generator)(**own)]


def _policies(
    spec: tables.PolicyTable, mdp: fg.MDP, target: np.ndarray | None, num_agents: int
) -> np.ndarray:
    """(M, S, A)"""
    shape = mdp.num_states, mdp.num_actions

    def best() -> np.ndarray:
        return optimal_q(mdp.continuing, mdp.rewards, mdp.discount).reshape(shape)

    return build_policies(spec, shape, best, target, num_agents)


def _features(spec: tables.FeaturesTable, states: int) -> np.ndarray:
    """(S, d)"""
    if isinstance(spec, tables.GivenFeaturesTable):
        return load_array(spec.features)
    dim = (
        spec.dim
        if isinstance(spec, tables.RandomFeaturesTable | tables.SizedFeaturesTable)
        else states
    )
    require_memory(8 * states * dim, "problem.features")
    if isinstance(spec, tables.RandomFeaturesTable):
        rows = np.random.default_rng(spec.seed).standard_normal((states, spec.dim))
        return rows / np.linalg.norm(rows, axis=1).max()
    if not isinstance(spec, tables.SizedFeaturesTable):
        return np.eye(states)
    if spec.dim > states:
        raise ProblemError(
            f"problem.features.dim is {spec.dim}, but there are {states} states: give at most "
            f"{states}"
        )
    if spec.kind == "aggregate":
        return np.eye(spec.dim)[np.arange(states) * spec.dim // states]
    # Legendre polynomials lie within [-1, 1], so no row is longer than one.
    return np.polynomial.legendre.legvander(np.linspace(-1.0, 1.0, states), spec.dim - 1) / np.sqrt(
        spec.dim
    )


def _perturbed(mdps: list[fg.MDP], spec: tables.EnvironmentsTable, num_agents: int) -> list[fg.MDP]:
    """One environment per kind, each from its own random numbers."""
    if len(mdps) > 1:
        raise ProblemError(
            "problem.environments perturbs one environment, but the arrays give several: drop "
            "one of the two"
        )
    mdp, moves = mdps[0], mdps[0].transitions
    states, actions = mdp.rewards.shape
    # For each (s, a), the states that some action leads to from s.
    reached = sparse.csr_array(
        (np.ones(moves.nnz), moves.indices.copy(), moves.indptr[::actions].copy()),
        shape=(states, states),
    )
    reached.sum_duplicates()
    rows = sparse.csr_array(sparse.kron(reached, np.ones((actions, 1)), format="csr"))
    perturbed, kinds = [], kind_count(spec.count, num_agents)
    # Each successor takes a probability and an index.
    require_memory(16 * kinds * rows.nnz, "problem.environments")
    for kind in range(kinds):
        rng = np.random.default_rng([spec.seed, kind])
        rewards = mdp.rewards + spec.rewards * rng.uniform(-1.0, 1.0, mdp.rewards.shape)
        weights = rng.standard_exponential(rows.nnz)
        sums = np.add.reduceat(weights, rows.indptr[:-1])
        drawn = sparse.csr_array(
            (weights / np.repeat(sums, np.diff(rows.indptr)), rows.indices, rows.indptr),
            shape=rows.shape,
        )
        mixed = sparse.csr_array((1.0 - spec.transitions) * moves + spec.transitions * drawn)
        perturbed.append(fg.MDP(mixed, rewards, mdp.given_discount, mdp.labels))
    return perturbed
