"""`DataFederation`: agents that learn from logs, spools and live environments, not from an MDP."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from fegsam.data.content import content_of
from fegsam.data.evaluation import Evaluation
from fegsam.data.log import LogSource
from fegsam.data.rows import Rows
from fegsam.data.spool_reader import SpoolSource
from fegsam.errors import ProblemError, shown
from fegsam.problem.checks import FloatArray, IntArray, agent_kinds, fraction, integer, read_only
from fegsam.problem.feature_maps import FeatureMap
from fegsam.problem.policies import check_policy

TargetPolicy = ArrayLike | Callable[[np.ndarray], ArrayLike]
"""(S, A), or a function of observations (L, k) that returns (L, A)."""


class Reader(Protocol):
    """Reads the rows of one agent in order."""

    def read(self, count: int) -> Rows:
        """The next `count` rows; fewer where the data is used up."""
        ...

    def save(self) -> dict[str, np.ndarray]:
        """Where the reader is."""
        ...

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from what `save` returned."""
        ...


class SpaceSizes(Protocol):
    """The sizes of an environment's spaces, as far as they are known."""

    @property
    def num_states(self) -> int | None: ...

    @property
    def num_actions(self) -> int: ...


class LiveRows(Protocol):
    """A source whose rows come into being as they are read, for any number of agents."""

    def spaces(self) -> SpaceSizes: ...

    def make(self) -> Any: ...

    def open(self, *, discount: float, seed: int, agent: int) -> Reader: ...

    def fingerprint(self) -> str: ...


Source = LogSource | SpoolSource | LiveRows


@dataclass(frozen=True)
class Kind:
    """What agents of one kind read: a live source, a spool, or a log or its part with a value."""

    source: Source
    value: Any = None

    @property
    def live(self) -> LiveRows | None:
        """The source, if its rows come into being as they are read."""
        return None if isinstance(self.source, LogSource | SpoolSource) else self.source


