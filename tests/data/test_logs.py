"""What a reader yields, against episodes in plain Python that know neither rows nor gaps."""

from __future__ import annotations

import numpy as np
import pytest

import fegsam as fg
from fegsam import ProblemError
from fegsam.data import files
from fegsam.data.episodes import SeenEpisodes
from helpers.logs import (
    expected_rows,
    found_rows,
    observation_log,
    random_episodes,
    transition_log,
    write,
)

FORMS = {"observations": observation_log, "transitions": transition_log}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ending", [".parquet", ".csv"])
@pytest.mark.parametrize("batch", [1, 2, 5, 1 << 16])
def test_rows_and_gaps_are_those_of_the_episodes(
    tmp_path, monkeypatch, form, ending, batch
) -> None:
    monkeypatch.setattr(files, "BATCH", batch)
    episodes = random_episodes(seed=0, count=40)
    path = write(tmp_path / f"log{ending}", FORMS[form](episodes), group=7)
    found = fg.LogSource(path).read(discount=0.9)
    assert found_rows(found) == expected_rows(episodes, 0.9)


@pytest.mark.parametrize("form", FORMS)
def test_observations_of_several_numbers_are_read_as_they_were_stored(tmp_path, form) -> None:
    episodes = random_episodes(seed=1, count=20, width=3)
    table = FORMS[form](episodes)
    rows = fg.LogSource(write(tmp_path / "log.parquet", table)).read(discount=0.5)
    assert rows.observation.shape == (len(rows.gap), 3)
    assert found_rows(rows) == expected_rows(episodes, 0.5)
    if form == "observations":
        spread = {f"x{k}": [seen[k] for seen in table["observation"]] for k in range(3)}
        del table["observation"]
        path = write(tmp_path / "spread.parquet", table | spread)
        source = fg.LogSource(path, columns={"observation": ["x0", "x1", "x2"]})
        np.testing.assert_array_equal(source.read(discount=0.5).observation, rows.observation)


