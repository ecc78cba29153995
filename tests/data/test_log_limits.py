"""Where runs on logs must end: estimates and fixed points that are known in closed form."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import fegsam as fg

pytest.importorskip("pyarrow")

HEAD = "episode,observation,action,reward,terminated,behavior_probability\n"


def log_of(folder: pathlib.Path, lines: list[str], **more) -> fg.LogSource:
    (folder / "log.csv").write_text(HEAD + "\n".join(lines) + "\n")
    return fg.LogSource(folder / "log.csv", **more)


# The sync periods below are no multiples of a pass, so that averages over synchronisations see all
# parts of a pass.
def test_one_step_episodes_give_the_self_normalised_estimate(tmp_path) -> None:
    random = np.random.default_rng(3)
    actions, rewards = random.integers(0, 2, 200), random.standard_normal(200)
    lines = [
        f"{i},0,{a},{r},true,0.5" for i, (a, r) in enumerate(zip(actions, rewards, strict=True))
    ]
    target = np.array([[0.2, 0.8]])
    source = log_of(tmp_path, lines, passes=500)
    data = fg.DataFederation(
        source, discount=0.9, num_states=1, num_actions=2, target_policy=target, held_out=0.0
    )
    found = fg.run(
        data,
        fg.OffPolicyTabularTD(),
        step_size=1e-3,
        sync_period=90,
        num_steps=99_000,
        tail=fg.Tail(0.5, over="syncs"),
    )
    ratios = target[0, actions] / 0.5
    expected = (ratios * rewards).sum() / ratios.sum()
    assert abs(expected - rewards.mean()) > 0.01, "the estimate is not the plain mean"
    assert found.data.tail_params.values[0, 0] == pytest.approx(expected, abs=2e-3)


def test_many_passes_tend_to_the_best_values_of_the_counted_mdp(tmp_path) -> None:
    mdp = fg.examples.garnet(4, 2, branching=2, discount=0.7, seed=1)
    path = tmp_path / "log.csv"
    fg.data.simulate_log(path, mdp, fg.policies.uniform(4, 2), episodes=40, length=10, seed=2)
    rows = fg.LogSource(path).read(discount=0.7)
    moves, paid = np.zeros((4, 2, 4)), np.zeros((4, 2))
    for j in np.flatnonzero(~rows.gap):
        here = rows.observation[j], rows.action[j]
        moves[here][rows.observation[j + 1]] += 1
        paid[here] += rows.reward[j]
    counts = moves.sum(axis=2)
    assert counts.min() > 0
    best = np.zeros((4, 2))
    for _ in range(200):
        best = paid / counts + 0.7 * (moves / counts[..., None]) @ best.max(axis=1)
    data = fg.DataFederation(
        fg.LogSource(path, passes=500), discount=0.7, num_states=4, num_actions=2, held_out=0.0
    )
    found = fg.run(
        data,
        fg.QLearning(),
        step_size=5e-3,
        sync_period=390,
        num_steps=195_000,
        tail=fg.Tail(0.5, over="syncs"),
    )
    assert found.data.tail_params.values[0] == pytest.approx(best.ravel(), abs=0.01)
