"""How rarely may a hundred agents synchronise and still reach an accuracy?

The planner finds the answer and verifies it with a run.
"""

from __future__ import annotations

import numpy as np

import fegsam as fg
from fegsam.planning import plan


def main() -> None:
    line = np.column_stack([np.ones(9), np.linspace(-1, 1, 9)])
    walk = fg.examples.random_walk(9, discount=0.8)
    federation = fg.Federation(
        walk, num_agents=100, target_policy=fg.policies.uniform(9, 2), features=line
    )
    for goal in ("communications", "samples"):
        print(
            plan(federation, fg.OnPolicyTD(), accuracy=1e-3, goal=goal, verify_seeds=50), end="\n\n"
        )


if __name__ == "__main__":
    main()
