"""What a person at a terminal is told while something takes long, and that pipes are told
nothing."""

from __future__ import annotations

import pytest

import fegsam as fg
from fegsam.experiments.spec.study import parse_study
from fegsam.experiments.sweep.executors import LocalExecutor
from fegsam.planning.exact_search import ExactSearch
from fegsam.planning.pilots import PilotSearch
from fegsam.planning.round_law import RoundLaw
from fegsam.planning.settings import Goal, Setting
from fegsam.progress import told
from helpers import golden, processes

WAITS = """
import time
from fegsam.progress import Notice, Progress

for _ in range(2):
    with Notice("compiling", once=True), Notice("thinking"):
        time.sleep(1.2)
with Progress(None, "setting", "searching") as progress:
    for _ in range(30):
        time.sleep(0.1)
        progress.one_more()
"""


def test_a_terminal_is_told_once_of_compiling_and_how_far_a_search_is() -> None:
    pytest.importorskip("tqdm")
    with processes.on_terminal(WAITS) as terminal:
        terminal.finish()
    assert terminal.shown.count("compiling") == 1
    assert terminal.shown.count("thinking") == 2
    assert "searching: 2" in terminal.shown
    assert "setting" in terminal.shown


def test_a_pipe_is_told_nothing() -> None:
    with processes.started(WAITS) as process:
        assert processes.finish(process) == ("", "")


def test_a_run_tells_its_caller_how_many_steps_it_has_made() -> None:
    heard: list[int] = []
    with told(heard.append):
        fg.run(
            golden.federation(),
            fg.QLearning(),
            step_size=0.1,
            sync_period=5,
            num_steps=20,
            seeds=range(3),
        )
    assert heard[-1] == 2 * 20 * 3
    assert heard == sorted(heard)


def test_every_search_counts_the_settings_that_it_tries() -> None:
    coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=4)
    average = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    tried: list[int] = []
    law = RoundLaw(coin, average)
    exact = ExactSearch(coin, average, law, accuracy=1e-3, tried=lambda: tried.append(1))
    exact.fewest(Goal("communications"), Setting(0.05, 20, 5, 1e-3), most_steps=100)
    exactly = len(tried)
    assert exactly > 5
    pilots = PilotSearch(coin, average, 0.01, "cpu", tried=lambda: tried.append(1))
    pilots.settings(Goal("communications"))
    assert len(tried) > exactly + 5


LONG_CELL = """
study = {name = "long", seeds = 1}
problem = {generator = "two_state", behavior = {kind = "uniform"}}
algorithm = {name = "q_learning"}
run = {num_steps = 200_000}
grid = {num_agents = 1000, sync_period = 100, step_size = 0.1}
"""


@pytest.mark.slow
def test_a_sweep_hears_how_far_a_long_cell_is() -> None:
    (cell,) = parse_study(LONG_CELL).cells()
    with LocalExecutor(workers=1) as executor:
        outcomes = list(executor.outcomes([cell], None))
    steps = [each for each in outcomes if isinstance(each, int) and each]
    assert steps == sorted(steps)
    assert 0 < steps[0] < steps[-1] <= cell.agent_steps == 2 * 10**8
    assert isinstance(outcomes[-1], tuple)
