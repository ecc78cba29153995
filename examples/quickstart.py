"""A hundred agents with private policies learn Q* of one environment together."""

from __future__ import annotations

import fegsam as fg


def main() -> None:
    mdp = fg.examples.garnet(states=20, actions=3, branching=4, discount=0.8, seed=0)
    private = fg.policies.random(20, 3, count=100, seed=1)
    federation = fg.Federation(mdp, private, num_agents=100)
    history = fg.run(
        federation, fg.QLearning(), step_size=0.1, sync_period=20, num_steps=10_000, seeds=range(3)
    )
    error = history.data.squared_error.mean("seed")
    print(history)
    print(f"squared error: {float(error[0]):.3g} at the start, {float(error[-1]):.3g} at the end")

    value = fg.policy_value(mdp, history.policy())
    best = fg.fixed_point(federation, fg.QLearning()).reshape(20, 3).max(axis=1)
    print(
        f"the learned policy is worth {value.mean():.4f} on average, the best one {best.mean():.4f}"
    )


if __name__ == "__main__":
    main()
