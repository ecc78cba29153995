"""Agents with different policies drift apart and meet, in a picture that moves.

It writes `agents.svg`, which every browser plays; the docs show the same picture.
"""

from __future__ import annotations

import argparse
import pathlib

import numpy as np

import fegsam as fg


def agents() -> fg.AgentPaths:
    """Four agents, each pulled towards a fixed point of its own between synchronisations."""
    mdp = fg.examples.garnet(6, 2, 3, discount=0.8, seed=3)
    private = fg.policies.random(6, 2, count=4, seed=4)
    line = np.column_stack([np.ones(6), np.linspace(-1, 1, 6)])
    federation = fg.Federation(
        mdp, private, num_agents=4, target_policy=fg.policies.uniform(6, 2), features=line
    )
    return fg.agent_paths(
        federation, fg.OffPolicyLinearTD(), step_size=0.1, sync_period=40, num_steps=200, seed=1
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("agents.svg"))
    given, moved = parser.parse_args(), agents()
    print(moved)
    print(f"written: {moved.save(given.output)}")


if __name__ == "__main__":
    main()
