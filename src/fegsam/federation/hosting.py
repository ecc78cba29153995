"""The node of a machine, made from its files: the same for every transport."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

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
    return experiment_of(settings).node(settings.agents, settings.state_dir)
