"""What was learned is the same outside: read by a Python that has no fegsam."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import fegsam as fg
from fegsam.cli import main
from fegsam.errors import ProblemError
from fegsam.export import learned_by, write_learned

RUN = {"step_size": 0.1, "sync_period": 5, "num_steps": 50, "engine": "reference"}
SEEN = np.random.default_rng(0).uniform(-1.5, 1.5, (20, 2))
MAPS = {
    "columns": fg.features.columns(2),
    "fourier": fg.features.fourier([-1, -1], [1, 1], 3),
    "tiles": fg.features.tiles([-1, -1], [1, 1], tiles=[3, 5], tilings=4),
    "radial": fg.features.radial([[0.0, 0.0], [1.0, -1.0], [0.3, 0.4]], 0.7),
}


def history_of(algorithm, features=None, **more):
    mdp = fg.examples.garnet(5, 3, branching=2, discount=0.8, seed=0)
    policy = fg.policies.uniform(5, 3)
    fed = fg.Federation(mdp, policy, num_agents=2, target_policy=policy, features=features)
    return fg.run(fed, algorithm, seeds=[0, 7], **RUN, **more)


def outside(folder: pathlib.Path, expression: str):
    """What an expression about the module `learned` is, in a Python without site packages."""
    code = f"import json, sys, learned; print(json.dumps([{expression}, 'fegsam' in sys.modules]))"
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, '.'); {code}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    answer, loaded = json.loads(done.stdout)
    assert not loaded
    return answer


def test_a_table_is_the_same_outside(tmp_path) -> None:
    history = history_of(fg.QLearning())
    history.save(tmp_path / "history.nc")
    command = ["export", str(tmp_path / "history.nc"), "--seed", "7"]
    assert main([*command, "-o", str(tmp_path / "learned.py")]) == 0
    table = history.data.final_params.values[1].reshape(5, 3)
    assert outside(tmp_path, "[learned.action_values(s) for s in range(5)]") == table.tolist()
    assert outside(tmp_path, "[learned.value(s) for s in range(5)]") == table.max(axis=1).tolist()
    assert outside(tmp_path, "[learned.action(s) for s in range(5)]") == table.argmax(1).tolist()
    assert main([*command, "-o", str(tmp_path / "learned.json")]) == 0
    stored = json.loads((tmp_path / "learned.json").read_text())
    assert stored["weights"] == table.ravel().tolist()
    assert stored["features"] == {"kind": "one_hot", "states": 5}


@pytest.mark.parametrize("kind", MAPS)
@pytest.mark.parametrize("actions", [1, 3])
def test_weights_of_features_give_the_same_values_outside(tmp_path, kind, actions) -> None:
    algorithm = fg.OnPolicyTD() if actions == 1 else fg.LinearQLearning()
    history = history_of(algorithm, np.eye(5), fixed_point=np.zeros(5 * actions))
    features = MAPS[kind]
    weights = np.random.default_rng(1).standard_normal((2, features.dimension * actions))
    data = history.data.drop_vars(["final_params"])
    learnt = fg.History(data.assign(final_params=(("seed", "each"), weights)), history.settings)
    write_learned(learned_by(learnt, features=features, num_actions=3), tmp_path / "learned.py")
    expected = features.dense(SEEN) @ weights[0].reshape(-1, actions)
    found = outside(tmp_path, f"[learned.value(x) for x in {SEEN.tolist()}]")
    assert found == pytest.approx(expected.max(axis=1).tolist(), rel=1e-12, abs=1e-12)
    if actions > 1:
        chosen = outside(tmp_path, f"[learned.action(x) for x in {SEEN.tolist()}]")
        assert chosen == expected.argmax(axis=1).tolist()


def test_the_weights_of_tdc_are_exported_without_its_auxiliary_ones(tmp_path) -> None:
    phi = np.random.default_rng(2).uniform(0, 1, (5, 2))
    history = history_of(fg.TDC(), phi)
    model = learned_by(history, features=fg.features.table(phi))
    write_learned(model, tmp_path / "learned.py")
    expected = phi @ history.data.final_params.values[0, :2]
    found = outside(tmp_path, "[learned.value(s) for s in range(5)]")
    assert found == pytest.approx(expected.tolist(), rel=1e-12)


def test_a_cell_of_a_study_on_a_log_is_exported_with_its_features(tmp_path) -> None:
    pytest.importorskip("pyarrow")
    mdp, policy = fg.examples.two_state(), fg.policies.uniform(2, 2)
    log = tmp_path / "log.parquet"
    fg.data.simulate_log(log, mdp, policy, episodes=20, length=5, seed=0)
    (tmp_path / "study.toml").write_text(
        '[study]\nname = "a"\nseeds = 1\nengine = "reference"\n[problem]\ngenerator = "log"\n'
        'path = "log.parquet"\ndiscount = 0.5\n[problem.features]\nkind = "table"\n'
        'features = [[1.0, 0.5], [0.0, 1.0]]\n[algorithm]\nname = "on_policy_td"\n[run]\n'
        "num_steps = 50\n[grid]\nnum_agents = 1\nsync_period = 1\nstep_size = [0.1, 0.2]\n"
    )
    out = str(tmp_path / "out")
    assert main(["run", str(tmp_path / "study.toml"), "-o", out, "--workers", "1"]) == 0
    log.unlink()
    command = ["export", out, "-o", str(tmp_path / "learned.py")]
    assert main(command) == 2, "two cells are meant"
    assert main([*command, "--where", "step_size=0.2"]) == 0
    from fegsam.experiments.sweep import load_results

    ((_, history),) = load_results(out).select(step_size=0.2)
    expected = np.array([[1.0, 0.5], [0.0, 1.0]]) @ history.data.final_params.values[0]
    found = outside(tmp_path, "[learned.value(0), learned.value(1)]")
    assert found == pytest.approx(expected.tolist(), rel=1e-12)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"num_actions": 4}, "15 weights are not those of 4 actions"),
        ({"num_actions": 3, "seed": 3}, "seed is 3, which the run does not have"),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(given, sentence) -> None:
    with pytest.raises(ProblemError, match=sentence):
        learned_by(history_of(fg.QLearning()), **given)


def test_what_cannot_be_exported_says_so(tmp_path) -> None:
    linear = history_of(fg.LinearQLearning(), np.eye(5), fixed_point=np.zeros(15))
    old = fg.History(linear.data, dataclasses.replace(linear.settings, num_actions=0))
    with pytest.raises(ProblemError, match="the number of actions is not known"):
        learned_by(old, features=fg.features.one_hot(5))
    history = history_of(fg.OnPolicyTD(), np.eye(5))
    with pytest.raises(ProblemError, match="features, which are not known"):
        learned_by(history)
    with pytest.raises(ProblemError, match="have dimension 2, but the run has 5 weights"):
        learned_by(history, features=fg.features.columns(2))
    with pytest.raises(ProblemError, match="whose code a plain model does not hold"):
        learned_by(history, features=fg.features.function(abs, 5))
    model = learned_by(history, features=fg.features.one_hot(5))
    with pytest.raises(ProblemError, match=r"neither in \.json nor in \.py"):
        write_learned(model, tmp_path / "learned.txt")
    space: dict = {}
    exec(model.module(), space)
    with pytest.raises(TypeError, match="none of actions"):
        space["action"](0)
