"""Studies on data: a cell is the run that it describes, and a log is known by its content."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import fegsam as fg
from fegsam.cli import main
from fegsam.errors import ProblemError, SpecError
from fegsam.experiments.spec import load_study
from fegsam.experiments.sweep import load_results, run_sweep
from fegsam.experiments.sweep.executors import LocalExecutor
from helpers import processes

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

STUDY = """
[study]
name = "wards"
seeds = [3]
engine = "reference"
[problem]
generator = "log"
path = "log.parquet"
by = "ward"
states = 5
actions = 2
discount = 0.8
passes = 2
[algorithm]
name = "q_learning"
[run]
num_steps = 200
[grid]
num_agents = 2
sync_period = [1, 10]
step_size = [0.1, 0.05]
"""
MDP = fg.examples.garnet(5, 2, branching=2, discount=0.8, seed=0)
VECTORS = 'columns = {observation = ["x", "y"]}'


def write_log(folder: pathlib.Path, seed: int = 0, count: int = 30) -> pathlib.Path:
    """Two wards with 30 episodes of 5 transitions each; x and y are numbers of the state."""
    parts = []
    for ward in range(2):
        policy = fg.policies.uniform(5, 2)
        path = fg.data.simulate_log(
            folder / "part.parquet", MDP, policy, episodes=count, length=5, seed=seed + ward
        )
        table = pq.read_table(path)
        episodes = np.array(table["episode"]) + 100 * ward
        state = np.array(table["observation"], dtype=float)
        table = table.set_column(0, "episode", pa.array(episodes))
        for name, column in (("ward", [f"w{ward}"] * len(state)), ("x", state), ("y", state**2)):
            table = table.append_column(name, pa.array(column))
        parts.append(table)
        path.unlink()
    pq.write_table(pa.concat_tables(parts), folder / "log.parquet")
    return folder / "log.parquet"


@pytest.fixture
def folder(tmp_path) -> pathlib.Path:
    write_log(tmp_path)
    return tmp_path


def study_of(folder: pathlib.Path, text: str = STUDY):
    (folder / "study.toml").write_text(text)
    return load_study(folder / "study.toml")


@pytest.fixture(scope="module")
def executor():
    with LocalExecutor(workers=1) as executor:
        yield executor


def test_a_cell_is_the_run_that_it_describes(folder, assert_same_bits) -> None:
    cell = study_of(folder).cells()[2]
    source = fg.LogSource(folder / "log.parquet", by="ward", passes=2)
    data = fg.DataFederation(source, discount=0.8, num_agents=2, num_states=5, num_actions=2)
    settings = {"step_size": 0.1, "sync_period": 10, "num_steps": 200, "seeds": [3]}
    assert_same_bits(cell.run(), fg.run(data, fg.QLearning(), engine="reference", **settings))


def test_fewer_agents_read_the_first_values_of_by(folder) -> None:
    problem, _ = (
        study_of(folder, STUDY.replace("num_agents = 2", "num_agents = 1")).cells()[0].build()
    )
    assert [problem.kinds[kind].value for kind in problem.assignment] == ["w0"]


def test_features_and_target_of_a_study_are_those_of_the_data(folder) -> None:
    (folder / "own.py").write_text(
        "import numpy as np\n"
        "def rows(seen):\n    return seen / 25.0\n"
        "def target(seen):\n    return np.tile([0.25, 0.75], (len(seen), 1))\n"
    )
    text = STUDY.replace("states = 5", VECTORS).replace("q_learning", "off_policy_linear_td")
    features = (
        '[problem.features]\nkind = "tiles"\nlow = [0, 0]\nhigh = [4, 16]\ntiles = 2\ntilings = 2\n'
    )
    target = '[problem.target]\nkind = "function"\nfunction = "own.py:target"\n'
    problem, _ = study_of(folder, text + features + target).cells()[0].build()
    assert problem.features == fg.features.tiles([0, 0], [4, 16], tiles=2, tilings=2)
    assert problem.target_policy(np.zeros((1, 2))).tolist() == [[0.25, 0.75]]
    own = '[problem.features]\nkind = "function"\nfunction = "own.py:rows"\ndim = 2\n'
    problem, _ = study_of(folder, text + own + target).cells()[0].build()
    assert problem.features([[5.0, 25.0]]).tolist() == [[0.2, 1.0]]
    study_of(folder, text + own + target).cells()[0].run()


def test_the_behaviour_of_a_study_is_the_policy_of_its_log(folder) -> None:
    text = STUDY + '[problem.behavior]\nkind = "uniform"\n'
    with pytest.raises(SpecError, match=r"behavior_probability is logged, .* leave one"):
        study_of(folder, text)
    table = pq.read_table(folder / "log.parquet").drop_columns("behavior_probability")
    pq.write_table(table, folder / "log.parquet")
    (source,) = study_of(folder, text).cells()[0].build()[0].logs
    assert source.policy.tolist() == [[0.5, 0.5]] * 5


def test_functions_of_a_stored_study_do_not_run_without_trust(folder, executor) -> None:
    (folder / "own.py").write_text("def rows(seen):\n    return seen\n")
    text = STUDY.replace("states = 5", VECTORS).replace("q_learning", "on_policy_td")
    text += '[problem.features]\nkind = "function"\nfunction = "own.py:rows"\ndim = 2\n'
    run_sweep(study_of(folder, text), folder / "out", executor=executor, progress=False)
    with pytest.raises(ProblemError, match=r"would run .*own\.py:rows"):
        load_results(folder / "out").cells[0].build()


def test_the_key_of_a_cell_depends_on_the_content_of_the_log_alone(folder) -> None:
    keys = [cell.key for cell in study_of(folder).cells()]
    other = folder / "other"
    other.mkdir()
    shutil.copy(folder / "log.parquet", other / "moved.parquet")
    moved = study_of(other, STUDY.replace("log.parquet", "moved.parquet"))
    assert [cell.key for cell in moved.cells()] == keys
    write_log(folder, seed=9)
    assert not set(keys) & {cell.key for cell in study_of(folder).cells()}


def test_a_stopped_sweep_goes_on_and_its_results_need_no_log(
    folder, executor, assert_same_bits
) -> None:
    study = study_of(folder)
    results = run_sweep(study, folder / "out", executor=executor, progress=False)
    whole = [results.history(cell) for cell in results.cells]
    files = sorted((folder / "out" / "cells").iterdir())
    kept = files[0].stat().st_mtime_ns
    for file in files[1:]:
        file.unlink()
    again = run_sweep(study, folder / "out", executor=executor, progress=False)
    assert files[0].stat().st_mtime_ns == kept, "a stored cell is not run again"
    for cell, history in zip(again.cells, whole, strict=True):
        assert_same_bits(again.history(cell), history)
    (folder / "log.parquet").unlink()
    stored = load_results(folder / "out")
    for cell, history in zip(stored.cells, whole, strict=True):
        assert_same_bits(stored.history(cell), history)
    assert not list((folder / "out").rglob("*.parquet")), "a log is not copied"


def test_a_report_and_an_export_with_trust_need_no_log(folder, executor, capsys) -> None:
    text = STUDY.replace("[0.1, 0.05]", "0.1").replace("[1, 10]", "10")
    results = run_sweep(study_of(folder, text), folder / "out", executor=executor, progress=False)
    learned = results.history(results.cells[0]).q_table()
    out = str(folder / "out")
    assert main(["report", out, "--trust"]) == 0, capsys.readouterr().err
    assert main(["export", out, "--trust", "-o", str(folder / "learned.json")]) == 0
    stored = json.loads((folder / "learned.json").read_text())
    np.testing.assert_array_equal(np.reshape(stored["weights"], learned.shape), learned)
    with pytest.raises(ProblemError, match=r"path names .*log\.parquet, which cannot be read"):
        load_results(folder / "out", trust=True).cells[0].run()


def test_an_export_that_several_cells_could_be_names_some_and_says_that_there_are_more(
    folder, executor, capsys
) -> None:
    study = study_of(folder, STUDY.replace("[0.1, 0.05]", "[0.1, 0.05, 0.02]"))
    run_sweep(study, folder / "out", executor=executor, progress=False)
    words = ["export", str(folder / "out"), "-o", str(folder / "learned.json"), "--where"]
    assert main([*words, "num_agents=2"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("fegsam: 6 cells are meant (")
    assert told.count("step_size") == 4
    assert "; ...): name one" in told
    assert main([*words, "sync_period=1"]) == 2
    assert "..." not in capsys.readouterr().err


@pytest.mark.slow
def test_a_study_on_a_log_killed_at_any_moment_has_the_same_bytes(
    folder, executor, assert_same_bits
) -> None:
    sizes = ", ".join(str(0.02 * k) for k in range(1, 7))
    text = STUDY.replace("passes = 2", "passes = 200").replace(
        "num_steps = 200", "num_steps = 8000"
    )
    study = study_of(folder, text.replace("[0.1, 0.05]", f"[{sizes}]"))
    results = run_sweep(study, folder / "calm", executor=executor, progress=False)
    whole = [results.history(cell) for cell in results.cells]
    command = [sys.executable, "-m", "fegsam", "run", "study.toml", "-o", "killed", "--workers"]
    draw, kills, cells = np.random.default_rng(0), 0, folder / "killed" / "cells"

    def stored() -> int:
        return len(list(cells.glob("[!.]*.nc")))

    while stored() < len(whole):
        before, new = stored(), int(draw.integers(0, 5))
        process = subprocess.Popen(
            [*command, "1"],
            cwd=folder,
            env=processes.python_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while process.poll() is None and stored() < before + new:
            time.sleep(0.01)
        time.sleep(draw.uniform(0.0, 0.5))
        kills += process.poll() is None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert kills >= 3, "it ended by itself"
    killed = load_results(folder / "killed")
    for cell, history in zip(killed.cells, whole, strict=True):
        assert_same_bits(killed.history(cell), history)
    for file in sorted((folder / "calm" / "cells").iterdir()):
        assert (folder / "killed" / "cells" / file.name).read_bytes() == file.read_bytes()


def test_a_changed_log_is_not_mixed_with_old_results(folder, executor) -> None:
    run_sweep(study_of(folder), folder / "out", executor=executor, progress=False)
    run_sweep(study_of(folder), folder, executor=executor, progress=False)
    before = study_of(folder).cells()[0]
    write_log(folder, seed=9)
    with pytest.raises(SpecError, match="is not the log that was read before"):
        study_of(folder)
    with pytest.raises(ProblemError, match="is not the log that was read before"):
        before.run()
    shutil.rmtree(folder / "inputs")
    with pytest.raises(ProblemError, match="belongs to another study"):
        run_sweep(study_of(folder), folder / "out", executor=executor, progress=False)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("log.parquet", "none.parquet", r"line 8: problem\.path names .*none\.parquet, which"),
        ('path = "log.parquet"', "path = 3", r"problem\.path is 3, but must name a log"),
        ('path = "log.parquet"', "path = []", r"problem\.path is an empty list"),
        ("log.parquet", "log.txt", r"problem\.path .*a log is a \.parquet or a \.csv file"),
        ("states = 5", "states = 4", r"problem\.path cannot be used \(.*observation is 4"),
        ("states = 5", "", r"algorithm\.name is 'q_learning', which .*needs the number of states"),
        ("passes = 2", "passes = 1", r"150 transitions for num_steps 200: .*passes=2"),
        ("passes = 2", "passs = 2", r"problem\.passs is not a known key .*'passes'"),
        ('by = "ward"', 'by = "room"', r"problem.* there is no column 'room' to split by"),
        ("q_learning", "on_policy_td", r"needs the table \[problem\.features\]"),
        ("q_learning", "linear_sa", r"needs a \[problem\] with generator = 'noise'"),
        ("num_agents = 2", "num_agents = 3", "has 2 values; a part feeds one agent"),
        ("step_size = [0.1, 0.05]", 'step_size = "corollary"', r"grid\.step_size is 'corollary'"),
        ("passes = 2", "columns = {action = 1}", r"problem\.columns must name columns"),
        ("[run]", '[problem.behavior]\nkind = "target"\n[run]', r"problem\.behavior\.kind is 'tar"),
        (
            "[run]",
            '[problem.target]\nkind = "epsilon_greedy"\nepsilon = 0.1\n[run]',
            r"problem\.target needs q",
        ),
        (
            "[run]",
            '[problem.features]\nkind = "fourier"\nlow = 1\nhigh = 0\norder = 2\n[run]',
            r"problem\.features cannot be used \(low\[0\] is 1",
        ),
        (
            "[run]",
            "[problem.environments]\ncount = 2\nseed = 0\n[run]",
            r"learn from data: drop it",
        ),
    ],
)
def test_an_error_names_its_key_in_one_sentence(folder, old, new, sentence) -> None:
    with pytest.raises(SpecError, match=sentence) as caught:
        study_of(folder, STUDY.replace(old, new))
    assert str(caught.value).count("\n") == 0
    assert str(caught.value).startswith(str(folder / "study.toml"))


def test_what_needs_an_mdp_says_that_there_is_none(folder, capsys) -> None:
    study_of(folder)
    assert main(["plan", str(folder / "study.toml"), "--accuracy", "0.1"]) == 2
    assert "of which only data is known" in capsys.readouterr().err


def test_a_page_claims_no_error_where_none_is_known(folder, executor) -> None:
    pytest.importorskip("plotly")
    figures = '[[figures]]\nkind = "error_curves"\n[[figures]]\nkind = "speed_up"\n'
    study = study_of(folder, STUDY + figures)
    results = run_sweep(study, folder / "out", executor=executor, progress=False)
    assert np.isnan(results.errors(results.cells[0])).all()
    assert main(["report", str(folder / "out")]) == 0
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    assert "so there is no error to show" in page
    assert "squared TD error on held-out episodes" in page
    assert "The log of agent 1 has 150 transitions in 30 episodes, of which 0 terminated" in page
    assert "none is known: speed_up" in page
    labels = re.findall(r'role="img" aria-label="([^"]*)"></div>', page)
    assert any("how good the average is" in label for label in labels)
    assert not any("squared error" in label for label in labels)


def test_a_page_says_why_no_episodes_of_a_short_log_were_held_out(folder, executor) -> None:
    pytest.importorskip("plotly")
    write_log(folder, count=19)
    text = STUDY.replace("[0.1, 0.05]", "0.1").replace("[1, 10]", "10")
    text = text.replace("num_steps = 200", "num_steps = 100")
    run_sweep(study_of(folder, text), folder / "out", executor=executor, progress=False)
    assert main(["report", str(folder / "out")]) == 0
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    assert "no episodes were held out: none are with held_out = 0, and none of a log with" in page
    assert "fewer than 20 episodes" in page


def test_a_page_shows_the_error_from_a_fixed_point_that_is_given(folder, executor) -> None:
    pytest.importorskip("plotly")
    study = STUDY.replace("seeds = [3]", "seeds = 2")
    study = study_of(folder, study.replace("[grid]", "fixed_point = [1,1,1,1,1,1,1,1,1,1]\n[grid]"))
    results = run_sweep(study, folder / "out", executor=executor, progress=False)
    assert np.isfinite(results.errors(results.cells[0])).all()
    assert main(["report", str(folder / "out")]) == 0
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    assert "no error to show" not in page


LIVE = """
[study]
name = "lake"
seeds = 2
engine = "reference"
[problem]
generator = "live"
env_id = "FrozenLake-v1"
options = {is_slippery = false}
discount = 0.9
[problem.behavior]
kind = "random"
count = 2
seed = 4
[algorithm]
name = "q_learning"
[run]
num_steps = 40
[grid]
num_agents = [1, 3]
sync_period = 10
step_size = 0.5
"""


def test_a_cell_in_a_live_environment_is_the_run_that_it_describes(
    tmp_path, assert_same_bits
) -> None:
    pytest.importorskip("gymnasium")
    cell = study_of(tmp_path, LIVE).cells()[1]
    sources = [
        fg.LiveSource("FrozenLake-v1", policy, options={"is_slippery": False})
        for policy in fg.policies.random(16, 4, 2, 4)
    ]
    data = fg.DataFederation(sources, discount=0.9, num_agents=3)
    settings = {"step_size": 0.5, "sync_period": 10, "num_steps": 40, "seeds": [0, 1]}
    assert_same_bits(cell.run(), fg.run(data, fg.QLearning(), engine="reference", **settings))


def test_the_greedy_policy_is_tried_where_the_study_asks_for_it(tmp_path) -> None:
    pytest.importorskip("gymnasium")
    text = LIVE + "[problem.evaluation]\nepisodes = 3\nlongest = 20\n"
    history = study_of(tmp_path, text.replace("num_steps = 40", "num_steps = 4")).cells()[0].run()
    assert history.data.greedy_return.shape == history.data.squared_error.shape


def test_an_environment_of_vectors_has_features_and_one_row_of_probabilities(tmp_path) -> None:
    pytest.importorskip("gymnasium")
    text = LIVE.replace("FrozenLake-v1", "CartPole-v1").replace("options", "#")
    text = text.replace("q_learning", "on_policy_td").replace('"random"\ncount', '"uniform"\n#')
    text = text.replace("seed = 4", "")
    text += '[problem.features]\nkind = "columns"\nwidth = 4\n'
    history = study_of(tmp_path, text).cells()[1].run()
    assert history.data.final_params.shape == (2, 4)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("FrozenLake-v1", "FrozenLike-v1", r"problem cannot be used \(Gymnasium cannot make"),
        ("FrozenLake-v1", "my.module:Lake-v1", r"would run the Gymnasium environment my\.module"),
        ('[problem.behavior]\nkind = "random"\ncount = 2\nseed = 4', "", r"behavior is missing"),
        ("discount = 0.9", "discount = 0.9\nends = 'go'", r"problem\.ends is 'go'"),
        (
            "[run]",
            "[problem.evaluation]\nepisodes = 1\n[run]",
            r"problem\.evaluation\.episodes is 1",
        ),
        ("q_learning", "off_policy_tabular_td", r"off_policy_tabular_td.*target"),
    ],
)
def test_an_error_of_a_live_study_names_its_key(tmp_path, old, new, sentence) -> None:
    pytest.importorskip("gymnasium")
    with pytest.raises(ProblemError, match=sentence) as caught:
        study_of(tmp_path, LIVE.replace(old, new))
    assert str(caught.value).count("\n") == 0