@dataclass(frozen=True, eq=False, init=False, repr=False)
class DataFederation:
    """N agents that learn together, each from its own log, spool or live environment.

    Parameters
    ----------
    sources : LogSource, SpoolSource, LiveSource, VectorSource, or a sequence of them
        Each is a kind of agents, and each value of a log's column `by` is one. Of a spool the rows
        that have been written are read; a run does not wait for more.
    discount : float
        Of what follows a transition that does not end its episode.
    num_agents : int, optional
        N. A log or a spool feeds one agent; a live source as many as there are. By default one of
        each kind.
    assignment : (N,) array of int, optional
        The kind of each agent; by default agent i is of kind i % M.
    num_states, num_actions : int, optional
        The sizes of a table; live sources know theirs.
    target_policy : (S, A) array, or function of observations (L, k) that returns (L, A), optional
        The policy to evaluate off-policy, unless the logs have a column `target_probability`.
    features : FeatureMap, optional
        Features of a linear value function, from `fegsam.features`.
    held_out : float
        The share of each log's episodes that nobody learns from. What was learned is measured on
        them, and on rows of live sources that are drawn apart. With 0, or for a log with fewer than
        20 episodes, nothing is held out.
    evaluation : Evaluation, optional
        Episodes in which the greedy policy of learned action values is tried; for live sources.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> walk, go = fg.examples.two_state(), fg.policies.uniform(2, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = fg.data.simulate_log(f"{folder}/a.csv", walk, go, episodes=20, length=50, seed=0)
    ...     fed = fg.DataFederation(fg.LogSource(path), discount=0.9, num_states=2, num_actions=2)
    ...     history = fg.run(fed, fg.QLearning(), step_size=0.1, sync_period=10, num_steps=900)
    >>> fed
    DataFederation(agents=1, kinds=1, states=2, actions=2, discount=0.9)
    >>> history.q_table().shape
    (2, 2)
    """

    kinds: tuple[Kind, ...]
    num_kinds: int
    discount: float
    num_agents: int
    assignment: IntArray
    num_states: int | None
    num_actions: int | None
    target_policy: FloatArray | Callable[[np.ndarray], ArrayLike] | None
    features: FeatureMap | None
    held_out: float
    evaluation: Evaluation | None

    def __init__(
        self,
        sources: Source | Sequence[Source],
        *,
        discount: float,
        num_agents: int | None = None,
        assignment: ArrayLike | None = None,
        num_states: int | None = None,
        num_actions: int | None = None,
        target_policy: TargetPolicy | None = None,
        features: FeatureMap | None = None,
        held_out: float = 0.1,
        evaluation: Evaluation | None = None,
    ) -> None:
        kinds = _kinds(sources)
        agents = len(kinds) if num_agents is None else integer(num_agents, "num_agents")
        assigned = np.arange(agents, dtype=np.int64) % len(kinds)
        if assignment is not None:
            assigned = agent_kinds(assignment, agents, len(kinds))
        states, actions = _sizes(kinds, num_states, num_actions)
        if features is not None and not isinstance(features, FeatureMap):
            raise ProblemError(
                f"features is {shown(features)}; give a map such as fegsam.features.tiles(...), or "
                "fegsam.features.table(...) for an array."
            )
        values = {
            "kinds": kinds,
            "num_kinds": len(kinds),
            "discount": fraction(discount, "discount"),
            "num_agents": agents,
            "assignment": read_only(assigned),
            "num_states": states,
            "num_actions": actions,
            "target_policy": _target(target_policy, states, actions),
            "features": features,
            "held_out": fraction(held_out, "held_out") if held_out else 0.0,
            "evaluation": _evaluation(evaluation, kinds),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        _check_one_agent_a_log(self)

    def __repr__(self) -> str:
        return (
            f"DataFederation(agents={self.num_agents}, kinds={self.num_kinds}, "
            f"states={self.num_states}, actions={self.num_actions}, discount={self.discount})"
        )

    @property
    def kind_counts(self) -> IntArray:
        """(M,): the number of agents of each kind."""
        return np.bincount(self.assignment, minlength=self.num_kinds)

    @property
    def logs(self) -> tuple[LogSource, ...]:
        """The logs among the sources, each once."""
        found = {id(kind.source): kind.source for kind in self.kinds}
        return tuple(source for source in found.values() if isinstance(source, LogSource))

    def reader(
        self, agent: int, seed: int, *, like: int | None = None, passes: int | None = None
    ) -> Reader:
        """The reader of an agent's rows; a live source draws them under `seed`.

        An agent that is not one of the federation reads what the agent `like` reads. A log is read
        `passes` times instead of its own number.
        """
        kind = self.kinds[self.assignment[agent if like is None else like]]
        sizes = {"num_states": self.num_states, "num_actions": self.num_actions}
        if isinstance(kind.source, LogSource):
            source = kind.source
            if passes is not None:
                source = dataclasses.replace(source, passes=passes)
            return source.open(discount=self.discount, agent=kind.value, **sizes)
        if isinstance(kind.source, SpoolSource):
            return kind.source.open(discount=self.discount, **sizes)
        return kind.source.open(discount=self.discount, seed=seed, agent=agent)

    def fingerprint(self) -> str:
        """SHA-256 of everything that determines what is learned, the logs' content included."""
        state = hashlib.sha256(
            f"DataFederation {self.discount!r} {self.num_states} {self.num_actions}".encode()
        )
        state.update(self.assignment.tobytes() + content_of(self.held_out))
        digests = {id(kind.source): kind.source.fingerprint() for kind in self.kinds}
        for kind in self.kinds:
            state.update(f"{digests[id(kind.source)]} {kind.value!r}".encode())
        state.update(content_of(self.target_policy))
        if self.features is not None:
            state.update(self.features.digest().encode())
        return state.hexdigest()


def _kinds(sources: Any) -> tuple[Kind, ...]:
    """The kinds of agents: one for each source, and for each value of a log's column `by`."""
    given = tuple(sources) if isinstance(sources, Sequence) else (sources,)
    if not given:
        raise ProblemError("sources is empty; give a LogSource or a LiveSource.")
    kinds: list[Kind] = []
    for source in given:
        if isinstance(source, LogSource):
            kinds += [Kind(source, value) for value in source.agents()]
        elif isinstance(source, SpoolSource) or (
            callable(getattr(source, "open", None)) and hasattr(source, "spaces")
        ):
            kinds.append(Kind(source))
        else:
            raise ProblemError(
                f"sources has {shown(source)}; give fegsam.LogSource(...), fegsam.SpoolSource(...) "
                "or fegsam.LiveSource(...)."
            )
    return tuple(kinds)


def _sizes(
    kinds: tuple[Kind, ...], num_states: int | None, num_actions: int | None
) -> tuple[int | None, int | None]:
    """S and A: as given, or as the live sources have them."""
    states = None if num_states is None else integer(num_states, "num_states")
    actions = None if num_actions is None else integer(num_actions, "num_actions")
    for kind in kinds:
        if kind.live is None:
            continue
        spaces = kind.live.spaces()
        for name, here, known in (
            ("states", spaces.num_states, states),
            ("actions", spaces.num_actions, actions),
        ):
            if here is not None and known not in (None, here):
                raise ProblemError(
                    f"A live source has {here} {name} and the federation {known}; give sources "
                    f"with the same {name}."
                )
        states, actions = spaces.num_states or states, spaces.num_actions
    return states, actions


def _target(
    policy: TargetPolicy | None, states: int | None, actions: int | None
) -> FloatArray | Callable[[np.ndarray], ArrayLike] | None:
    if policy is None or callable(policy):
        return policy
    if states is None or actions is None:
        raise ProblemError(
            "target_policy is a table and the numbers of states and actions are not known; pass "
            "num_states= and num_actions=."
        )
    return check_policy(policy, states, actions, "target_policy")


def _evaluation(evaluation: Any, kinds: tuple[Kind, ...]) -> Evaluation | None:
    if evaluation is None:
        return None
    if not isinstance(evaluation, Evaluation):
        raise ProblemError(
            f"evaluation is {shown(evaluation)}; give fegsam.Evaluation(episodes=200)."
        )
    if all(kind.live is None for kind in kinds):
        raise ProblemError(
            "evaluation tries a policy in an environment, and all sources are logs; leave it out "
            "and look at ope_return."
        )
    return evaluation


def _check_one_agent_a_log(data: DataFederation) -> None:
    for kind, count in zip(data.kinds, data.kind_counts, strict=True):
        if count > 1 and isinstance(kind.source, LogSource):
            if kind.source.by is not None:
                values = sum(other.source is kind.source for other in data.kinds)
                raise ProblemError(
                    f"{count} agents would read the part {kind.value!r} of the log "
                    f"{kind.source.path}, in which {kind.source.by!r} has {values} values; a part "
                    f"feeds one agent: give it at most {values} agents, each with another part."
                )
            raise ProblemError(
                f"{count} agents would read the log {kind.source.path}; a log feeds one agent: "
                "name a column in by=, or give each agent its own log."
            )
        if count > 1 and isinstance(kind.source, SpoolSource):
            raise ProblemError(
                f"{count} agents would read the spool {kind.source.path}; a spool feeds one agent: "
                "give each agent its own."
            )
