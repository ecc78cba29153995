"""How much the greedy policy earns in an environment: fresh episodes, always with the same seeds.

All parameters are tried on the same episodes' seeds, so that two values differ less by chance than
their standard errors say, and the same policy always earns the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import FloatArray, fraction, integer, real_array
from fegsam.problem.feature_maps import FeatureMap

PURPOSE = 7
"""Part of the random numbers' key, so that no other draw of the same seed repeats them"""


@dataclass(frozen=True)
class Evaluation:
    """Episodes of the greedy policy in an environment, to see what learned action values earn.

    Parameters
    ----------
    episodes : int
    seed : int
        The seeds of the episodes follow from it.
    discount : float
        What a reward one step later is worth; by default the plain sum of rewards counts.
    longest : int
        An episode that has not ended is cut after this number of steps.

    Examples
    --------
    >>> import gymnasium
    >>> import numpy as np
    >>> import fegsam as fg
    >>> lake = lambda: gymnasium.make("FrozenLake-v1", is_slippery=False)
    >>> down_then_right = np.zeros((16, 4))
    >>> down_then_right[[0, 4], 1] = down_then_right[[8, 9], [2, 1]] = 1.0
    >>> down_then_right[[13, 14], 2] = 1.0
    >>> params = np.stack([np.zeros(64), down_then_right.ravel()])
    >>> fg.Evaluation(episodes=2).measure(lake, params)["greedy_return"]
    array([0., 1.])
    """

    episodes: int = 200
    seed: int = 0
    discount: float = 1.0
    longest: int = 10_000

    def __post_init__(self) -> None:
        integer(self.episodes, "episodes", least=2)
        integer(self.seed, "seed", least=0, most=2**64 - 1)
        integer(self.longest, "longest")
        if self.discount != 1.0:
            fraction(self.discount, "discount")

    def measure(
        self,
        make: Callable[[], Any],
        params: ArrayLike,
        *,
        features: FeatureMap | None = None,
        index: Callable[[Any], int] | None = None,
    ) -> dict[str, FloatArray]:
        """The mean return of the greedy policy of each of the parameters (T, d).

        Parameters
        ----------
        make : callable
            Makes an environment with Gymnasium's interface.
        params : (T, d) array
            Action values; feature i (or state i) of action a has number ``i * num_actions + a``.
        features : FeatureMap, optional
            A map of `fegsam.features`; without one, the parameters are tables.
        index : callable, optional
            A function from an observation to a state number.

        Returns
        -------
        dict
            `greedy_return` and `greedy_return_standard_error`, of shape (T,); NaN for parameters
            that are not finite.
        """
        table = real_array(params, "params", "(T, d)")
        env = make()
        try:
            actions = int(env.action_space.n)
            size = _size(env, features, index, table, actions)
            if table.ndim != 2 or table.shape[1] != (size * actions):
                raise ProblemError(
                    f"params has shape {table.shape}, but there are {size} "
                    f"{'states' if features is None else 'features'} and {actions} actions: give "
                    f"shape (T, {size * actions})"
                )
            found = np.full((2, len(table)), np.nan)
            known: dict[bytes, tuple[float, float]] = {}
            for t in np.flatnonzero(np.isfinite(table).all(axis=1)):
                values = table[t].reshape(size, actions)
                # The same greedy policy meets the same seeds and earns the same.
                key = (values.argmax(axis=1) if features is None else values).tobytes()
                if key not in known:
                    known[key] = self._returns(env, _choice(env, values, features, index))
                found[:, t] = known[key]
        finally:
            env.close()
        return {"greedy_return": found[0], "greedy_return_standard_error": found[1]}

    def seeds(self) -> list[int]:
        """The seed of each episode."""
        key = np.array([self.seed, PURPOSE], dtype=np.uint64)
        words = np.random.Philox(key=key).random_raw(self.episodes)
        return (words >> np.uint64(33)).tolist()

    def _returns(self, env: Any, choose: Callable[[Any], int]) -> tuple[float, float]:
        returns = np.zeros(self.episodes)
        for episode, seed in enumerate(self.seeds()):
            seen, _ = env.reset(seed=seed)
            worth = 1.0
            for _ in range(self.longest):
                seen, reward, terminated, truncated, _ = env.step(choose(seen))
                returns[episode] += worth * float(reward)
                worth *= self.discount
                if terminated or truncated:
                    break
        return float(returns.mean()), float(returns.std(ddof=1) / np.sqrt(self.episodes))


def _size(
    env: Any,
    features: FeatureMap | None,
    index: Callable[[Any], int] | None,
    table: FloatArray,
    actions: int,
) -> int:
    """The number of states or features."""
    if features is not None:
        return features.dimension
    if index is not None:
        return table.shape[-1] // actions
    if not hasattr(env.observation_space, "n"):
        raise ProblemError(
            f"the observations are {shown(env.observation_space)}, not states: give features or "
            "index"
        )
    return int(env.observation_space.n)


def _choice(
    env: Any,
    values: FloatArray,
    features: FeatureMap | None,
    index: Callable[[Any], int] | None,
) -> Callable[[Any], int]:
    """The greedy action for an observation, as the environment numbers both."""
    start = int(getattr(env.action_space, "start", 0))
    first = 0 if index is not None else int(getattr(env.observation_space, "start", 0))
    if features is not None:

        def by_features(seen: Any) -> int:
            number = seen if index is None else index(seen)
            one = np.array([number - first]) if features.width is None else np.ravel(seen)[None]
            row = features(one)[0]
            found = values[row].sum(axis=0) if features.active else row @ values
            return start + int(found.argmax())

        return by_features
    best = (start + values.argmax(axis=1)).tolist()
    if index is not None:
        return lambda seen: best[index(seen)]
    return lambda seen: best[seen - first]
