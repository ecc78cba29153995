"""``fegsam data``: what it prints, in which width, and how it refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fegsam as fg
from fegsam.cli import main
from helpers.logs import (
    Episode,
    observation_log,
    one_damaged,
    random_episodes,
    transition_log,
    write,
)

UNIFORM = ["--states", "5", "--actions", "3", "--target", "uniform"]
FOURIER = ["--features", 'kind="fourier", low=[-3,-3], high=[3,3], order=1']
BANDIT = [Episode(i, [0, 0], [i % 2], [float(i % 2)], [0.5], True) for i in range(40)]


def good_logs(tmp_path):
    """Five good logs with the options to describe them, and what is said of each."""
    vectors = random_episodes(seed=1, count=30, width=2)
    wards = observation_log(random_episodes(seed=2, count=30))
    wards["ward"] = [f"ward {name % 3}" for name in wards["episode"]]
    states = random_episodes(seed=0, count=50)
    return {
        "tabular": (
            [write(tmp_path / "tabular.parquet", observation_log(states)), *UNIFORM],
            [
                "states 0 to 4, of which 5 occur",
                "effective rows",
                "OffPolicyTabularTD  not: the ratios",
            ],
        ),
        "csv": (
            [write(tmp_path / "a_long_name_of_a_file_of_transitions.csv", transition_log(states))],
            ["QLearning           step sizes up to 1", "needs a target policy (--target)"],
        ),
        "vectors": (
            [write(tmp_path / "vectors.parquet", observation_log(vectors)), *FOURIER],
            [
                "2 numbers each",
                "0 to 2",
                "truncation",
                "for discount 0.99",
                "not: its observations are not",
            ],
        ),
        "wards": (
            [write(tmp_path / "wards.parquet", wards), "--by", "ward"],
            ["ward 0", "ward 2", "Every agent can feed"],
        ),
        "bandit": (
            [write(tmp_path / "bandit.parquet", observation_log(BANDIT)), "--discount", "0.5"],
            ["40 in 40 episodes of 1 on average", "40 terminated, 0 truncated"],
        ),
    }


@pytest.mark.parametrize("name", ["tabular", "csv", "vectors", "wards", "bandit"])
def test_a_good_log_is_described_within_80_columns(tmp_path, capsys, name) -> None:
    words, told = good_logs(tmp_path)[name]
    words = [str(word) for word in words]
    assert main(["data", "describe", *words]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    for each in told:
        assert each in printed
    assert main(["data", "check", *words]) == (2 if name == "tabular" else 0)
    captured = capsys.readouterr()
    if name == "tabular":  # its probabilities are random numbers, not those of its actions
        assert "the ratios average" in captured.err
    else:
        assert captured.out.endswith("no damage\n")


@pytest.mark.parametrize("name", ["tabular", "csv", "vectors", "wards", "bandit"])
def test_the_page_of_a_log_says_the_same_and_loads_nothing(tmp_path, capsys, name) -> None:
    words, told = good_logs(tmp_path)[name]
    page = tmp_path / "log.html"
    assert main(["data", "describe", *map(str, words), "-o", str(page)]) == 0
    assert capsys.readouterr().out.endswith(f"page: {page}\n")
    text = page.read_text(encoding="utf-8")
    plain = " ".join(re.sub("<[^>]*>", " ", text).split())
    for each in told:
        assert " ".join(each.split()) in plain
    for outside in ("<script", "http://", "https://", "url(", "@import"):
        assert outside not in text


def test_the_pictures_of_a_page_show_every_episode_ratio_and_pair(tmp_path) -> None:
    episodes = random_episodes(seed=0, count=50)
    log = write(tmp_path / "<b>.parquet", observation_log(episodes))
    page = tmp_path / "log.html"
    assert main(["data", "describe", str(log), *UNIFORM, "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "&lt;b&gt;" in text
    assert "<b>" not in text

    def counts(title: str) -> list[int]:
        picture = text.partition(f"<h3>{title}</h3>")[2].partition("</figure>")[0]
        return [int(found) for found in re.findall(r">(\d+)</(?:span|td)>", picture)]

    steps = [len(episode.actions) for episode in episodes]
    assert counts("Episodes") == [steps.count(length) for length in range(1, max(steps) + 1)]
    assert sum(counts("Importance ratios")) == sum(steps)
    pairs = np.zeros((5, 3), int)
    for episode in episodes:
        np.add.at(pairs, (episode.observations[:-1], episode.actions), 1)
    assert counts("Coverage") == pairs.ravel().tolist()


@pytest.mark.parametrize("action", ["check", "describe"])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"action": None}, ": there is no column 'action', only"),
        ({"reward": {1: None}}, ", row 1 (episode 17): 'reward' is empty"),
        ({"behavior_probability": {0: 0.0}}, ", row 0 (episode 17): behavior_probability is 0"),
        ({"terminated": {2: False}, "action": {3: 1}, "reward": {3: 0.0}}, ", row 3 (episode 17)"),
        ({"episode": {4: 17, 5: 17, 6: 17}}, ", row 4 (episode 17): episode 17 has rows behind"),
    ],
)
def test_a_damaged_log_ends_the_command_in_one_sentence(
    tmp_path, capsys, action, change, told
) -> None:
    path = write(tmp_path / "log.parquet", one_damaged(**change))
    assert main(["data", action, str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"fegsam: {path}{told}")
    assert captured.err.count("\n") == 1
    if action == "describe":
        page = tmp_path / "log.html"
        assert main(["data", "describe", str(path), "-o", str(page)]) == 2
        assert not page.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["check", "LOG", "--column", "action"], "has no '='"),
        (["check", "LOG", "--column", "reward=pay"], "no column 'pay'"),
        (["check", "LOG", "--num-steps", "6"], "5 transitions for num_steps 6"),
        (["check", "LOG", "--target", "uniform"], "uniform needs --states and --actions"),
        (["check", "LOG", "--target", "LOG"], "write it with numpy.save"),
        (["check", "LOG", "--by", "ward"], "no column 'ward' to split by"),
        (["describe", "LOG", "--features", "kind="], "cannot be read"),
        (["describe", "LOG", "--features", 'kind="fourier", low=0, high=1, order=1'], "state"),
        (["describe", "LOG", "-o", "."], "--output . is no file in a folder that exists"),
        (["describe", "LOG", "-o", "/nowhere/log.html"], "log.html is no file in a folder"),
        (["describe", "nowhere.parquet"], "nowhere.parquet cannot be used"),
        (["import", "d4rl/x", "-o", "x.parquet"], "write minari:ID"),
        (["check", "minari:toy/x-v0"], "import it once with `fegsam data import minari:toy/x-v0`"),
        (["check", "LOG", "--algorithm", "OffPolicyTabularTD"], "needs a target policy: give"),
        (["check", "LOG", "--algorithm", "OffPolicyTabularTD"], "(--target)"),
        (["check", "LOG", "--num-steps", "-3"], "num_steps is -3"),
        (["check", "LOG", "--step-size", "-3"], "step_size is -3"),
    ],
)
def test_options_that_cannot_be_used_are_refused_in_one_sentence(
    tmp_path, capsys, words, told
) -> None:
    path = write(tmp_path / "log.parquet", one_damaged())
    assert main(["data", *(str(path) if word == "LOG" else word for word in words)]) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.err.count("\n") == 1


def test_a_target_policy_is_read_from_a_file(tmp_path, capsys) -> None:
    path = write(tmp_path / "log.parquet", observation_log(BANDIT))
    np.save(tmp_path / "target.npy", np.array([[0.25, 0.75]]))
    assert main(["data", "describe", str(path), "--target", str(tmp_path / "target.npy")]) == 0
    printed = capsys.readouterr().out
    assert "1 +- 0.0791 on average, at most 1.5" in printed
    assert "32 of 40" in printed, "40 / (1 + 1/4)"


def test_a_uniform_target_needs_no_states_where_observations_are_vectors(tmp_path, capsys) -> None:
    path = write(
        tmp_path / "log.parquet",
        observation_log(
            [Episode(i, [[0.0], [1.0]], [i % 2], [1.0], [0.5], True) for i in range(8)]
        ),
    )
    words = [str(path), "--target", "uniform"]
    assert main(["data", "describe", *words]) == 2
    assert "uniform needs --actions" in capsys.readouterr().err
    assert main(["data", "describe", *words, "--actions", "2"]) == 0
    printed = capsys.readouterr().out
    assert "1 +- 0 on average, at most 1" in printed
    assert "1 always" in printed


def test_what_the_target_does_and_the_log_never_shows_is_told(tmp_path, capsys) -> None:
    episodes = [Episode(i, [0, 0], [0], [1.0], [0.5], True) for i in range(25)]
    path = write(tmp_path / "log.parquet", observation_log(episodes))
    words = [str(path), "--states", "1", "--actions", "2", "--target", "uniform"]
    assert main(["data", "describe", *words]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "the target takes action 1 in state 0, which never occurs" in printed
    assert "OffPolicyTabularTD not: the target takes actions that never occur" in printed


def test_an_unstable_log_is_told(tmp_path, capsys) -> None:
    episodes = [Episode(i, [0, 1, 1], [0, 0], [0.0] * 2, [1.0] * 2, False) for i in range(3)]
    path = write(tmp_path / "log.parquet", observation_log(episodes))
    table = 'kind="table", phi=[[1.0], [2.0]]'
    assert main(["data", "describe", str(path), "--features", table]) == 0
    assert "eigenvalue 1.57 for discount 0.99: TD may diverge; use TDC" in capsys.readouterr().out
    assert fg.features.from_dict({"kind": "table", "phi": [[1.0], [2.0]]}).dimension == 1
