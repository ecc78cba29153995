"""Agents with different fixed points: the error from local steps does not fall with more agents.

The agents evaluate one policy with linear features, each with its own private behaviour policy.
"""

from __future__ import annotations

import numpy as np

import fegsam as fg

PERIODS = (1, 10, 100)
STEP_SIZE = 0.05


def federation(agents: int) -> fg.Federation:
    mdp = fg.examples.garnet(6, 2, 3, discount=0.8, seed=3)
    line = np.column_stack([np.ones(6), np.linspace(-1, 1, 6)])
    private = fg.policies.random(6, 2, count=2, seed=4)
    return fg.Federation(
        mdp, private, num_agents=agents, target_policy=fg.policies.uniform(6, 2), features=line
    )


def main() -> None:
    td = fg.OffPolicyLinearTD()
    print(
        f"mean distance of the agents' own fixed points from the common one: "
        f"{fg.heterogeneity(federation(2), td):.4f}"
    )
    print("exact remaining squared error:")
    print("  agents " + "".join(f"{f'K = {period}':>12}" for period in PERIODS))
    for agents in (2, 200, 20_000):
        errors = [
            fg.exact.stationary_error(
                federation(agents), td, step_size=STEP_SIZE, sync_period=period
            )
            for period in PERIODS
        ]
        print(f"  {agents:6d} " + "".join(f"{error:12.3e}" for error in errors))


if __name__ == "__main__":
    main()
