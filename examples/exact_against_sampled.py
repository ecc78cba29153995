"""The exact expected error next to the mean over runs; they agree within the standard error."""

from __future__ import annotations

import numpy as np
from scipy import stats

import fegsam as fg

TIMES = [0, 10, 30, 100, 300, 1000]
SETTINGS = {"step_size": 0.1, "sync_period": 10}


def main() -> None:
    line = np.column_stack([np.ones(9), np.linspace(-1, 1, 9)])
    walk = fg.examples.random_walk(9, discount=0.8)
    federation = fg.Federation(
        walk, num_agents=8, target_policy=fg.policies.uniform(9, 2), features=line
    )
    exact = fg.exact.moments(federation, fg.OnPolicyTD(), times=TIMES, **SETTINGS)
    history = fg.run(
        federation, fg.OnPolicyTD(), num_steps=TIMES[-1], record=TIMES, seeds=range(400), **SETTINGS
    )
    sampled = history.data.squared_error_2
    print("   time      exact     mean of 400 runs, difference in standard errors")
    for index, time in enumerate(TIMES):
        runs = sampled[:, index].values
        off = (runs.mean() - exact.mse[index]) / max(stats.sem(runs), 1e-300) if index else 0.0
        print(f"  {time:5d}  {exact.mse[index]:.3e}  {runs.mean():.3e}  {off:+.1f}")


if __name__ == "__main__":
    main()
