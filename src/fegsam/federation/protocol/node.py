"""A node: the agents on one machine, and their answers to the server's requests.

A transport calls only `Node.answer`: bytes in, bytes out. It guarantees the following.

- A round is computed once. Asked again for one of its last two rounds, an agent sends the same
  result again.
- Before a result is sent, it is on the disk, with position, window and step counter in one file.
- No sample serves two averages: an agent whose state is older than its last reply that the server
  used skips the samples of that reply.
- A control variate changes only by a round that the server used, as its next request says.
- An agent refuses a round that is not after its last one (or the last one from other parameters),
  because the samples of that round are used up.
- Only the messages of `wire.FROM_NODE` leave the node. Details of errors stay here, in
  ``node.jsonl`` beside the state.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fegsam.data.private import DataChanged
from fegsam.engines.agent import AgentGroup
from fegsam.engines.cpu.recorded_agents import DataAwaited
from fegsam.engines.recorded import DataUsedUp
from fegsam.errors import ProblemError
from fegsam.federation.errors import FederationError, StateError
from fegsam.federation.protocol.exact_sums import LARGEST_NUMBER, limbs_of
from fegsam.federation.protocol.local_rounds import LocalRounds, Work
from fegsam.federation.protocol.sparse_rows import RowsError, pack_rows, unpack_rows
from fegsam.federation.protocol.state import (
    AgentState,
    HeldError,
    NodeFile,
    append_event,
    cannot_write,
    named,
    printable,
)
from fegsam.federation.protocol.wire import (
    FROM_SERVER,
    NO_BASE,
    Ask,
    Failure,
    Hello,
    NodeSum,
    Reply,
    Request,
    Start,
    Trouble,
    WireError,
    decode,
    digest_of,
    encode,
)


class _Refusal(Exception):
    """A request that the node does not do, and why."""

    def __init__(self, trouble: Trouble, detail: str) -> None:
        super().__init__(detail)
        self.trouble = trouble


def _trouble(error: Exception) -> Trouble:
    """What the server hears of an error of one agent."""
    if isinstance(error, DataUsedUp):
        return Trouble.USED_UP
    if isinstance(error, DataAwaited):
        return Trouble.BUSY
    return Trouble.STATE if isinstance(error, StateError | DataChanged) else Trouble.ERROR


class Node:
    """The agents `agents` of an experiment.

    Parameters
    ----------
    fingerprint : str
        The experiment's.
    agents : iterable of int
    group : AgentGroup
        The agents, in their initial states.
    state_dir : path
        The directory of the state, with a folder per experiment. An agent that moves to this node
        brings the files of that folder.
    dimension : int
        The number of parameters.
    rounds : LocalRounds, optional
        How the agents make their rounds; as in plain averaging by default.
    """

    def __init__(
        self,
        fingerprint: str,
        agents: Iterable[int],
        group: AgentGroup,
        state_dir: str | pathlib.Path,
        dimension: int,
        rounds: LocalRounds | None = None,
    ) -> None:
        self.fingerprint, self._group, self._dimension = fingerprint, group, dimension
        self._rounds = LocalRounds() if rounds is None else rounds
        self.agents = tuple(sorted(set(agents)))
        if not self.agents:
            raise FederationError("The node has no agents; give it at least one.")
        self._file = NodeFile(pathlib.Path(state_dir), fingerprint)
        self._begun = {agent: group.save(agent) for agent in self.agents}
        self._in_place = False
        """whether the agents stand where the stored states say"""
        self._known = NO_BASE, np.zeros((0, dimension))
        """the last start, which the next one may be given as changes of"""
        try:
            self._file.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise cannot_write(self._file.folder, error) from error

    def check_state(self) -> None:
        """Raise `StateError` unless the agents can continue from their stored states."""
        with self._file.held():
            self._load()

    def answer(self, payload: bytes) -> bytes:
        """The answer to the server; neither network data nor an agent can make this raise."""
        number, agents = 0, self.agents
        try:
            messages = self._decoded(payload)
            if isinstance(messages[0], Ask):
                return encode(Hello(self.fingerprint, self.agents))
            start, request = messages
            number, agents = request.round, tuple(dict.fromkeys(request.agents))
            self._rounds.check(start, request)
            rows = self._start_of(start)
            with self._file.held():
                return encode(*self._done(start, rows, request, agents))
        except _Refusal as refusal:
            trouble, detail = refusal.trouble, str(refusal)
        except HeldError as error:
            trouble, detail = Trouble.BUSY, str(error)
        except StateError as error:
            trouble, detail = Trouble.STATE, str(error)
        except FederationError as error:
            trouble, detail = Trouble.BEYOND_TERMS, str(error)
        # An agent's environment may raise anything, and its message must not leave the node.
        except Exception as error:
            trouble, detail = Trouble.ERROR, f"{type(error).__name__}: {error}"
        self._failed(number, agents, trouble, detail)
        return encode(Failure(self.fingerprint, number, agents, trouble))

    def _decoded(self, payload: bytes) -> list[Any]:
        """An `Ask`, or a `Start` and its `Request`."""
        try:
            messages = decode(payload, FROM_SERVER)
        except WireError as error:
            raise _Refusal(Trouble.DAMAGED_REQUEST, str(error)) from None
        kinds = [type(message) for message in messages]
        if kinds != [Ask] and (kinds != [Start, Request] or messages[0].round != messages[1].round):
            raise _Refusal(Trouble.DAMAGED_REQUEST, "neither a greeting nor a request")
        for message in messages:
            if message.fingerprint != self.fingerprint:
                asked = message.fingerprint[:16]
                raise _Refusal(Trouble.OTHER_EXPERIMENT, f"experiment {asked} was asked for")
        return messages

    def _start_of(self, start: Start) -> np.ndarray:
        """(1 or 2, d): where the round starts."""
        digest, known = self._known
        rows = np.empty((1 + self._rounds.keeps_variates, self._dimension))
        if start.base not in (NO_BASE, digest):
            raise _Refusal(Trouble.UNKNOWN_BASE, "the parameters are changes of unknown ones")
        try:
            unpack_rows(start.params, 0.0 if start.base == NO_BASE else known, rows)
        except RowsError as error:
            raise _Refusal(Trouble.DAMAGED_REQUEST, str(error)) from None
        if digest_of(rows) != start.digest:
            raise _Refusal(Trouble.DAMAGED_REQUEST, "the parameters are not those of their digest")
        if not np.isfinite(rows).all():
            raise _Refusal(Trouble.BEYOND_TERMS, "the parameters are not finite")
        self._known = start.digest, rows
        return rows

    def _done(
        self, start: Start, rows: np.ndarray, request: Request, agents: Sequence[int]
    ) -> Iterator[Reply | NodeSum | Failure]:
        """The answers to a request, once all of them are on the disk."""
        states, number = self._load(), request.round
        digests = self._digests(start, request)
        failed: dict[tuple[Trouble, str], list[int]] = {}
        todo, again = list[int](), dict[int, AgentState]()
        for agent in agents:
            last = states.get(agent)
            if agent not in self._begun:
                failed.setdefault((Trouble.NOT_HERE, "not of this node"), []).append(agent)
                continue
            if last is None or last.round < number:
                todo.append(agent)
                continue
            for state in (last, self._file.before.get(agent, last)):
                if (state.round, state.request) == (number, digests[agent]):
                    again[agent] = state
            if agent not in again:
                why = f"it computed round {last.round} already"
                failed.setdefault((Trouble.AHEAD, why), []).append(agent)
        fresh, broken = self._computed(start, rows, request, todo)
        for agent, reason in broken.items():
            failed.setdefault(reason, []).append(agent)
        if fresh:
            try:
                self._file.write(
                    {
                        agent: replace(state, request=digests[agent])
                        for agent, state in fresh.items()
                    }
                )
            except BaseException:
                self._rewind(fresh)
                raise
        self._note(number, start.stops[-1], list(again), fresh)
        for (trouble, detail), some in failed.items():
            self._failed(number, some, trouble, detail)
            yield Failure(self.fingerprint, number, tuple(some), trouble)
        done = again | fresh
        if self._rounds.in_sums and done:
            yield self._sum(start, rows[0], done)
            return
        for agent, state in done.items():
            steps = self._rounds.steps(agent, start.stops[-1])
            yield Reply(self.fingerprint, number, agent, steps, state.time, state.result)

    def _sum(self, start: Start, base: np.ndarray, done: Mapping[int, AgentState]) -> NodeSum:
        total = np.zeros((3, len(start.stops), self._dimension + 1), np.int64)
        row = np.empty((len(start.stops), self._dimension + 1))
        for state in done.values():
            unpack_rows(state.result, base, row[:, :-1])
            row[:, -1] = np.square(row[:, :-1] - base).sum(axis=1)
            total += limbs_of(row)
        times = tuple(state.time for state in done.values())
        sums = total.astype("<i8").tobytes()
        return NodeSum(self.fingerprint, start.round, tuple(done), times, sums)

    def _load(self) -> dict[int, AgentState]:
        """The stored states; the agents stand where these say."""
        states, anew = self._file.read(self._log)
        if anew or not self._in_place:
            self._rewind(self.agents)
            self._in_place = True
        return states

    def _rewind(self, agents: Iterable[int]) -> None:
        """Let agents stand where the stored states say."""
        states, _ = self._file.read(self._log)
        for agent in agents:
            known = states.get(agent)
            try:
                self._group.restore(agent, self._begun[agent] if known is None else known.path)
            except ProblemError as error:
                self._in_place = False
                raise StateError(str(error)) from error

    def _digests(self, start: Start, request: Request) -> dict[int, str]:
        """SHA-256 of all that each agent's answer depends on, which excludes the other agents."""
        shared = repr((self.fingerprint, request.round, start.stops, start.digest)).encode()
        heard = request.heard or [0] * len(request.agents)
        added = self._corrections(request)
        return {
            agent: hashlib.sha256(
                shared + repr(heard[i]).encode() + (b"" if added is None else added[i].tobytes())
            ).hexdigest()
            for i, agent in enumerate(request.agents)
        }

    def _corrections(self, request: Request) -> np.ndarray | None:
        """(agents of the request, d): what each adds to its steps."""
        if not self._rounds.gets_corrections:
            return None
        rows = np.empty((len(request.agents), self._dimension))
        try:
            unpack_rows(request.corrections, 0.0, rows)
        except RowsError as error:
            raise _Refusal(Trouble.DAMAGED_REQUEST, str(error)) from None
        if not np.isfinite(rows).all():
            raise _Refusal(Trouble.BEYOND_TERMS, "the corrections are not finite")
        return rows

    def _computed(
        self, start: Start, rows: np.ndarray, request: Request, agents: list[int]
    ) -> tuple[dict[int, AgentState], dict[int, tuple[Trouble, str]]]:
        """The new states of agents, and why others have none: all at once, or each by itself."""
        if not agents:
            return {}, {}
        try:
            return self._round(start, rows, request, agents), {}
        except Exception as error:
            self._rewind(agents)
            if len(agents) == 1:
                return {}, {agents[0]: (_trouble(error), f"{type(error).__name__}: {error}")}
        fresh: dict[int, AgentState] = {}
        failed: dict[int, tuple[Trouble, str]] = {}
        for agent in agents:
            one, other = self._computed(start, rows, request, [agent])
            fresh |= one
            failed |= other
        return fresh, failed

    def _round(
        self, start: Start, rows: np.ndarray, request: Request, agents: list[int]
    ) -> dict[int, AgentState]:
        """Make the steps of a request."""
        place_of = {agent: place for place, agent in enumerate(request.agents)}
        places = [place_of[agent] for agent in agents]
        added = self._corrections(request)
        self._catch_up(agents, [request.times[place] for place in places])
        work = Work(
            request.round,
            start.stops,
            rows,
            tuple(agents),
            None if added is None else added[places],
            self._variates(request, agents, places),
        )
        results, variates = self._rounds.follow(self._group, work)
        if self._rounds.in_sums and not (np.square(results).sum(axis=-1) < LARGEST_NUMBER).all():
            raise FederationError(
                "The parameters are too large to be added up; use a smaller step."
            )
        return {
            agent: AgentState(
                self._group.save(agent),
                self._group.time(agent),
                request.round,
                "",
                pack_rows(results[i], rows[0]),
                None if variates is None else variates[i],
            )
            for i, agent in enumerate(agents)
        }

    def _catch_up(self, agents: list[int], used: list[int]) -> None:
        """Skip samples that the server has used, where the stored state is older than that."""
        for agent, count in zip(agents, used, strict=True):
            behind = count - self._group.time(agent)
            if behind <= 0:
                continue
            if self._rounds.keeps_variates:
                raise StateError(
                    f"The state of agent {agent} is {behind} steps older than its last reply, and "
                    "its control variate is lost; restore its newest state."
                )
            self._group.skip(agent, behind)
            self._log("skipped", agents=[agent], steps=behind)

    def _variates(
        self, request: Request, agents: list[int], places: list[int]
    ) -> np.ndarray | None:
        """(m, d): the agents' control variates, where they keep them: of the last rounds used."""
        if not self._rounds.keeps_variates:
            return None
        states, _ = self._file.read(self._log)
        found = np.zeros((len(agents), self._dimension))
        for row, (agent, place) in enumerate(zip(agents, places, strict=True)):
            if (last := states.get(agent)) is not None:
                assert last.variates is not None
                found[row] = last.variates[int(request.heard[place] == last.round + 1)]
        return found

    def _note(self, number: int, length: int, again: list[int], fresh: Iterable[int]) -> None:
        """Log what was delivered again, and the samples that were used: a line for each range."""
        if again:
            self._log("delivered again", round=number, **named(again))
        ranges: dict[tuple[int, int], list[int]] = {}
        for agent in fresh:
            last = self._group.time(agent)
            first = last - self._rounds.steps(agent, length)
            ranges.setdefault((first, last - 1), []).append(agent)
        for (first, last), some in ranges.items():
            self._log("computed", round=number, **named(some), first=first, last=last)

    def _failed(self, number: int, agents: Sequence[int], trouble: Trouble, why: str) -> None:
        reason, detail = trouble.value, printable(why)
        self._log("failed", round=number, **named(agents), reason=reason, detail=detail)

    def _log(self, event: str, **details: Any) -> None:
        line = {"event": event, "clock": time.time(), **details}
        with contextlib.suppress(OSError):  # A full disk stops rounds, and says so; not the log.
            append_event(self._file.folder / "node.jsonl", line)
