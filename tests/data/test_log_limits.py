"""Where runs on logs must end: estimates and fixed points that are known in closed form.

And what they cost: the memory does not grow with the log.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

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


def test_many_passes_tend_to_the_least_squares_solution(tmp_path) -> None:
    mdp, go = fg.examples.garnet(6, 2, branching=3, discount=0.7, seed=1), fg.policies.uniform(6, 2)
    path = tmp_path / "log.csv"
    fg.data.simulate_log(path, mdp, go, episodes=40, length=10, seed=2)
    phi = np.random.default_rng(0).normal(size=(6, 2))
    rows = fg.LogSource(path).read(discount=0.7)
    matrix, offset = np.zeros((2, 2)), np.zeros(2)
    for j in np.flatnonzero(~rows.gap):
        here, there = phi[rows.observation[j]], phi[rows.observation[j + 1]]
        matrix += np.outer(here, here - 0.7 * there)
        offset += rows.reward[j] * here
    expected = np.linalg.solve(matrix, offset)
    data = fg.DataFederation(
        fg.LogSource(path, passes=500),
        discount=0.7,
        features=fg.features.table(phi),
        num_states=6,
        held_out=0.0,
    )
    found = fg.run(
        data,
        fg.OnPolicyTD(),
        step_size=2e-3,
        sync_period=390,
        num_steps=195_000,
        tail=fg.Tail(0.5, over="syncs"),
    )
    values = phi @ go_values(mdp, go, phi)
    assert abs(phi @ expected - values).max() > 0.02, "it is not the solution of the MDP itself"
    assert found.data.tail_params.values[0] == pytest.approx(expected, abs=2e-3)


def go_values(mdp, policy, phi) -> np.ndarray:
    """The weights of TD in the MDP, by plain linear algebra."""
    chain, paid = mdp.policy_chain(policy).toarray(), mdp.policy_rewards(policy)
    lasting = np.linalg.matrix_power(chain, 1000)[0]
    weighted = phi.T * lasting
    return np.linalg.solve(weighted @ (phi - 0.7 * chain @ phi), weighted @ paid)


MEMORY = """
import pathlib, re, sys, warnings
import fegsam as fg
warnings.simplefilter("ignore")
data = fg.DataFederation(
    fg.LogSource(sys.argv[1]), discount=0.9, num_states=50, num_actions=2, held_out=0.0
)
steps = int(sys.argv[2])
fg.run(data, fg.QLearning(), step_size=0.1, sync_period=1000, num_steps=steps, record=[0])
# The peak of this program; that of `getrusage` includes the process that started it.
print(re.search(r"VmHWM:\\s*(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="Linux says the peak")
def test_a_run_on_a_log_of_any_length_takes_the_same_memory(tmp_path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    peaks, length = [], 20
    for episodes in (20_000, 400_000):
        count, random = episodes * (length + 1), np.random.default_rng(0)
        last = np.tile(np.arange(length + 1) == length, episodes)
        table = {
            "episode": np.repeat(np.arange(episodes), length + 1),
            "observation": random.integers(0, 50, count),
            "action": pa.array(random.integers(0, 2, count), mask=last),
            "reward": pa.array(random.normal(size=count), mask=last),
            "terminated": np.zeros(count, bool),
            "truncated": np.tile(np.arange(length + 1) == length - 1, episodes),
        }
        path = tmp_path / f"{episodes}.parquet"
        parquet.write_table(pa.table(table), path, row_group_size=10**5)
        command = [sys.executable, "-c", MEMORY, str(path), str(episodes * length)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    # 8.4 million rows take 300 MB as arrays; the peak of a process varies by some MB.
    assert peaks[1] - peaks[0] < 30_000
