"""The compiled loops of some methods; the other combinations are compiled by the slow tests and
interpreted by `test_interpreted`."""

from __future__ import annotations

import pytest

import fegsam as fg
from cases import case
from helpers.method_cases import EVERY_METHOD
from helpers.replayed import ALPHA, SEEDS, assert_replays

COMPILED = [
    ("alg4", "last round by agent"),
    ("alg4", "by visits"),
    pytest.param("alg4", "weights of kinds", marks=pytest.mark.slow),
    pytest.param("alg5", "last round by kind", marks=pytest.mark.slow),
]
BOTH = pytest.mark.parametrize(("name", "kind"), COMPILED)


@BOTH
def test_cpu_agrees_with_the_papers_at_every_time(name, kind) -> None:
    assert_replays(case(name, n=2), EVERY_METHOD[kind], engine="cpu", K=4, T=15)


@BOTH
def test_one_thread_and_two_give_the_same_bits(name, kind, assert_same_bits) -> None:
    """A round has agent-steps enough for two threads to share it."""
    some, method = case(name, n=2, num_agents=900), EVERY_METHOD[kind]
    settings = {"alpha": ALPHA, "K": 20, "T": 50, "seeds": SEEDS[:1], "method": method}
    one, two = (some.run(**settings, engine=fg.engines.Cpu(threads=n)) for n in (1, 2))
    assert_same_bits(one, two)


def test_a_large_table_gives_the_same_bits_for_one_thread_and_two(assert_same_bits) -> None:
    """Blocks of agents touch few of its cells, and add up in lists."""
    states = 3000
    fed = fg.Federation(
        fg.examples.garnet(states, 2, 3, discount=0.8, seed=1, connected=True),
        fg.policies.uniform(states, 2),
        num_agents=900,
    )
    for kind in ("last round by agent", "by visits"):
        one, two = (
            fg.run(
                fed,
                fg.QLearning(),
                method=EVERY_METHOD[kind],
                step_size=ALPHA,
                sync_period=10,
                num_steps=35,
                record=10,
                record_params=True,
                engine=fg.engines.Cpu(threads=n),
            )
            for n in (1, 2)
        )
        assert_same_bits(one, two)
