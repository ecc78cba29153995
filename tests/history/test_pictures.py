"""Pictures of histories and of single agents: what is drawn is what was run."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest

import fegsam as fg
from helpers import golden

mpl.use("Agg")
SPACE = "{http://www.w3.org/2000/svg}"
RUN = {"step_size": 0.25, "sync_period": 4, "num_steps": 14}
METHODS = {
    "plain": None,
    "some": fg.Method(participation=fg.Participation(agents=1)),
    "momentum": fg.Method(server=fg.Server(momentum=0.5)),
}


def grid_agents(**changes) -> fg.AgentPaths:
    world = fg.examples.grid_world(2, 3, discount=0.9)
    fed = fg.Federation(world, fg.policies.random(6, 4, count=3, seed=0), num_agents=3)
    return fg.agent_paths(fed, fg.QLearning(), **(RUN | {"sync_period": 7} | changes))


def history(**changes) -> fg.History:
    settings = RUN | {"seeds": range(4), "engine": "reference"} | changes
    return fg.run(golden.federation(), fg.QLearning(), **settings)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("algorithm", [fg.QLearning(), fg.OffPolicyTabularTD(2)], ids=type)
def test_agents_average_to_the_history_of_the_same_run(algorithm, name) -> None:
    settings = RUN | {"method": METHODS[name]}
    agents = fg.agent_paths(golden.federation(), algorithm, seed=5, **settings)
    run = fg.run(
        golden.federation(),
        algorithm,
        seeds=(5,),
        record=1,
        record_params=True,
        engine="reference",
        **settings,
    ).data
    assert (agents.averages == run.average_params[0].values).all()
    assert agents.syncs.tolist() == [4, 8, 12]
    between = np.setdiff1d(np.arange(15), [0, *agents.syncs])
    off = agents.params[between] - agents.averages[between, None]
    spread = np.nanmean((off**2).sum(axis=2) + 0 * off[..., 0], axis=1)
    assert spread == pytest.approx(run.sync_error[0].values[between], abs=1e-14)


def test_an_agent_holds_what_it_would_hold_alone_until_it_meets_others() -> None:
    together = fg.agent_paths(golden.federation(), fg.QLearning(), **RUN)
    alone = fg.agent_paths(golden.federation([golden.B1]), fg.QLearning(), **RUN)
    assert (together.params[:5, 0] == alone.params[:5, 0]).all()
    assert (together.params[5:, 0] != alone.params[5:, 0]).any()
    assert len(alone.syncs) == 0


def test_values_are_those_of_the_best_action_of_the_features_or_of_the_table() -> None:
    agents = fg.agent_paths(golden.federation(), fg.QLearning(), **RUN)
    table = agents.params[-1].reshape(2, 2, 2)
    assert (agents.values() == table.max(axis=2)).all()
    linear = fg.agent_paths(golden.federation(), fg.OffPolicyLinearTD(), **RUN)
    assert (linear.values(3) == linear.params[3] @ golden.FEATURES.T).all()
    tabular = fg.agent_paths(golden.federation(), fg.OffPolicyTabularTD(), **RUN)
    assert tabular.value_of(tabular.fixed_point) == pytest.approx(golden.VALUE)
    assert grid_agents().grid == (2, 3)
    assert agents.grid is None


def motion(element: ElementTree.Element, name: str) -> list[float]:
    (moves,) = [each for each in element if each.get("attributeName") == name]
    return [float(value) for value in moves.get("values").split(";")]


def test_in_the_moving_picture_agents_start_together_part_and_meet_at_each_synchronisation(
    tmp_path,
) -> None:
    agents = grid_agents()
    picture = ElementTree.parse(agents.save(tmp_path / "agents.svg")).getroot()
    x = np.array([motion(circle, "cx") for circle in picture.iter(f"{SPACE}circle")])
    y = np.array([motion(circle, "cy") for circle in picture.iter(f"{SPACE}circle")])
    assert len(x) == 3
    assert ((x >= 0) & (x <= 640) & (y >= 0) & (y <= 440)).all()
    together = (np.ptp(x, axis=0) + np.ptp(y, axis=0)) == 0
    assert together[0]
    meetings = sum(now and not before for before, now in pairwise(together))
    assert meetings == len(agents.syncs) == 2
    said = ["".join(text.itertext()) for text in picture.iter(f"{SPACE}text")]
    assert {f"synchronisations: {k} of 2" for k in range(3)} <= set(said)
    still = [t for t in picture.iter(f"{SPACE}text") if t.get("visibility") != "hidden"]
    assert sum("synchronisations" in "".join(text.itertext()) for text in still) == 1


def test_paths_are_drawn_in_the_plane_that_is_asked_for(tmp_path) -> None:
    agents = fg.agent_paths(golden.federation(), fg.QLearning(), **RUN)
    axes = agents.plot(plane=(3, 1))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("parameter 3", "parameter 1")
    (crossed,) = [line for line in axes.lines if line.get_label() == "fixed point"]
    assert crossed.get_xydata()[0] == pytest.approx(golden.OPTIMAL_Q[[3, 1]])
    assert "movement" in agents.plot(save=tmp_path / "paths.svg").get_xlabel()
    assert (tmp_path / "paths.svg").stat().st_size > 0


def test_heat_maps_show_agents_average_and_exact_values_on_one_scale() -> None:
    agents = grid_agents()
    figure = history().plot(kind="values", agents=agents)
    maps = {axes.get_title(): axes.images[0] for axes in figure.axes if axes.images}
    assert list(maps) == ["agent 0", "agent 1", "agent 2", "average", "exact"]
    last = agents.params[14]
    for title, params in (("agent 1", last[1]), ("average", last.mean(axis=0))):
        shown = maps[title].get_array()
        assert (shown == params.reshape(6, 4).max(axis=1).reshape(2, 3)).all()
    assert len({image.get_clim() for image in maps.values()}) == 1


def test_a_frontier_is_the_error_against_communications() -> None:
    run = history(method=fg.methods.scafflsa(), record=1)
    line = run.plot(kind="frontier").lines[0]
    assert line.get_xdata().tolist() == [run.settings.exchanges * k for k in (1, 2, 3)]
    assert line.get_ydata() == pytest.approx(run.data.squared_error.mean("seed")[[4, 8, 12]])


def ward(folder, **changes) -> fg.History:
    """Two agents that learn from logs, so that no truth is known."""
    mdp = fg.examples.two_state()
    logs = [
        fg.data.simulate_log(
            folder / f"{seed}.csv", mdp, golden.B1, episodes=60, length=20, seed=seed
        )
        for seed in (0, 1)
    ]
    wards = fg.DataFederation(
        [fg.LogSource(log) for log in logs], discount=0.5, num_states=2, num_actions=2
    )
    settings = {"step_size": 0.1, "sync_period": 10, "num_steps": 800} | changes
    return fg.run(wards, fg.QLearning(), **settings)


def test_where_no_truth_is_known_a_history_says_what_was_measured(tmp_path) -> None:
    run = ward(tmp_path, seeds=[3])
    last = run.data.distance_to_estimate.values[0, -1]
    assert f"distance_to_estimate={last:.3g})" in repr(run)
    shown = run._repr_html_()
    assert "distance to estimate" in shown
    assert "polygon" in shown
    assert "nan" not in shown + repr(run)


def test_a_distance_that_noise_takes_below_zero_is_drawn_whole(tmp_path) -> None:
    run = ward(tmp_path, seeds=[3])
    distance = run.data.distance_to_estimate.values[0]
    assert (distance <= 0).any(), "the case that a logarithm leaves out"
    axes = run.plot()
    assert axes.get_yscale() == "symlog"
    assert axes.get_ylim()[0] < distance.min()
    assert axes.get_ylim()[1] > distance.max()


def test_exact_errors_are_drawn_beside_those_of_runs(tmp_path) -> None:
    coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    pull = fg.LinearSA(matrices=[[[-1.0]], [[-1.0]]], offsets=[[0.0], [1.0]])
    settings = {"step_size": 0.5, "sync_period": 3}
    axes = fg.run(coin, pull, num_steps=9, seeds=range(4), **settings).plot()
    exact = fg.exact.moments(coin, pull, times=[9, 0, 4], **settings)
    assert exact.plot(axes, save=tmp_path / "both.pdf") is axes
    assert axes.lines[1].get_xydata().tolist() == [
        [0, exact.mse[1]],
        [4, exact.mse[2]],
        [9, exact.mse[0]],
    ]
    assert b"/Type3" not in (tmp_path / "both.pdf").read_bytes()
    alone = exact.plot()
    assert (alone.get_yscale(), alone.get_xlabel()) == ("log", "steps of each agent")


def test_figures_fit_a_column_and_their_text_stays_text(tmp_path) -> None:
    axes = history().plot(save=tmp_path / "error.pdf")
    history(sync_period=2).plot(axes)
    assert axes.figure.get_size_inches()[0] == 3.4
    assert {text.get_fontsize() for text in axes.get_legend().get_texts()} == {7.5}
    content = (tmp_path / "error.pdf").read_bytes()
    assert b"/Type0" in content
    assert b"/Type3" not in content


def test_the_first_figure_leaves_jupyters_interactive_mode_on(tmp_path) -> None:
    backend = "from matplotlib.backends.backend_agg import *\nimport matplotlib\n"
    (tmp_path / "like_jupyters.py").write_text(f"{backend}matplotlib.interactive(True)\n")
    use = (
        "import matplotlib\nfrom fegsam.history.plot import print_axes\n"
        "with print_axes(None):\n    pass\nprint(matplotlib.is_interactive())"
    )
    environ = os.environ | {"MPLBACKEND": "module://like_jupyters"}
    environ["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, "-c", use], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True"


def test_other_axes_keep_their_own_look() -> None:
    _, axes = mpl.pyplot.subplots()
    assert history().plot(axes) is axes
    assert axes.figure.get_size_inches().tolist() == [6.4, 4.8]
    assert axes.get_legend().get_texts()[0].get_fontsize() == 10


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: history().plot(kind="pie"), "kind is 'pie'; give 'error', 'frontier'"),
        (lambda: history().plot(kind="paths"), r"a history does not keep; give agents="),
        (lambda: history(num_steps=3).plot(kind="frontier"), "never communicated"),
        (
            lambda: history(record=4, num_steps=12).plot(error="sync_error"),
            "run again with record=",
        ),
        (lambda: history().plot(save="a.xyz"), r"cannot be written to 'a\.xyz'"),
        (lambda: grid_agents().plot(kind="values", grid=(2, 2)), "4 cells for 6 states"),
        (lambda: grid_agents().plot(kind="values", grid=6), "grid is 6; give"),
        (lambda: grid_agents().plot(plane=(0, 24)), "plane is 24, but must be at most 23"),
        (lambda: grid_agents().plot(plane=0), "plane is 0; give two"),
        (lambda: grid_agents().save("agents.png"), r"ends in \.svg"),
        (lambda: grid_agents().values(15), "time is 15, but must be at most 14"),
        (lambda: grid_agents(num_steps=10**6), "give fewer steps or agents"),
        (lambda: fg.agent_paths(golden.federation(), "Q", **RUN), "The algorithm is 'Q'; give one"),
        (lambda: coins(1).plot(), "One parameter has no plane"),
        (lambda: coins(2).values(), "not values of states.*kind='paths'"),
    ],
)
@pytest.mark.filterwarnings("ignore:sync_period is 4")
def test_what_cannot_be_drawn_is_refused_in_one_sentence(call, message) -> None:
    with pytest.raises(fg.ProblemError, match=message):
        call()


def coins(dimension: int) -> fg.AgentPaths:
    coin = fg.MarkovNoise([[0.5, 0.5], [0.5, 0.5]], num_agents=2)
    pull = fg.LinearSA(-np.stack([np.eye(dimension)] * 2), np.ones((2, dimension)))
    return fg.agent_paths(coin, pull, **RUN)
