"""The agents of one machine on recorded data, each with its own log or live environment."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from fegsam.algorithms.on_data import needs_of
from fegsam.algorithms.rule import Algorithm
from fegsam.data.charter import Charter
from fegsam.data.federation import Reader
from fegsam.data.private import OwnData, private_reader
from fegsam.data.spool_reader import SpoolReader
from fegsam.engines.agent import SeparateAgents, State
from fegsam.engines.cpu.recorded import RecordedSteps
from fegsam.engines.recorded import (
    LOG_ROWS_AT_ONCE,
    DataUsedUp,
    RecordedAgent,
    RecordedStream,
)
from fegsam.errors import ProblemError

_LENGTH = struct.Struct("<Q")


class DataAwaited(ProblemError):
    """A spool has too few rows so far."""


class RecordedAgents(SeparateAgents):
    """Agents of a charter; `data` says what each of them reads.

    Their steps are compiled, and equal those of `fegsam.run` on the same data.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> charter = Charter(num_agents=5, discount=0.9, num_states=2, num_actions=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fg.data.simulate_log(f"{folder}/a.csv", walk, go, episodes=20, length=50, seed=0)
    ...     data = {3: fg.data.OwnData(fg.LogSource(path))}
    ...     group = RecordedAgents(charter, fg.QLearning(), step_size=0.1, seed=0, data=data)
    ...     moved = group.local_steps([3], np.zeros((1, 4)), np.array([10]))
    >>> moved.shape, group.time(3)
    ((1, 4), 10)
    """

    def __init__(
        self,
        charter: Charter,
        algorithm: Algorithm,
        *,
        step_size: float,
        seed: int,
        data: Mapping[int, OwnData],
    ) -> None:
        needs = needs_of(algorithm, charter)
        steps = RecordedSteps(algorithm.form, algorithm.rule, needs.dimension)

        def make(agent: int) -> RecordedAgent:
            own = data[agent]
            self._readers[agent] = private_reader(charter, own, seed=seed, agent=agent)
            stream = RecordedStream(
                self._readers[agent],
                needs,
                charter.target_policy,
                window=algorithm.window,
                kind=agent,
                at_once=LOG_ROWS_AT_ONCE if own.is_read_ahead else 0,
            )
            return RecordedAgent(stream, steps, step_size)

        super().__init__(make)
        self._readers: dict[int, Reader] = {}

    def local_steps(
        self,
        agents: Sequence[int],
        params: np.ndarray,
        counts: np.ndarray,
        step_sizes: np.ndarray | None = None,
        corrections: np.ndarray | None = None,
    ) -> np.ndarray:
        try:
            return super().local_steps(agents, params, counts, step_sizes, corrections)
        except DataUsedUp as error:
            for agent in agents:
                reader = self._readers[agent]
                if isinstance(reader, SpoolReader) and not reader.closed:
                    raise DataAwaited(
                        f"The spool of agent {agent} has too few rows so far."
                    ) from error
            raise

    def skip(self, agent: int, count: int) -> None:
        one = self._agent(agent)
        assert isinstance(one, RecordedAgent)
        while count > 0:
            some = min(count, LOG_ROWS_AT_ONCE)
            one.skip(some)
            count -= some

    def save(self, agent: int) -> dict[str, np.ndarray]:
        """The agent's state as one array, since agents with other data have other arrays."""
        return {"stream": packed(super().save(agent))}

    def restore(self, agent: int, state: State) -> None:
        super().restore(agent, unpacked(state["stream"]))


def packed(state: State) -> np.ndarray:
    """uint8 (n): named arrays as bytes, the same for the same arrays.

    >>> unpacked(np.append(packed({"time": np.array(3)}), np.uint8(0)))
    {'time': array(3)}
    """
    layout = [[name, array.dtype.str, array.shape] for name, array in state.items()]
    head = json.dumps(layout).encode()
    parts = (np.ascontiguousarray(array).tobytes() for array in state.values())
    return np.frombuffer(b"".join((_LENGTH.pack(len(head)), head, *parts)), np.uint8)


def unpacked(data: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays that `packed` wrote, possibly with bytes behind them."""
    content = data.tobytes()
    (length,) = _LENGTH.unpack_from(content)
    at, found = _LENGTH.size + length, {}
    for name, dtype, shape in json.loads(content[_LENGTH.size : at]):
        count = int(np.prod(shape, dtype=np.int64))
        found[name] = np.frombuffer(content, dtype, count, at).reshape(shape)
        at += found[name].nbytes
    return found
