"""A node: the agents on one machine, and their answers to the server's requests.

A transport calls only `Node.answer`: bytes in, bytes out. It guarantees the following.

- A round is computed once. Asked again for its last round, an agent sends the same result again.
- Before a result is sent, it is on the disk, with position, window and step counter in one file.
- A control variate changes only by a round that the server used, as its next request says.
- An agent refuses a round that is not after its last one (or the last one from other parameters),
  because the samples of that round are used up.
- Only the messages of `wire.FROM_NODE` leave the node. Details of errors stay here, in
  ``node.jsonl`` beside the state.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fegsam.engines.agent import Agent
from fegsam.errors import ProblemError
from fegsam.federation.errors import FederationError, StateError
from fegsam.federation.protocol.local_rounds import LocalRounds
from fegsam.federation.protocol.state import AgentFile, ComputedRound, HeldError, append_event
from fegsam.federation.protocol.wire import (
    FROM_SERVER,
    Ask,
    Failure,
    Hello,
    Reply,
    Request,
    Trouble,
    WireError,
    decode,
    encode,
)


class Node:
    """The agents `agents` of an experiment.

    Parameters
    ----------
    fingerprint : str
        The experiment's.
    agents : iterable of int
    make_agent : callable
        Makes agent i in its initial state; called when the agent is first needed.
    state_dir : path
        The directory of the state, with a folder per experiment. An agent that moves to this node
        brings its file.
    rounds : LocalRounds, optional
        How the agents make their rounds; as in plain averaging by default.
    """

    def __init__(
        self,
        fingerprint: str,
        agents: Iterable[int],
        make_agent: Callable[[int], Agent],
        state_dir: str | pathlib.Path,
        rounds: LocalRounds | None = None,
    ) -> None:
        self.fingerprint = fingerprint
        self._rounds = LocalRounds() if rounds is None else rounds
        self.agents = tuple(sorted(set(agents)))
        if not self.agents:
            raise FederationError("The node has no agents; give it at least one.")
        self._make_agent, self._made = make_agent, dict[int, Agent]()
        self._files = {
            agent: AgentFile(pathlib.Path(state_dir), fingerprint, agent) for agent in self.agents
        }
        self._folder = self._files[self.agents[0]].folder
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StateError(
                f"{str(self._folder)!r} cannot be written to ({error.strerror}); choose another "
                "directory."
            ) from error

    def answer(self, payload: bytes) -> bytes:
        """The answer to the server; neither network data nor an agent can make this raise."""
        try:
            (message,) = decode(payload, FROM_SERVER)
        except (WireError, ValueError) as error:
            self._log("refused", reason=str(error))
            return encode(Failure(self.fingerprint, 0, self.agents, Trouble.DAMAGED_REQUEST))
        if message.fingerprint != self.fingerprint:
            self._log("refused", reason=f"experiment {message.fingerprint[:16]} was asked for")
            return encode(Failure(self.fingerprint, 0, self.agents, Trouble.OTHER_EXPERIMENT))
        if isinstance(message, Ask):
            return encode(Hello(self.fingerprint, self.agents))
        return encode(*(self._work(agent, message) for agent in dict.fromkeys(message.agents)))

    def _work(self, agent: int, request: Request) -> Reply | Failure:
        if agent not in self._files:
            return self._failure(agent, request, Trouble.NOT_HERE, "it is not one of this node's")
        try:
            with self._files[agent].held():
                return self._locked_work(agent, request)
        except HeldError as error:
            return self._failure(agent, request, Trouble.BUSY, str(error))
        except StateError as error:
            return self._failure(agent, request, Trouble.STATE, str(error))
        # An agent's environment may raise anything, and its message must not leave the node.
        except Exception as error:
            return self._failure(agent, request, Trouble.ERROR, f"{type(error).__name__}: {error}")

    def _locked_work(self, agent: int, request: Request) -> Reply | Failure:
        self._rounds.check(request)
        file, actor = self._files[agent], self._agent(agent)
        kept, digest = file.read(), request.digest(agent)
        last = None if kept is None else kept[1]
        if kept is not None and last is not None:
            try:
                actor.restore(kept[0])
            except ProblemError as error:
                raise StateError(str(error)) from error
            if (last.round, last.request) == (request.round, digest):
                self._log("delivered again", agent=agent, round=request.round)
                return self._reply(agent, request, actor.time, last.params)
            if request.round <= last.round:
                return self._failure(
                    agent, request, Trouble.AHEAD, f"it computed round {last.round} already"
                )
        before, variate = actor.time, self._variate(agent, request, last)
        params, variates = self._rounds.follow(agent, actor, request, variate)
        file.write(actor.save(), ComputedRound(request.round, digest, params, variates))
        self._log("computed", agent=agent, round=request.round, first=before, last=actor.time - 1)
        return self._reply(agent, request, actor.time, params)

    def _variate(
        self, agent: int, request: Request, last: ComputedRound | None
    ) -> np.ndarray | None:
        """(d): the agent's control variate, where it keeps one: that of the last round used."""
        if not self._rounds.keeps_variates:
            return None
        if last is None:
            return np.zeros(request.params.shape[1])
        assert last.variates is not None
        return last.variates[int(request.heard_of(agent) == last.round + 1)]

    def _agent(self, agent: int) -> Agent:
        """The agent, in its initial state if it has no file."""
        if agent not in self._made or not self._files[agent].path.exists():
            self._made[agent] = self._make_agent(agent)
        return self._made[agent]

    def _reply(self, agent: int, request: Request, now: int, params: np.ndarray) -> Reply:
        steps = self._rounds.steps(agent, request)
        return Reply(self.fingerprint, request.round, agent, steps, now, params)

    def _failure(self, agent: int, request: Request, trouble: Trouble, detail: str) -> Failure:
        self._log("failed", agent=agent, round=request.round, reason=trouble.value, detail=detail)
        return Failure(self.fingerprint, request.round, (agent,), trouble)

    def _log(self, event: str, **details: Any) -> None:
        append_event(self._folder / "node.jsonl", {"event": event, "clock": time.time(), **details})
