"""Twenty ways in which a log can be damaged, each told in one sentence before any step is made."""

from __future__ import annotations

import numpy as np
import pytest
from pyarrow import parquet

import fegsam as fg
from fegsam import ProblemError
from fegsam.data import files
from fegsam.engines.recorded import RecordedStream
from helpers.logs import (
    Episode,
    observation_log,
    one_damaged,
    random_episodes,
    transition_log,
    without_row,
    write,
)

VECTORS = random_episodes(seed=0, count=2, width=2)
LONGER = {0: [1.0, 2.0, 3.0]}
NAN, INF = float("nan"), float("inf")
TRANSITIONS = transition_log(
    [Episode(17, [0, 1, 2], [0, 1], [0.0, 1.0], [0.5, 0.5], True), *random_episodes(1, 1)]
)


def edited(table: dict[str, list], **changes: dict) -> dict[str, list]:
    return table | {
        name: [change.get(i, value) for i, value in enumerate(table[name])]
        for name, change in changes.items()
    }


# name: (columns, options of check_log, what the sentence says after the name of the file)
DAMAGES: dict[str, tuple] = {
    "1 column missing": (
        one_damaged(action=None),
        {},
        ": there is no column 'action', only episode, step, observation, reward, terminated, "
        "truncated, behavior_probability: name it in columns (--column)",
    ),
    "2 wrong type": (
        one_damaged(reward=["a"] * 7),
        {},
        ": 'reward' is a string column: store numbers",
    ),
    "2 flags that are numbers": (
        one_damaged(terminated=[0.5] * 7),
        {},
        ": 'terminated' is a double column: store true and false",
    ),
    "3 empty reward": (
        one_damaged(reward={1: None}),
        {},
        ", row 1 (episode 17): 'reward' is empty before the episode's end: fill it or drop the "
        "episode",
    ),
    "3 empty action": (
        one_damaged(action={1: None}),
        {},
        ", row 1 (episode 17): 'action' is empty before the episode's end: fill it or drop the "
        "episode",
    ),
    "3 empty observation": (
        one_damaged(observation={5: None}),
        {},
        ", row 5 (episode 18): 'observation' is empty before",
    ),
    "3 empty flag": (
        one_damaged(terminated={1: None}),
        {},
        ", row 1 (episode 17): 'terminated' is empty before",
    ),
    "3 empty probability": (
        one_damaged(behavior_probability={4: None}),
        {},
        ", row 4 (episode 18): 'behavior_probability' is empty before",
    ),
    "3 empty episode": (
        one_damaged(episode={2: None}),
        {},
        ", row 2 (episode None): 'episode' is empty: number the episodes",
    ),
    "4 nan": (
        one_damaged(reward={4: NAN}),
        {},
        ", row 4 (episode 18): reward is nan: correct it",
    ),
    "4 infinite": (
        one_damaged(reward={0: -INF}),
        {},
        ", row 0 (episode 17): reward is -inf: correct it",
    ),
    "4 nan in a vector": (
        edited(observation_log(VECTORS), observation={1: [0.0, NAN]}),
        {},
        ", row 1 (episode 0): observation is [0.0, nan]: correct it",
    ),
    "5 states that are no whole numbers": (
        one_damaged(observation=[0.0, 1.0, 2.0, 3.0, 1.0, 3.0, 0.0]),
        {"algorithm": "OffPolicyTabularTD"},
        ": 'observation' has values of type double, but OffPolicyTabularTD learns a table "
        "of states: store states as whole numbers, or use features and a linear algorithm",
    ),
    "5 state out of range": (
        one_damaged(observation={3: 500}),
        {"num_states": 500},
        ", row 3 (episode 17): observation is 500, but there are 500 states (0 to 499): correct "
        "it or declare more",
    ),
    "5 negative state": (
        one_damaged(observation={0: -1}),
        {},
        ", row 0 (episode 17): observation is -1, but states are numbered from 0",
    ),
    "6 action out of range": (
        one_damaged(action={5: 6}),
        {"num_actions": 6},
        ", row 5 (episode 18): action is 6, but there are 6 actions (0 to 5): numbers start at 0",
    ),
    "6 part of an action": (
        one_damaged(action={5: 0.5}),
        {},
        ", row 5 (episode 18): action is 0.5, not a whole number",
    ),
    "7 other features": (
        observation_log(VECTORS),
        {"features": fg.features.fourier([0] * 4, [1] * 4, 1)},
        ": observation has 2 numbers, the fourier features take 4: log what was agreed",
    ),
    "7 other length": (
        edited(observation_log(VECTORS), observation={1: [0.0] * 5}),
        {},
        ", row 1 (episode 0): observation has 5 numbers, and the others have 2",
    ),
    "8 probability 0": (
        one_damaged(behavior_probability={0: 0.0}),
        {},
        ", row 0 (episode 17): behavior_probability is 0, but this action was taken: log the "
        "chance it had",
    ),
    "9 a logarithm": (
        one_damaged(behavior_probability={2: -1.94}),
        {},
        ", row 2 (episode 17): behavior_probability is -1.94, a logarithm or a density: log "
        "probabilities",
    ),
    "9 a density": (
        one_damaged(behavior_probability={2: 1.5}),
        {},
        ", row 2 (episode 17): behavior_probability is 1.5, a logarithm or a density",
    ),
    "9 a little above 1": (
        one_damaged(behavior_probability={2: 1.00001}),
        {},
        ", row 2 (episode 17): behavior_probability is 1.00001, a logarithm or a density",
    ),
    "10 no probabilities": (
        one_damaged(behavior_probability=None),
        {"algorithm": "OffPolicyTabularTD"},
        ": Algorithm 3 needs behavior_probability: log it, give policy=, or use Q-learning, which "
        "does without",
    ),
    "14 steps jump": (
        one_damaged(step={1: 4, 2: 6, 0: 3}),
        {},
        ", row 2 (episode 17): step goes from 4 to 6: sort by episode and step, or split the "
        "episode",
    ),
    "15 next differs": (
        edited(TRANSITIONS, next_observation={0: 3}),
        {},
        ", row 0 (episode 17): next_observation is 3, but the following row begins at 1: put the "
        "rows in order",
    ),
    "16 episode in pieces": (
        one_damaged(episode={6: 17}, truncated={5: True}, action={5: None, 6: None}),
        {},
        ", row 6 (episode 17): episode 17 begins again after episode 18: sort by episode and step",
    ),
    "17 rows after the end": (
        one_damaged(terminated={1: True}),
        {},
        ", row 2 (episode 17): episode 17 has rows behind its terminated row: start a new episode "
        "there",
    ),
    "17 rows after the last observation": (
        one_damaged(terminated={0: True}, action={1: None}),
        {},
        ", row 2 (episode 17): episode 17 has rows behind its last row",
    ),
    "18 no end": (
        without_row(one_damaged(terminated={2: False}), 3),
        {},
        ", row 2 (episode 17): episode 17 ends without terminated, truncated or a last "
        "observation: mark how it ended",
    ),
    "19 truncated without a last row": (
        without_row(one_damaged(), 6),
        {},
        ", row 5 (episode 18): episode 18 is truncated without a last observation, so its last "
        'step cannot be bootstrapped: add the row, or missing_final="drop"',
    ),
    "a mark on the last observation": (
        one_damaged(terminated={3: True}),
        {},
        ", row 3 (episode 17): the last observation of an episode has no action, but is marked",
    ),
    "20 used up": (
        one_damaged(),
        {"num_steps": 9},
        ": 5 transitions for num_steps 9: fewer steps or passes=2",
    ),
    "20 changed": (
        one_damaged(),
        {"expected_digest": "0" * 64},
        ": it is not the file this agent began with: put it back",
    ),
}


