"""Walks over observations of several numbers, for linear rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from fegsam.data.choosing import FunctionPolicy, TablePolicy
from fegsam.data.walking import ENDED, LiveAgent, Walk, Walked


class VectorWalk(Walk):
    """Rows with observations (L, k), in float64, which holds float32 exactly."""

    def _begin(self, count: int) -> None:
        super()._begin(count)
        self._seen = np.zeros((count, *self.live.spaces.shape))
        self._chances: list[float] = []

    def note(self, observation: Any) -> Any:
        return observation

    def keep(self, now: Any) -> np.ndarray:
        return np.array(now, np.float64)

    def _rest(self, now: Any) -> None:
        self._add(now, 0, np.nan)

    def _add(self, now: Any, action: int, chance: float) -> None:
        self._seen[len(self._taken)] = now
        self._taken.append(action)
        self._rewards.append(0.0)
        self._chances.append(chance)

    def _vectors(self) -> Walked:
        width = self.live.spaces.width
        assert width is not None
        return self._walked(self._seen.reshape(len(self._taken), width), np.array(self._chances))


class ConstantWalk(VectorWalk):
    """Walks by the same probabilities everywhere: the one row of a table."""

    def __init__(self, live: LiveAgent, policy: TablePolicy) -> None:
        self._policy, self._chance = policy, policy.table[0].tolist()
        super().__init__(live)

    def run(self, count: int) -> Walked:
        self._begin(count)
        now, step = self.now, self.live.made.step
        words, first_action, chance = self.live.words, self.live.spaces.first_action, self._chance
        thresholds, others = self._policy.thresholds, self._policy.others
        seen, taken, rewards, chances = self._seen, self._taken, self._rewards, self._chances
        while (left := count - len(taken)) > 0:
            if self.follows:
                now = self._turn(now)
                continue
            place = first = words.place(self.time)
            entries, rests, row = words.entries, words.rests, len(taken) - first
            terminated = truncated = False
            for place in range(first, min(first + left, len(entries))):
                seen[row + place] = now
                action = entries[place]
                if rests[place] >= thresholds[action]:
                    action = others[action]
                taken.append(action)
                chances.append(chance[action])
                now, reward, terminated, truncated, _ = step(action + first_action)
                rewards.append(reward)
                if terminated or truncated:
                    break
            self.time += place - first + 1
            if terminated:
                self.follows = self._after
                self._stops.append(len(taken) - 1)
            elif truncated:
                self.follows = ENDED
        self.now = self.keep(now)
        return self._vectors()

    def _act(self, now: Any, time: int) -> None:
        action = self._policy.choose(0, *self.live.words.parts(time))
        self._add(now, action, self._chance[action])


class FunctionWalk(VectorWalk):
    """Walks by a function, which is called at every step: the next observation depends on it."""

    def __init__(self, live: LiveAgent, policy: FunctionPolicy) -> None:
        self._policy = policy
        super().__init__(live)

    def run(self, count: int) -> Walked:
        self._begin(count)
        now, choose, words = self.now, self._policy.choose, self.live.words
        step, first_action = self.live.made.step, self.live.spaces.first_action
        while len(self._taken) < count:
            if self.follows:
                now = self._turn(now)
                continue
            action, chance = choose(now, *words.parts(self.time))
            self._add(now, action, chance)
            now, self._rewards[-1], terminated, truncated, _ = step(action + first_action)
            self.time += 1
            if terminated:
                self.follows = self._after
                self._stops.append(len(self._taken) - 1)
            elif truncated:
                self.follows = ENDED
        self.now = self.keep(now)
        return self._vectors()

    def _act(self, now: Any, time: int) -> None:
        self._add(now, *self._policy.choose(now, *self.live.words.parts(time)))
