"""d3rlpy: `DQN`, a network on one-hot states, learns the recorded transitions; it has no tables.

python benchmarks/peers/live_with_d3rlpy.py
"""

from __future__ import annotations

import logging
from importlib.metadata import version

import d3rlpy
import numpy as np
import torch
from live_task import ACTIONS, DISCOUNT, STATES, measure, recorded

BATCH, UPDATES = 32, 2000


def main() -> None:
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    now, action, reward, _, terminated, truncated = map(np.array, zip(*recorded(), strict=True))
    truncated[-1] |= ~terminated[-1]
    dataset = d3rlpy.dataset.MDPDataset(
        np.eye(STATES, dtype=np.float32)[now],
        action,
        reward.astype(np.float32),
        terminated.astype(np.float32),
        truncated.astype(np.float32),
        action_space=d3rlpy.constants.ActionSpace.DISCRETE,
        action_size=ACTIONS,
    )
    settings = {"batch_size": BATCH, "gamma": DISCOUNT, "learning_rate": 1e-3}
    network = d3rlpy.algos.DQNConfig(**settings, target_update_interval=100).create(device="cpu:0")
    network.build_with_dataset(dataset)

    def learn() -> np.ndarray:
        network.fit(
            dataset,
            n_steps=UPDATES,
            n_steps_per_epoch=UPDATES,
            show_progress=False,
            logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        )
        every = np.eye(STATES, dtype=np.float32)
        return np.stack(
            [network.predict_value(every, np.full(STATES, a)) for a in range(ACTIONS)], axis=1
        )

    did = f"`DQN.fit`, {UPDATES} batches of {BATCH} recorded transitions"
    measure(f"d3rlpy {version('d3rlpy')}", did, learn, UPDATES * BATCH)


if __name__ == "__main__":
    main()
