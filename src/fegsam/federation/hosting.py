"""The node of a machine, made from its files: the same for every transport."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fegsam.data.charter import Charter
from fegsam.data.private import OwnData
from fegsam.federation.own_data import check_data, load_data
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.node import Node
from fegsam.federation.protocol.share import load_share


@dataclass(frozen=True)
class NodeSettings:
    """The agents and the experiment of a node, and the directory of their state."""

    experiment: Path
    """a share, or the TOML file of a study"""
    seed: int | None
    agents: tuple[int, ...]
    state_dir: Path
    trust: bool = False
    """whether the code that a study names may run"""
    salt: str = ""
    """what the fingerprint of a study is salted with"""
    data: Path | None = None
    """the file whose table [data] names the agents' data, if the study is a charter"""


@lru_cache(maxsize=64)
def experiment_of(settings: NodeSettings) -> Experiment:
    """The experiment of a node, read once per process."""
    path = settings.experiment
    if path.suffix == ".toml":
        return Experiment.from_spec(path, settings.seed, trust=settings.trust, salt=settings.salt)
    return load_share(path)


@lru_cache(maxsize=64)
def node_of(settings: NodeSettings) -> Node:
    """The node with its agents, made once per process."""
    experiment = experiment_of(settings)
    return experiment.node(settings.agents, settings.state_dir, data_of(settings))


def data_of(settings: NodeSettings) -> dict[int, OwnData] | None:
    """What the agents of a node read; None where the experiment simulates them."""
    if not isinstance(experiment_of(settings).problem, Charter):
        return None
    assert settings.data is not None
    return load_data(settings.data, settings.agents)


def check_node(settings: NodeSettings, *, enough: bool) -> list[str]:
    """What `own_data.check_data` says of a node's data, which must be what its agents began with.

    It is empty where the experiment simulates the agents.
    """
    data = data_of(settings)
    if data is None:
        return []
    experiment = experiment_of(settings)
    lines = list(check_data(experiment, data, enough=enough))
    experiment.node(settings.agents, settings.state_dir, data).check_state()
    return lines
