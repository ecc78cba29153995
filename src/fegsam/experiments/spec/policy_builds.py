"""Builds the policies of a spec, and loads the functions that it names."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

import fegsam as fg
from fegsam.errors import ProblemError
from fegsam.experiments.spec import problem_tables as tables
from fegsam.experiments.spec.array_sizes import require_memory
from fegsam.experiments.spec.array_values import FileRef, load_array


def build_policies(
    spec: tables.PolicyTable,
    shape: tuple[int, int],
    best: Callable[[], np.ndarray],
    target: np.ndarray | None,
    num_agents: int,
) -> np.ndarray:
    """(M, S, A), for `shape` (S, A); `best` computes the action values (S, A) of the problem.

    >>> build_policies(tables.UniformTable(kind="uniform"), (1, 4), dict, None, 3)
    array([[[0.25, 0.25, 0.25, 0.25]]])
    """
    uniform = fg.policies.uniform(*shape)
    if isinstance(spec, tables.RandomPoliciesTable):
        if spec.kind == "mixed" and target is None:
            raise ProblemError(
                "problem.behavior mixes random policies with the target policy: add "
                "[problem.target]"
            )
        base = target if spec.kind == "mixed" and target is not None else uniform
        kinds = kind_count(spec.count, num_agents)
        require_memory(8 * kinds * shape[0] * shape[1], "problem.behavior")
        drawn = fg.policies.random(*shape, kinds, spec.seed)
        return (1.0 - spec.heterogeneity) * base + spec.heterogeneity * drawn
    if isinstance(spec, tables.RandomPolicyTable):
        return fg.policies.random(*shape, 1, spec.seed)
    if isinstance(spec, tables.EpsilonGreedyTable | tables.GreedyTable):
        q = best() if spec.q is None else load_array(spec.q)
        several = spec.epsilon if isinstance(spec.epsilon, tuple) else (spec.epsilon,)
        require_memory(8 * len(several) * shape[0] * shape[1], "problem.behavior")
        return np.stack([fg.policies.epsilon_greedy(q, epsilon) for epsilon in several])
    if isinstance(spec, tables.GivenPolicyTable):
        given = load_array(spec.policies)
        return given if given.ndim == 3 else given[None]
    return uniform[None]


def kind_count(count: int | str, num_agents: int) -> int:
    """M; the word "agents" stands for one kind per agent."""
    return num_agents if isinstance(count, str) else count


def load_function(ref: FileRef, key: str) -> Any:
    """A function from a user's Python file; `key` names it in errors."""
    source = ref.read()
    spec = importlib.util.spec_from_loader(
        f"fegsam_{key}_{ref.sha256[:16]}", loader=None, origin=ref.path
    )
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    try:
        exec(compile(source, ref.path, "exec"), module.__dict__)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ProblemError(
            f"{key} is in {ref.path}, which cannot be run ({reason}): correct it"
        ) from None
    if not hasattr(module, ref.name):
        raise ProblemError(
            f"{key} is {ref.name!r} in {ref.path}, which has no such function: define it there"
        )
    return getattr(module, ref.name)