@pytest.mark.parametrize("batch", [1, 1 << 16])
@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_log_is_refused_with_its_place_and_a_cure(
    tmp_path, monkeypatch, name, batch
) -> None:
    monkeypatch.setattr(files, "BATCH", batch)
    table, options, told = DAMAGES[name]
    path = write(tmp_path / "log.parquet", table)
    with pytest.raises(ProblemError) as caught:
        fg.data.check_log(fg.LogSource(path), **options)
    assert str(caught.value).startswith(f"{path}{told}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in DAMAGES if name != "20 changed"])
def test_a_run_on_a_damaged_log_is_refused_before_any_step(tmp_path, monkeypatch, name) -> None:
    table, options, told = DAMAGES[name]
    path = write(tmp_path / "log.parquet", table)
    steps: list[int] = []
    monkeypatch.setattr(RecordedStream, "take", lambda self, count: steps.append(count))
    sizes = {"num_states": 10, "num_actions": 10} | {
        key: options[key] for key in ("num_states", "num_actions") if key in options
    }
    algorithm = fg.QLearning()
    if "algorithm" in options:
        algorithm, sizes["target_policy"] = fg.OffPolicyTabularTD(), fg.policies.uniform(10, 10)
    if isinstance(next(x for x in table["observation"] if x is not None), list):
        given = options.get("features", fg.features.columns(2))
        algorithm, sizes = fg.LinearQLearning(), {"num_actions": 10, "features": given}
    data = fg.DataFederation(fg.LogSource(path), discount=0.9, held_out=0, **sizes)
    num_steps = options.get("num_steps", 1)
    with pytest.raises(ProblemError) as caught:
        fg.run(data, algorithm, step_size=0.1, sync_period=1, num_steps=num_steps)
    if name != "5 negative state":  # with declared states, it is told as one out of range
        assert str(caught.value).startswith(f"{path}{told}")
    assert steps == []


def test_what_the_damages_are_made_from_is_good(tmp_path) -> None:
    for number, table in enumerate((one_damaged(), observation_log(VECTORS), TRANSITIONS)):
        path = write(tmp_path / f"{number}.parquet", table)
        (summary,) = fg.data.check_log(fg.LogSource(path)).values()
        assert summary.transitions == sum(action is not None for action in table["action"])


def test_a_file_that_is_cut_short_is_noticed_wherever_it_was_cut(tmp_path) -> None:
    path = write(tmp_path / "log.parquet", one_damaged())
    whole = path.read_bytes()
    for end in range(0, len(whole), 97):
        path.write_bytes(whole[:end])
        with pytest.raises(ProblemError, match="copy it again"):
            fg.data.check_log(fg.LogSource(path))


def test_a_csv_file_that_is_not_a_table_is_refused(tmp_path) -> None:
    path = write(tmp_path / "log.csv", one_damaged())
    text = path.read_text()
    path.write_text(text[:-3])
    with pytest.raises(ProblemError, match=r"log\.csv: .*columns.*correct it"):
        fg.data.check_log(fg.LogSource(path))
    path.write_text(text.replace("0.5", "half", 1))
    with pytest.raises(ProblemError, match=r"log\.csv: 'reward' is a string column: store numbers"):
        fg.data.check_log(fg.LogSource(path))


def test_a_number_that_is_too_large_is_refused(tmp_path) -> None:
    table = one_damaged(episode=np.array([2**63 + 1] * 4 + [2**63 + 2] * 3, np.uint64))
    path = write(tmp_path / "log.parquet", table)
    with pytest.raises(ProblemError, match=r"log\.parquet: a number does not fit in 64 bits"):
        fg.data.check_log(fg.LogSource(path))


MDP = fg.examples.garnet(4, 3, branching=2, discount=0.9, seed=0)
BEHAVIOR = 0.5 * fg.policies.random(4, 3, count=1, seed=0)[0] + 0.5 / 3


def simulated(tmp_path, policy) -> fg.LogSource:
    made = fg.data.simulate_log(
        tmp_path / "log.parquet", MDP, policy, episodes=100, length=20, seed=0
    )
    return fg.LogSource(made)


def test_ratios_of_the_policy_that_chose_the_actions_average_one(tmp_path) -> None:
    target = fg.policies.random(4, 3, count=1, seed=5)[0]
    found = fg.data.check_log(
        simulated(tmp_path, BEHAVIOR), target_policy=target, algorithm="OffPolicyTabularTD"
    )[None]
    assert abs(found.ratio_mean - 1.0) < 4.0 * found.ratio_error
    assert found.ratio_max == pytest.approx((target / BEHAVIOR)[found.counts > 0].max())


def test_12_probabilities_of_another_policy_are_noticed_by_their_mean_ratio(tmp_path) -> None:
    # The actions are epsilon-greedy, but the probabilities are said to be near the greedy ones.
    q = np.eye(4, 3)
    source = simulated(tmp_path, fg.policies.epsilon_greedy(q, 0.5))
    lie = fg.policies.epsilon_greedy(q, 0.2)
    table = parquet.read_table(source.files[0]).drop(["behavior_probability"])
    parquet.write_table(table, tmp_path / "lie.parquet")
    told = r"lie\.parquet: the ratios average 1\.\d+ \+- \S+ instead of 1: log the"
    with pytest.raises(ProblemError, match=told):
        fg.data.check_log(
            fg.LogSource([tmp_path / "lie.parquet"], policy=lie),
            target_policy=fg.policies.uniform(4, 3),
        )


def test_11_an_action_that_only_the_target_takes_is_named(tmp_path) -> None:
    behavior = fg.policies.uniform(4, 3)
    behavior[1] = [0.5, 0.5, 0.0]
    with pytest.raises(ProblemError) as caught:
        fg.data.check_log(simulated(tmp_path, behavior), target_policy=fg.policies.uniform(4, 3))
    assert str(caught.value).endswith(
        "log.parquet: the target takes action 2 in state 1, which this log never shows: widen the "
        "behaviour or change the target"
    )


def test_13_a_huge_ratio_is_told_with_the_step_size_that_it_allows(tmp_path) -> None:
    table = observation_log([Episode(i, [0, 0], [0], [0.0], [0.5], True) for i in range(200)])
    table["target_probability"] = [
        None if b is None else 0.5 for b in table["behavior_probability"]
    ]
    table["behavior_probability"][240] = 2.0**-15
    path = write(tmp_path / "log.parquet", table)
    with pytest.raises(ProblemError) as caught:
        fg.data.check_log(fg.LogSource(path), algorithm="OffPolicyTabularTD")
    assert str(caught.value) == (
        f"{path}, row 240 (episode 120): the ratio 16384 allows step sizes below 6.1e-05 only "
        "(1 effective rows of 200): change the target or the data"
    )


def test_13_a_step_size_above_one_over_the_largest_ratio_is_refused(tmp_path) -> None:
    source, target = simulated(tmp_path, BEHAVIOR), fg.policies.uniform(4, 3)
    most = fg.data.check_log(source, target_policy=target)[None].ratio_max
    fg.data.check_log(source, target_policy=target, step_size=0.99 / most)
    with pytest.raises(ProblemError, match="allows step sizes below"):
        fg.data.check_log(source, target_policy=target, step_size=1.01 / most)