def test_a_list_column_without_a_fixed_length_is_read_too(tmp_path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    episodes = random_episodes(seed=1, count=5, width=2)
    table = {name: pa.array(column) for name, column in observation_log(episodes).items()}
    parquet.write_table(pa.table(table), tmp_path / "log.parquet")
    rows = fg.LogSource(tmp_path / "log.parquet").read(discount=0.5)
    assert found_rows(rows) == expected_rows(episodes, 0.5)


def test_a_run_holds_out_rows_of_a_list_column_without_a_fixed_length(tmp_path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    table = observation_log(random_episodes(seed=1, count=40, width=2))
    write(tmp_path / "fixed.parquet", table)
    plain = pa.table({name: pa.array(column) for name, column in table.items()})
    parquet.write_table(plain, tmp_path / "free.parquet")
    finals, learned = [], []
    for name in ("fixed", "free"):
        source = fg.LogSource(tmp_path / f"{name}.parquet")
        features = fg.features.fourier([-2.0, -2.0], [2.0, 2.0], order=1)
        data = fg.DataFederation(source, discount=0.5, features=features, num_actions=3)
        history = fg.run(data, fg.OnPolicyTD(), step_size=0.1, sync_period=5, num_steps=50)
        finals.append(history.data.final_params.values)
        split = fg.data.SplitReader(source.open(discount=0.5), 0.1, seed=0)
        learned.append(found_rows(split.read(1000)))
        assert split.read(9).observation.shape == (0, 2)
    np.testing.assert_array_equal(*finals)
    assert learned[0] == learned[1]


def test_a_log_in_pieces_is_one_log_even_where_a_file_ends_within_an_episode(tmp_path) -> None:
    episodes = random_episodes(seed=2, count=12)
    table = observation_log(episodes)
    whole = found_rows(fg.LogSource(write(tmp_path / "all.parquet", table)).read(discount=0.9))
    folder = tmp_path / "folder"
    folder.mkdir()
    paths = []
    for number, begin in enumerate(range(0, len(table["action"]), 5)):
        piece = {name: column[begin : begin + 5] for name, column in table.items()}
        paths.append(write(folder / f"{number:02}.parquet", piece))
    assert found_rows(fg.LogSource(folder).read(discount=0.9)) == whole
    assert found_rows(fg.LogSource(paths).read(discount=0.9)) == whole
    assert fg.LogSource(folder).digest() == fg.LogSource(paths).digest()
    assert fg.LogSource(folder).digest() != fg.LogSource(paths[:-1]).digest()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("passes", [1, 2])
def test_a_reader_that_is_saved_and_restored_anywhere_yields_the_rest(
    tmp_path, monkeypatch, form, passes
) -> None:
    monkeypatch.setattr(files, "BATCH", 4)
    table = FORMS[form](random_episodes(seed=3, count=5))
    half = len(table["action"]) // 2
    paths = [
        write(tmp_path / f"{i}.parquet", {name: c[cut] for name, c in table.items()}, group=3)
        for i, cut in enumerate((slice(0, half), slice(half, None)))
    ]
    source = fg.LogSource(paths, passes=passes)
    every = found_rows(source.open(discount=0.9).read(None))
    assert len(every) == passes * len(found_rows(source.read(discount=0.9)))
    for count in range(len(every) + 1):
        reader = source.open(discount=0.9)
        assert found_rows(reader.read(count)) == every[:count]
        again = source.open(discount=0.9)
        again.restore(reader.save())
        again.restore(again.save())
        assert found_rows(again.read(3)) == every[count : count + 3]
        again.restore(again.save())
        assert found_rows(again.read(None)) == every[count + 3 :]
        assert found_rows(again.read(1)) == []
        assert found_rows(again.read_some(1)) == []


def test_each_value_of_a_column_is_an_agent_with_the_rows_of_its_own(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(files, "BATCH", 6)
    wards = {"east": random_episodes(4, 7), "west": random_episodes(5, 9)}
    tables = {ward: observation_log(episodes) for ward, episodes in wards.items()}
    rows = [
        {"ward": ward, **{name: column[i] for name, column in table.items()}}
        for ward, table in tables.items()
        for i in range(len(table["action"]))
    ]
    order = np.random.default_rng(6).permutation(
        [ward == "east" for ward in (r["ward"] for r in rows)]
    )
    mixed = {
        True: iter(r for r in rows if r["ward"] == "east"),
        False: iter(r for r in rows if r["ward"] != "east"),
    }
    rows = [next(mixed[bool(east)]) for east in order]
    path = write(tmp_path / "log.parquet", {name: [r[name] for r in rows] for name in rows[0]})
    source = fg.LogSource(path, by="ward")
    assert sorted(source.agents()) == ["east", "west"]
    summaries = fg.data.summarise(source)
    for ward, episodes in wards.items():
        found = source.read(discount=0.9, agent=ward)
        assert found_rows(found) == expected_rows(episodes, 0.9)
        assert summaries[ward].transitions == int((~found.gap).sum())
        assert summaries[ward].terminated == sum(episode.terminated for episode in episodes)
    with pytest.raises(ProblemError, match="no row has 'north' in 'ward'"):
        source.open(discount=0.9, agent="north")


def two_wards(path, wards):
    """A log of episodes 0 to 39, the first half of the ward `wards[0]`, as a pyarrow.Table."""
    import pyarrow as pa
    from pyarrow import parquet

    episodes = random_episodes(seed=5, count=40)
    table = parquet.read_table(write(path, observation_log(episodes)))
    half = sum(len(episode.observations) for episode in episodes[:20])
    kind = pa.uint64() if wards[1] == 2**63 else None
    column = pa.array([wards[0]] * half + [wards[1]] * (len(table) - half), kind)
    return table.append_column("ward", column)


@pytest.mark.parametrize("wards", [("b", "a"), ("b", None)])
def test_agents_that_a_file_stores_as_codes_are_those_of_their_values(tmp_path, wards) -> None:
    from pyarrow import parquet

    table = two_wards(tmp_path / "plain.parquet", wards)
    coded = table.set_column(8, "ward", table["ward"].dictionary_encode())
    sources = {}
    for name, each in (("plain", table), ("coded", coded)):
        parquet.write_table(each, tmp_path / f"{name}.parquet")
        sources[name] = fg.LogSource(tmp_path / f"{name}.parquet", by="ward")
    assert "dictionary" in str(parquet.read_schema(sources["coded"].path).field("ward").type)
    assert sources["coded"].agents() == sources["plain"].agents() == wards
    found = {name: fg.data.check_log(source) for name, source in sources.items()}
    for ward in wards:
        plain, coded = (source.read(discount=0.9, agent=ward) for source in sources.values())
        assert found_rows(coded) == found_rows(plain)
        assert found["coded"][ward].transitions == found["plain"][ward].transitions


@pytest.mark.parametrize(
    ("wards", "told"),
    [
        (([1], [2]), "'ward' is a list<.*> column, whose values cannot tell agents apart: store"),
        ((1, 2**63), "'ward' has 9223372036854775808, which does not fit in 64 bits"),
    ],
)
def test_a_column_that_cannot_tell_agents_apart_is_refused(tmp_path, wards, told) -> None:
    from pyarrow import parquet

    parquet.write_table(two_wards(tmp_path / "log.parquet", wards), tmp_path / "log.parquet")
    with pytest.raises(ProblemError, match=told):
        fg.DataFederation(fg.LogSource(tmp_path / "log.parquet", by="ward"), discount=0.9)


def test_files_that_name_agents_by_numbers_and_by_text_are_refused(tmp_path) -> None:
    paths = []
    for number, ward in enumerate((1, "1", None)):
        episodes = [e._replace(name=e.name + 9 * number) for e in random_episodes(5, count=9)]
        table = observation_log(episodes)
        table["ward"] = [ward] * len(table["action"])
        paths.append(write(tmp_path / f"{number}.parquet", table))
    with pytest.raises(ProblemError, match=r"1.parquet: 'ward' holds text, but in .*0.parquet it"):
        fg.LogSource(paths, by="ward").agents()
    assert fg.LogSource(paths[1:], by="ward").agents() == ("1", None)
    assert fg.LogSource(paths[1:], by="ward").read(discount=0.9, agent="1").gap.sum() == 9


def test_files_that_name_episodes_by_numbers_and_by_text_are_not_glued_together(tmp_path) -> None:
    whole = observation_log(random_episodes(seed=5, count=1))
    begun = {name: column[:1] for name, column in whole.items()}
    other = observation_log([random_episodes(seed=6, count=1)[0]._replace(name="z")])
    del begun["step"], other["step"]
    paths = [write(tmp_path / "0.csv", begun), write(tmp_path / "1.csv", other)]
    with pytest.raises(ProblemError, match=r"1.csv: 'episode' holds text, but in .* it holds numb"):
        fg.LogSource(paths).read(discount=0.9)


def test_files_that_each_number_their_episodes_from_0_are_told_apart_from_disorder(
    tmp_path,
) -> None:
    table = observation_log(random_episodes(seed=5, count=4))
    paths = [write(tmp_path / f"{number}.parquet", table) for number in range(2)]
    told = r"1.parquet, row 0 .*: episode 0 begins again after episode 3: give no two episodes of"
    with pytest.raises(ProblemError, match=told):
        fg.LogSource(paths).read(discount=0.9)


def test_an_observation_spread_over_columns_has_a_number_in_each(tmp_path) -> None:
    table = observation_log(random_episodes(seed=1, count=5, width=2))
    table["z"] = [0.5] * len(table["action"])
    path = write(tmp_path / "log.parquet", table)
    source = fg.LogSource(path, columns={"observation": ["observation", "z"]})
    with pytest.raises(ProblemError, match="spread over 2 columns, but 'observation' has lists"):
        source.read(discount=0.5)


def test_two_columns_of_one_name_are_refused(tmp_path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("episode,observation,action,reward,terminated,reward\n0,0,1,1.0,true,2.0\n")
    with pytest.raises(ProblemError, match=r"log.csv: 2 columns are named 'reward': rename all"):
        fg.LogSource(path).read(discount=0.5)
    path.write_text("episode,observation,action,reward,terminated,w,w\n0,0,1,1.0,true,2.0,1\n")
    with pytest.raises(ProblemError, match=r"log.csv: 2 columns are named 'w': rename all but one"):
        fg.LogSource(path, by="w").agents()


def test_a_truncated_transition_without_its_last_observation_can_be_left_out(tmp_path) -> None:
    episodes = random_episodes(seed=7, count=30)
    table = observation_log(episodes)
    kept = [i for i, action in enumerate(table["action"]) if action is not None]
    table = {name: [column[i] for i in kept] for name, column in table.items()}
    source = fg.LogSource(write(tmp_path / "log.parquet", table), missing_final="drop")
    expected = []
    for episode in episodes:
        if episode.terminated:  # any last observation serves, since nothing is bootstrapped
            seen = [*episode.observations[:-1], episode.observations[-2]]
            expected.append(episode._replace(observations=seen))
        else:
            cut = {name: getattr(episode, name)[:-1] for name in episode._fields[1:5]}
            expected.append(episode._replace(**cut))
    assert found_rows(source.read(discount=0.9)) == expected_rows(expected, 0.9)


def test_episodes_named_by_text_and_other_names_of_columns_change_nothing(tmp_path) -> None:
    episodes = random_episodes(seed=8, count=15)
    table = observation_log([episode._replace(name=f"p-{episode.name}") for episode in episodes])
    table["act"] = table.pop("action")
    del table["step"], table["truncated"]
    source = fg.LogSource(write(tmp_path / "log.parquet", table), columns={"action": "act"})
    assert found_rows(source.read(discount=0.9)) == expected_rows(episodes, 0.9)


def test_a_policy_stands_for_probabilities_that_were_not_logged(tmp_path) -> None:
    table = observation_log(random_episodes(seed=9, count=5))
    del table["behavior_probability"]
    path = write(tmp_path / "log.parquet", table)
    policy = fg.policies.random(5, 3, count=1, seed=0)[0]
    rows = fg.LogSource(path, policy=policy).read(discount=0.9)
    on = ~rows.gap
    np.testing.assert_array_equal(rows.behavior[on], policy[rows.observation[on], rows.action[on]])
    with pytest.raises(ProblemError, match="probability 0, but this action was taken"):
        fg.LogSource(path, policy=fg.policies.greedy(np.eye(5, 3))).read(discount=0.9)


POLICY = fg.policies.uniform(5, 3)


@pytest.mark.parametrize(
    ("policy", "change", "told"),
    [
        (2 * POLICY, {}, "policy in state 0 sums to 2, but must sum to one"),
        (POLICY - np.eye(5, 3) * 0.5, {}, "policy in state 0 has probability -0.1666"),
        (POLICY, {"probabilities": True}, "logged, and the policy .* too: leave one of them out"),
        (POLICY, {"width": 2}, "observations are not states, .* policy= does not fit them: log"),
        (fg.policies.uniform(6, 3), {}, r"shape \(6, 3\), but the MDP has 5 states"),
    ],
)
def test_a_policy_that_cannot_have_chosen_the_actions_is_refused(
    tmp_path, policy, change, told
) -> None:
    table = observation_log(random_episodes(seed=9, count=5, width=change.get("width", 0)))
    if "probabilities" not in change:
        del table["behavior_probability"]
    source = fg.LogSource(write(tmp_path / "log.parquet", table), policy=policy)
    with pytest.raises(ProblemError, match=told):
        source.open(discount=0.9, num_states=5).read(1)


def test_probabilities_that_rounding_put_above_1_are_1(tmp_path) -> None:
    table = observation_log(random_episodes(seed=9, count=5))
    count = len(table["action"])
    for role in ("behavior_probability", "target_probability"):
        table[role] = [1.0 + 1e-7] * count
    rows = fg.LogSource(write(tmp_path / "log.parquet", table)).read(discount=0.9)
    assert (rows.behavior[~rows.gap] == 1.0).all()
    assert (rows.target[~rows.gap] == 1.0).all()
    assert np.isnan(rows.behavior[rows.gap]).all()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_csv_file_of_a_header_alone_adds_nothing_to_a_log(tmp_path, place) -> None:
    episodes = random_episodes(seed=9, count=6)
    header = "episode,step,observation,action,reward,terminated,truncated,behavior_probability\n"
    paths = [
        write(tmp_path / f"{number}.csv", observation_log(part))
        for number, part in enumerate((episodes[:3], episodes[3:]))
    ]
    paths.insert(place, tmp_path / "empty.csv")
    paths[place].write_text(header)
    source = fg.LogSource(paths)
    assert found_rows(source.read(discount=0.9)) == expected_rows(episodes, 0.9)
    assert [layout.width for layout in source.layouts()] == [None] * 3
    assert fg.data.check_log(source)[None].episodes == 6


def test_a_simulated_agent_logs_what_its_mdp_and_its_policy_say(tmp_path) -> None:
    mdp = fg.examples.garnet(6, 3, branching=3, discount=0.9, seed=0)
    policy = fg.policies.random(6, 3, count=1, seed=1)[0]
    path = fg.data.simulate_log(
        tmp_path / "log.parquet", mdp, policy, episodes=400, length=50, seed=2, ends=[5]
    )
    rows = fg.LogSource(path).read(discount=0.9)
    on = np.flatnonzero(~rows.gap)
    states, actions = rows.observation[on], rows.action[on]
    np.testing.assert_array_equal(rows.reward[on], mdp.rewards[states, actions])
    ended = rows.discount[on] == 0.0
    np.testing.assert_array_equal(ended, rows.observation[on + 1] == 5)
    assert 0.1 < ended.sum() / rows.gap.sum() <= 1.0
    # Pearson's statistic of the next states, in standard errors of its chi-squared distribution.
    full = mdp.transitions.toarray()
    seen = np.zeros(full.shape)
    np.add.at(seen, (states * 3 + actions, rows.observation[on + 1]), 1.0)
    mean = full * seen.sum(axis=1, keepdims=True)
    assert not seen[full == 0].any()
    used = mean > 0
    statistic = ((seen - mean)[used] ** 2 / mean[used]).sum()
    freedom = used.sum() - (seen.sum(axis=1) > 0).sum()
    assert abs(statistic - freedom) < 4.0 * np.sqrt(2.0 * freedom)


def test_episodes_that_were_seen_are_known_in_any_order() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.permutation(3000)
    seen, slow = SeenEpisodes(), set()
    for part in np.array_split(numbers, 100):
        assert seen.add(part) == -1
        slow |= set(part.tolist())
        again = np.append(rng.integers(3000, 6000, 1), rng.choice(sorted(slow)))
        assert SeenEpisodes.add(seen, again) == 1
    assert seen.add(np.array([5000, 5001, 5000])) in (0, 1, 2)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: fg.LogSource(path, passes=0), "passes is 0"),
        (lambda path: fg.LogSource(path, columns={"akt": "a"}), "names 'akt'"),
        (lambda path: fg.LogSource(path, columns="a"), "give a mapping"),
        (lambda path: fg.LogSource(path, columns={"action": ["a", "b"]}), "one column's name"),
        (lambda path: fg.LogSource(path, missing_final="no"), "missing_final is 'no'"),
        (lambda path: fg.LogSource("minari:D4RL/x").files, "fegsam data import minari:D4RL/x"),
        (lambda path: fg.LogSource(path.parent).files, "no .parquet or .csv file"),
        (lambda path: fg.LogSource([]).files, "no file"),
        (lambda path: fg.LogSource(path.with_suffix(".txt")).files, "ends in '.txt'"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(tmp_path, make, told) -> None:
    with pytest.raises(ProblemError, match=told):
        make(tmp_path / "log.parquet")
