"""Studies of small cells that misbehave as they are told to; workers import them from here."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import signal
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fegsam as fg


@dataclass(frozen=True)
class SmallCell:
    """Q-learning on the two-state problem: about a millisecond, and then `pause` seconds."""

    num_agents: int
    step_size: float
    num_steps: int = 60
    seeds: tuple[int, ...] = (0, 1)
    pause: float = 0.0
    act: str = ""
    """what else happens, see `run`"""
    place: str = ""
    """a file that the act uses"""
    engine: str = "reference"
    axes: dict[str, Any] = field(default_factory=dict)

    @property
    def agent_steps(self) -> int:
        return self.num_agents * self.num_steps * len(self.seeds)

    @property
    def key(self) -> str:
        return hashlib.sha256(
            json.dumps([self.num_agents, self.step_size, self.num_steps, self.seeds]).encode()
        ).hexdigest()

    def run(self, engine: Any = None) -> fg.History:
        time.sleep(self.pause)
        if self.act == "fail":
            raise fg.ProblemError("this cell was told to fail.")
        if self.act == "crash":
            raise ZeroDivisionError("an unforeseen error")
        if self.act == "print":
            print("what a cell prints", flush=True)
            os.write(1, b"also past Python")
        if self.act == "die" or (self.act == "die once" and self._first_time()):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.act == "note":
            threads = [os.environ[f"{name}_NUM_THREADS"] for name in ("NUMBA", "OPENBLAS")]
            with pathlib.Path(self.place).open("a") as file:
                file.write(
                    f"{os.getpid()} {' '.join(threads)} {getattr(engine, 'threads', None)}\n"
                )
        fed = fg.Federation(
            fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=self.num_agents
        )
        return fg.run(
            fed,
            fg.QLearning(),
            step_size=self.step_size,
            sync_period=5,
            num_steps=self.num_steps,
            seeds=self.seeds,
            record=20,
            engine=engine,
        )

    def _first_time(self) -> bool:
        try:
            pathlib.Path(self.place).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


@dataclass(frozen=True)
class BigCell:
    """A Garnet whose fixed point is solved for in 150 unknowns: other last bits on more threads of
    the linear algebra."""

    num_agents: int
    axes: dict[str, Any]
    num_steps: int = 60
    seeds: tuple[int, ...] = (0, 1)
    engine: str = "reference"

    @property
    def agent_steps(self) -> int:
        return self.num_agents * self.num_steps * len(self.seeds)

    @property
    def key(self) -> str:
        return hashlib.sha256(f"big {self.num_agents}".encode()).hexdigest()

    def run(self, engine: Any = None) -> fg.History:
        mdp = fg.examples.garnet(states=150, actions=2, branching=4, discount=0.9, seed=0)
        fed = fg.Federation(
            mdp,
            num_agents=self.num_agents,
            target_policy=fg.policies.uniform(150, 2),
            features=np.eye(150),
        )
        return fg.run(
            fed,
            fg.OnPolicyTD(horizon=2),
            step_size=0.1,
            sync_period=5,
            num_steps=self.num_steps,
            seeds=self.seeds,
            engine=engine,
        )


@dataclass(frozen=True)
class SmallStudy:
    listed: tuple[Any, ...]
    text: str = "[study]\nname = 'small'\n"

    def cells(self) -> list[Any]:
        return list(self.listed)

    def copy_inputs(self, directory: object) -> None:
        """It names no files."""


def grid(
    agents: tuple[int, ...] = (1, 2, 3), steps: tuple[float, ...] = (0.1, 0.2), **changes: Any
) -> SmallStudy:
    return SmallStudy(
        tuple(
            SmallCell(
                num_agents, step, axes={"num_agents": num_agents, "step_size": step}, **changes
            )
            for num_agents in agents
            for step in steps
        )
    )


def with_act(study: SmallStudy, index: int, act: str, place: object = "") -> SmallStudy:
    """The same study, but in one cell something happens."""
    from dataclasses import replace

    cells = list(study.listed)
    cells[index] = replace(cells[index], act=act, place=str(place))
    return replace(study, listed=tuple(cells))


def files(directory: pathlib.Path) -> dict[str, bytes]:
    """All that is stored, hidden files but for the lock included."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.name.startswith(".lock")
    }
