"""`Charter`: what agents agree on whose data stays with each of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from fegsam.data.federation import DataFederation
from fegsam.errors import ProblemError, shown
from fegsam.problem import features as feature_makers
from fegsam.problem.checks import fraction, integer, read_only
from fegsam.problem.feature_maps import FeatureMap, Fourier, Function, Tiles
from fegsam.problem.policies import check_policy

_PROBES = 16
"""Observations whose features are compared between machines."""


class Charter(DataFederation):
    """A federation whose agents' data is private: spaces, discount, features and target policy.

    Nodes and server of a deployed federation compare its fingerprint; each node has the data of its
    own agents. Every agent is a kind of its own.

    Parameters
    ----------
    num_agents : int
    discount : float
    num_states, num_actions : int, optional
        The sizes of a table; the logs number states and actions from 0 on.
    target_policy : (S, A) array, optional
        The policy to evaluate off-policy, unless all data are logs with a column
        `target_probability`.
    features : FeatureMap, optional
        Features of a linear value function, from `fegsam.features`; not a function, since a charter
        holds no code.

    Examples
    --------
    >>> import fegsam as fg
    >>> wards = fg.data.Charter(num_agents=3, discount=0.9, num_states=10, num_actions=4)
    >>> wards
    Charter(agents=3, states=10, actions=4, discount=0.9)
    >>> fg.run(wards, fg.QLearning(), step_size=0.1, sync_period=10, num_steps=100)
    Traceback (most recent call last):
    fegsam.errors.ProblemError: A charter has no data, which its nodes have; run it with `fegsam
    federate`, or give a DataFederation.
    """

    def __init__(
        self,
        *,
        num_agents: int,
        discount: float,
        num_states: int | None = None,
        num_actions: int | None = None,
        target_policy: ArrayLike | None = None,
        features: FeatureMap | None = None,
    ) -> None:
        agents = integer(num_agents, "num_agents")
        states = None if num_states is None else integer(num_states, "num_states")
        actions = None if num_actions is None else integer(num_actions, "num_actions")
        target = None
        if target_policy is not None:
            if states is None or actions is None:
                raise ProblemError(
                    "target_policy is a table and the numbers of states and actions are not known; "
                    "give both."
                )
            target = check_policy(target_policy, states, actions, "target_policy")
        if isinstance(features, Function) or not isinstance(features, FeatureMap | None):
            raise ProblemError(
                f"features is {shown(features)}, but a charter holds no code; give a map such as "
                "fegsam.features.tiles(...)."
            )
        values = {
            "kinds": (),
            "discount": fraction(discount, "discount"),
            "num_agents": agents,
            # Nothing is known of agents that are alike.
            "num_kinds": agents,
            "assignment": read_only(np.arange(agents, dtype=np.int64)),
            "num_states": states,
            "num_actions": actions,
            "target_policy": target,
            "features": features,
            # A server has no rows to measure what was learned on.
            "held_out": 0.0,
            "evaluation": None,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return (
            f"Charter(agents={self.num_agents}, states={self.num_states}, "
            f"actions={self.num_actions}, discount={self.discount})"
        )

    def reader(self, *_: Any, **__: Any) -> NoReturn:
        raise ProblemError(
            "A charter has no data, which its nodes have; run it with `fegsam federate`, or give a "
            "DataFederation."
        )

    def fingerprint(self) -> str:
        """SHA-256 of all that the agents agree on."""
        state = hashlib.sha256(
            f"Charter {self.num_agents} {self.discount!r} {self.num_states} {self.num_actions}"
            f" {None if self.features is None else self.features.digest()}".encode()
        )
        if isinstance(self.target_policy, np.ndarray):
            state.update(self.target_policy.tobytes())
        return state.hexdigest()

    def to_plain(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The charter as plain values and arrays, among them features of probe observations."""
        plain: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("num_agents", "discount", "num_states", "num_actions")
        }
        arrays: dict[str, np.ndarray] = {}
        if isinstance(self.target_policy, np.ndarray):
            arrays["target_policy"] = self.target_policy
        if self.features is not None:
            plain["features"] = self.features.to_dict()
            arrays["probes"] = probes(self.features)
            arrays["probed"] = self.features.dense(arrays["probes"])
        return plain, arrays

    @staticmethod
    def from_plain(plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Charter:
        """The charter whose plain form this is, if this machine computes the same features."""
        values = dict(plain)
        if "features" in values:
            values["features"] = feature_makers.from_dict(values["features"])
            values["features"].check_probe(arrays["probes"], arrays["probed"])
        return Charter(**values, target_policy=arrays.get("target_policy"))


def probes(features: FeatureMap) -> np.ndarray:
    """Observations, whose features two machines compare: (L,) state numbers, or (L, k).

    >>> import fegsam as fg
    >>> probes(fg.features.one_hot(3))
    array([0, 1, 2])
    >>> probes(fg.features.fourier([0.0], [9.0], order=2)).shape
    (16, 1)
    """
    states = getattr(features, "num_states", None)
    if states is not None:
        return np.unique(np.linspace(0, states - 1, _PROBES).astype(np.int64))
    spread = np.random.default_rng(0).uniform(-0.1, 1.1, (_PROBES, features.width or 1))
    if isinstance(features, Fourier | Tiles):
        low, high = np.array(features.low), np.array(features.high)
        return low + spread * (high - low)
    return spread
