"""The memory of a large federation; slow, so not among the ordinary tests."""

from __future__ import annotations

import pytest

from helpers import processes

MILLION = """
import numpy as np
import fegsam as fg
mdp = fg.examples.garnet(100, 5, 100, discount=0.9, seed=0)
fed = fg.Federation(mdp, fg.policies.random(100, 5, count=4, seed=1), num_agents=1_000_000)
settings = dict(step_size=0.1, sync_period=10, num_steps=20, record=np.array([0, 20]))
history = fg.run(fed, fg.QLearning(), **settings)
assert history.data.squared_error[0, 1] < history.data.squared_error[0, 0]
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(line.split()[1])
"""


@pytest.mark.slow
def test_a_million_agents_take_less_than_a_gigabyte() -> None:
    peak_kilobytes = int(processes.run(MILLION).split()[-1])
    assert peak_kilobytes < 1_000_000
