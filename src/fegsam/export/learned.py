"""`Learned`: the table or the weights that a run learned, with the features that they belong to."""

from __future__ import annotations

import json
import os
import pprint
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fegsam.errors import ProblemError, shown
from fegsam.history.history import History
from fegsam.problem.checks import integer
from fegsam.problem.feature_maps import FeatureMap
from fegsam.problem.features import one_hot
from fegsam.safe_files import whole

Kind = Literal["action values", "values"]
_LEARNED: dict[str, tuple[Kind, bool]] = {
    "QLearning": ("action values", False),
    "Sarsa": ("action values", False),
    "LinearQLearning": ("action values", True),
    "OffPolicyTabularTD": ("values", False),
    "OnPolicyTD": ("values", True),
    "OffPolicyLinearTD": ("values", True),
    "TDC": ("values", True),
}
"""What an algorithm learns, and whether it needs features."""
_PLACE = "MODEL: dict = {}\n"
"""Where the template has the place of the model."""


@dataclass(frozen=True)
class Learned:
    """What a run learned, as plain numbers and strings."""

    algorithm: str
    learned: Kind
    num_actions: int
    """A; 1 for the values of a policy"""
    features: Mapping[str, Any]
    """the plain form of the features; a table has one-hot features of its states"""
    weights: tuple[float, ...]
    """(d A): the weight of feature i and action a has the index ``i * num_actions + a``"""
    seed: int
    num_steps: int
    version: str

    def json(self) -> str:
        """The model as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def module(self) -> str:
        """The model as a Python module with `value`, `action_values` and `action`."""
        part = resources.files("fegsam.export").joinpath("module_template.py")
        before, _, after = part.read_text(encoding="utf-8").partition(_PLACE)
        model = pprint.pformat(asdict(self), width=98, compact=True, sort_dicts=False)
        return f"{before}MODEL = {model}\n{after}"


def learned_by(
    history: History,
    *,
    features: FeatureMap | None = None,
    num_actions: int | None = None,
    seed: int | None = None,
) -> Learned:
    """What a run learned: the average of its agents at the end.

    Parameters
    ----------
    history : History
    features : FeatureMap, optional
        The features of a linear algorithm.
    num_actions : int, optional
        A, for action values; needed only where the history does not know it.
    seed : int, optional
        One of the run's seeds; the first by default.

    Examples
    --------
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> history = fg.run(fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=1000)
    >>> model = {}
    >>> exec(learned_by(history).module(), model)
    >>> model["action_values"](1) == history.data.final_params.values[0, 2:].tolist()
    True
    """
    settings = history.settings
    name = settings.algorithm.partition("(")[0]
    if name not in _LEARNED:
        raise ProblemError(
            f"{name} learns neither values nor action values; read history.data.final_params."
        )
    kind, linear = _LEARNED[name]
    weights = _weights(history, seed)
    if name == "TDC":
        # The second half of its parameters are auxiliary.
        weights = weights[: len(weights) // 2]
    actions = 1
    if kind == "action values":
        num_actions = num_actions or settings.num_actions or None
        if num_actions is None:
            raise ProblemError(
                f"{name} learns action values and the number of actions is not known; give it "
                "(--actions, or num_actions=)."
            )
        actions = integer(num_actions, "num_actions")
    return Learned(
        settings.algorithm,
        kind,
        actions,
        _plain(name, features if linear else None, linear, len(weights), actions),
        tuple(weights.tolist()),
        settings.seeds[0] if seed is None else seed,
        settings.num_steps,
        settings.version,
    )


def _weights(history: History, seed: int | None) -> np.ndarray:
    seeds = history.settings.seeds
    if seed is not None and seed not in seeds:
        raise ProblemError(
            f"seed is {shown(seed)}, which the run does not have; give one of {shown(list(seeds))}."
        )
    found = history.data["final_params"].values[0 if seed is None else seeds.index(seed)]
    if not np.isfinite(found).all():
        raise ProblemError("the run diverged, so that nothing was learned; take smaller steps.")
    return found


def _plain(
    name: str, features: FeatureMap | None, linear: bool, count: int, actions: int
) -> dict[str, Any]:
    """The plain form of the features, checked against the number of weights."""
    if linear and features is None:
        raise ProblemError(
            f"{name} learns the weights of features, which are not known; give them (--features, "
            "or features=)."
        )
    if features is not None and features.kind == "function":
        raise ProblemError(
            "features are a function, whose code a plain model does not hold; export the weights, "
            "history.data.final_params, and use the function with them."
        )
    if count % actions:
        raise ProblemError(f"{count} weights are not those of {actions} actions; correct A.")
    found = one_hot(count // actions) if features is None else features
    if found.dimension * actions != count:
        raise ProblemError(
            f"the {found.kind} features have dimension {found.dimension}, but the run has "
            f"{count // actions} weights; give the features of the run."
        )
    return found.to_dict()


def write_learned(model: Learned, path: str | os.PathLike[str]) -> None:
    """Write a model as JSON or as a Python module, by the ending of `path`."""
    target = Path(path)
    if target.suffix not in (".json", ".py"):
        raise ProblemError(f"{target} ends neither in .json nor in .py; choose one of them.")
    text = model.json() if target.suffix == ".json" else model.module()
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole(target) as waiting:
        waiting.write_text(text, encoding="utf-8")
