"""Histories on disk: what comes back is what was written, whole or not at all, with what it is
about inside."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import pathlib
import sys
import warnings
from typing import Any

import netCDF4
import numpy as np
import pytest
import xarray as xr

import fegsam as fg
from cases import case
from fegsam.safe_files import SEAL, append_seal
from helpers import golden

SETTINGS = {"step_size": 0.1, "sync_period": 4, "num_steps": 10, "record": 3}


def short_run(**changes: Any) -> fg.History:
    return fg.run(golden.federation(), fg.OffPolicyTabularTD(2), **(SETTINGS | changes))


def diverged_run() -> fg.History:
    """Of five seeds some leave the finite numbers."""
    noise = fg.MarkovNoise([[0.95, 0.05], [0.95, 0.05]], num_agents=1)
    algorithm = fg.LinearSA([[[-0.5]], [[1e100]]], [[0.0], [0.0]])
    settings = SETTINGS | {"step_size": 1.0, "num_steps": 40}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        history = fg.run(
            noise, algorithm, **settings, seeds=range(8), fixed_point=[0.0], initial_params=[1.0]
        )
    assert 0 < (history.data.diverged_at.values >= 0).sum() < 8
    return history


HISTORIES = {
    "short": short_run,
    "every-seed": lambda: short_run(seeds=[2**64 - 1, 0, 2**63, 7]),
    "parameters": lambda: short_run(record_params=True, record=1),
    "one-time": lambda: short_run(record=[10], num_steps=10),
    "iid": lambda: short_run(sampling="iid", engine="reference"),
    "stopped": lambda: short_run(stop_at_output=True, output_decay=0.5),
    "diverged": diverged_run,
    "user-rule": lambda: case("alg1-general").run(alpha=0.1, K=3, T=5, engine="reference"),
    "own-engine": lambda: short_run(engine=lambda job: fg.engines.Reference()(job)),
    "resumed": lambda: short_run(resume_from=short_run(num_steps=6), record=None),
}


def assert_equal_settings(one: Any, other: Any) -> None:
    for field in dataclasses.fields(one):
        before, after = getattr(one, field.name), getattr(other, field.name)
        assert type(before) is type(after), field.name
        if isinstance(before, np.ndarray):
            assert before.dtype == after.dtype
            np.testing.assert_array_equal(before, after)
        else:
            assert before == after, field.name
    assert one.communications == other.communications


@pytest.mark.parametrize("what", HISTORIES)
def test_what_is_loaded_is_what_was_saved(what, tmp_path) -> None:
    history = HISTORIES[what]()
    history.save(tmp_path / "run.nc")
    again = fg.load_history(tmp_path / "run.nc")
    xr.testing.assert_identical(again.data, history.data)
    for name in history.data.variables:
        assert again.data[name].dtype == history.data[name].dtype, name
    assert_equal_settings(again.settings, history.settings)
    if history.checkpoint is None:
        assert again.checkpoint is None
        return
    assert again.checkpoint.time == history.checkpoint.time
    assert isinstance(again.checkpoint.time, int)
    np.testing.assert_array_equal(again.checkpoint.params, history.checkpoint.params)
    np.testing.assert_array_equal(again.checkpoint.states, history.checkpoint.states)
    assert again.checkpoint.states.dtype == history.checkpoint.states.dtype


def test_a_table_of_action_values_is_labelled_and_its_policy_is_greedy(tmp_path) -> None:
    settings = {"step_size": 0.2, "sync_period": 5, "num_steps": 400, "engine": "reference"}
    history = fg.run(golden.federation(), fg.QLearning(), seeds=(3, 4), **settings)
    history.save(tmp_path / "run.nc")
    for one in (history, fg.load_history(tmp_path / "run.nc")):
        assert one.q_table().dims == ("state", "action")
        assert one.q_table().sel(state=1, action=0) == history.data.final_params[0, 2]
        assert one.q_table(seed=4).sel(state=0, action=1) == history.data.final_params[1, 1]
        best = golden.OPTIMAL_Q.reshape(2, 2).argmax(axis=1)
        assert (one.policy(seed=4).argmax(axis=1) == best).all()
    with pytest.raises(fg.ProblemError, match=r"seed is 5, which.*give one of \[3, 4\]"):
        history.q_table(seed=5)
    values = fg.run(golden.federation(), fg.OffPolicyTabularTD(), **settings)
    with pytest.raises(fg.ProblemError, match=r"OffPolicyTabularTD.*learns no action values"):
        values.policy()


def test_every_variable_says_what_it_is() -> None:
    for what in HISTORIES.values():
        history = what()
        assert all(history.data[name].attrs["long_name"] for name in history.data.variables)
    fed = fg.Federation(
        fg.examples.two_state(),
        fg.policies.uniform(2, 2),
        num_agents=2,
        features=[[1.0], [0.5]],
        target_policy=fg.policies.uniform(2, 2),
    )
    history = fg.run(fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=10)
    assert history.data.squared_error.attrs["long_name"] == "squared error of the average, sup norm"
    history = fg.run(fed, fg.OnPolicyTD(), step_size=0.1, sync_period=5, num_steps=10)
    assert history.data.squared_error.attrs["long_name"] == "squared error of the average, 2-norm"


def test_a_history_is_saved_over_an_older_one_and_nothing_else_is_left(tmp_path) -> None:
    target = tmp_path / "run.nc"
    short_run(seeds=[1]).save(target)
    short_run(seeds=[2]).save(str(target))
    assert fg.load_history(str(target)).settings.seeds == (2,)
    assert list(tmp_path.iterdir()) == [target]


def test_saving_does_not_change_the_history(tmp_path) -> None:
    history, untouched = short_run(), short_run()
    history.save(tmp_path / "run.nc")
    xr.testing.assert_identical(history.data, untouched.data)


def test_a_loaded_history_can_be_saved_again_and_resumed(tmp_path, assert_same_bits) -> None:
    short_run(num_steps=6, record=None).save(tmp_path / "one.nc")
    fg.load_history(tmp_path / "one.nc").save(tmp_path / "two.nc")
    (tmp_path / "one.nc").unlink()  # nothing is read from the first file any more
    resumed = short_run(resume_from=fg.load_history(tmp_path / "two.nc"), record=None)
    assert_same_bits(resumed, short_run(record=None))


# --- Whole or not at all --------------------------------------------------------------------------


@pytest.mark.parametrize("older", [True, False], ids=["over-an-older-one", "new"])
def test_a_failure_while_writing_leaves_the_old_file_and_no_other(
    older, tmp_path, monkeypatch
) -> None:
    target = tmp_path / "run.nc"
    if older:
        short_run(seeds=[1]).save(target)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    history = short_run(seeds=[2])

    def fail_halfway(self, path, **options):
        pathlib.Path(path).write_bytes(b"half a file")
        raise OSError("No space left on device")

    monkeypatch.setattr(xr.Dataset, "to_netcdf", fail_halfway)
    with pytest.raises(
        fg.ProblemError,
        match=r"run\.nc' cannot be written \(No space left on device\); make room there",
    ):
        history.save(target)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_interrupted_save_leaves_the_old_file_and_no_other(tmp_path, monkeypatch) -> None:
    target = tmp_path / "run.nc"
    short_run(seeds=[1]).save(target)
    before = target.read_bytes()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    history = short_run(seeds=[2])
    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        history.save(target)
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]


# --- What is no history ---------------------------------------------------------------------------


def rewrite(path: pathlib.Path, **attributes: Any) -> None:
    with netCDF4.Dataset(path, "a") as file:
        for name, value in attributes.items():
            if value is None:
                file.delncattr(name)
            else:
                file.setncattr(name, value)


def changed_settings(path: pathlib.Path, **changes: Any) -> str:
    with netCDF4.Dataset(path) as file:
        plain = json.loads(file.getncattr("settings")) | changes
    return json.dumps({name: value for name, value in plain.items() if value is not None})


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("seed,time\n0,1\n"),
    "first-half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "end-missing": lambda path: path.write_bytes(path.read_bytes()[: -2 * SEAL - 1]),
    "header-scrambled": lambda path: path.write_bytes(bytes(200) + path.read_bytes()[200:]),
    "someone-elses": lambda path: xr.Dataset({"rain": ("day", [1.0])}).to_netcdf(
        path, engine="netcdf4"
    ),
    "other-times-and-seeds": lambda path: xr.Dataset(coords={"time": [0], "seed": [0]}).to_netcdf(
        path, engine="netcdf4"
    ),
    "later-format": lambda path: rewrite(path, fegsam_format=999),
    "no-format": lambda path: rewrite(path, fegsam_format=None),
    "no-settings": lambda path: rewrite(path, settings=None),
    "settings-cut-off": lambda path: rewrite(path, settings='{"algorithm": "QLear'),
    "a-setting-missing": lambda path: rewrite(
        path, settings=changed_settings(path, sync_period=None)
    ),
    "a-setting-too-many": lambda path: rewrite(path, settings=changed_settings(path, colour="red")),
    "no-checkpoint-time": lambda path: rewrite(path, checkpoint_time=None),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("sealed", [True, False], ids=["checksum-right", "checksum-gone"])
def test_a_damaged_file_is_refused_by_name(damage, sealed, tmp_path) -> None:
    """Also where the checksum is right: then somebody wrote such a file."""
    path = tmp_path / "run.nc"
    short_run().save(path)
    DAMAGES[damage](path)
    if sealed:
        append_seal(path)
    with pytest.raises(fg.ProblemError, match=r"run\.nc.*(not a history|damaged)"):
        fg.load_history(path)


def test_wherever_bytes_are_overwritten_the_file_is_refused_by_name(tmp_path) -> None:
    """Once for the checksum, and once, with a checksum made for the changed bytes, for the readers
    underneath."""
    path = tmp_path / "run.nc"
    history = short_run(record=1, record_params=True)
    history.save(path)
    whole = path.read_bytes()
    for at in range(0, len(whole) - SEAL, len(whole) // 40):
        changed = bytes(255 - byte for byte in whole[at : at + 16])
        path.write_bytes(whole[:at] + changed + whole[at + 16 :])
        with pytest.raises(fg.ProblemError, match=r"run\.nc.*checksum is wrong"):
            fg.load_history(path)
        path.write_bytes(path.read_bytes()[:-SEAL])
        append_seal(path)
        try:
            fg.load_history(path)
        except fg.ProblemError as error:
            assert "run.nc" in str(error)  # noqa: PT017


@pytest.mark.parametrize("where", ["nowhere.nc", "", "no/such/folder/run.nc"])
def test_a_missing_file_is_named(where, tmp_path) -> None:
    with pytest.raises(fg.ProblemError, match=r"no history at .*check the path"):
        fg.load_history(tmp_path / where)  # a folder is no history either


def test_without_netcdf4_the_message_says_what_to_install(tmp_path, monkeypatch) -> None:
    history = short_run()
    history.save(tmp_path / "run.nc")
    monkeypatch.setitem(sys.modules, "netCDF4", None)
    for call in (
        lambda: history.save(tmp_path / "other.nc"),
        lambda: fg.load_history(tmp_path / "run.nc"),
    ):
        with pytest.raises(fg.ProblemError, match=r"pip install 'fegsam\[netcdf\]'"):
            call()
    assert [path.name for path in tmp_path.iterdir()] == ["run.nc"]


# --- What is inside -------------------------------------------------------------------------------


def test_a_file_says_by_itself_what_it_is(tmp_path) -> None:
    """Readable with any NetCDF tool, without this library."""
    history = short_run(seeds=[2**64 - 1, 3])
    history.save(tmp_path / "run.nc")
    with netCDF4.Dataset(tmp_path / "run.nc") as file:
        settings = json.loads(file.getncattr("settings"))
        assert settings["version"] == importlib.metadata.version("fegsam")
        assert settings["fingerprint"] == history.settings.fingerprint
        assert settings["algorithm"] == "OffPolicyTabularTD(horizon=2)"
        assert (settings["step_size"], settings["sync_period"], settings["num_steps"]) == (
            0.1,
            4,
            10,
        )
        assert file.getncattr("communications") == 2
        assert file["seed"][:].tolist() == [2**64 - 1, 3]
        assert file["time"][:].tolist() == [0, 3, 6, 9, 10]
        assert file["squared_error"].dimensions == ("seed", "time")


def pulled(**changes: Any) -> fg.History:
    """Two kinds of agents that drift to points of their own."""
    coins = fg.MarkovNoise([[[0.5, 0.5], [0.5, 0.5]]] * 2, num_agents=2)
    pulls = fg.LinearSA(
        [[[[-1.0]], [[-1.0]]], [[[-0.25]], [[-0.25]]]], [[[0.0], [2.0]], [[-0.5], [0.5]]]
    )
    settings = {"step_size": 0.1, "sync_period": 10, "num_steps": 2000, "tail": 0.5}
    return fg.run(coins, pulls, **(settings | {"engine": "reference"} | changes))


@pytest.mark.parametrize(
    "change",
    [
        {"method": fg.methods.fedavgm(0.5)},
        {"schedule": fg.schedules.Steps((5,), (0.5,))},
        {"num_steps": 40},
        {"tail": 0.25},
        {"tail": fg.Tail(0.5, "syncs")},
        {"sampling": "iid"},
        {"sync_period": 5},
        {"sync_period": (5, 10)},
        {"seeds": (1,)},
    ],
    ids=str,
)
def test_runs_that_differ_in_more_than_the_step_size_are_not_extrapolated(change) -> None:
    short = {"num_steps": 20, "record": 10}
    expected = r"differ in \w+ \(.+\); only their step sizes may differ: give both .* same \w+\.$"
    for coarse, fine in ((short, short | change), (short | change, short)):
        with pytest.raises(fg.ProblemError, match=expected):
            fg.extrapolated(pulled(**coarse), pulled(step_size=0.05, **fine))


@pytest.mark.parametrize("schedule", [None, fg.schedules.Steps((500,), (0.5,))])
def test_extrapolation_removes_the_bias_under_a_schedule_that_ends_constant(schedule) -> None:
    """The fixed point is 0.8, and the agents drift below it between synchronisations."""
    coarse, fine = (
        pulled(step_size=step_size, schedule=schedule, seeds=range(64), engine="cpu")
        for step_size in (0.1, 0.05)
    )
    found = fg.extrapolated(coarse, fine).tail_params.mean().item()
    assert abs(found - 0.8) < 0.4 * abs(fine.data.tail_params.mean().item() - 0.8)


def fingerprint(problem: Any = None, algorithm: Any = None, **settings: Any) -> str:
    """The fingerprint that a run with these arguments would have; nothing runs."""
    seen = []
    problem = golden.federation() if problem is None else problem
    algorithm = fg.OffPolicyLinearTD() if algorithm is None else algorithm
    fg.run(
        problem,
        algorithm,
        **(SETTINGS | {"engine": lambda _, settings: seen.append(settings)} | settings),
    )
    return seen[0].fingerprint


def coin(chance: float = 0.5, **settings: Any) -> fg.MarkovNoise:
    return fg.MarkovNoise([[chance, 1 - chance]] * 2, **({"num_agents": 2} | settings))


def linear(matrix: float = -1.0, offset: float = 0.0) -> fg.LinearSA:
    return fg.LinearSA([[[matrix]], [[matrix]]], [[1.0], [offset]])


def pulling(gain: float, dim: int = 1, norm: float = 2) -> fg.StochasticApproximation:
    def rule(params, y, kind, out):
        for j in range(dim):
            out[j] = gain * (1.0 - params[j])

    return fg.StochasticApproximation(rule, dim=dim, norm=norm)


def test_the_fingerprint_is_that_of_all_that_decides_the_numbers() -> None:
    known = {"fixed_point": [0.0]}
    mdp = fg.MDP(golden.TRANSITIONS, golden.REWARDS + 1e-9, golden.DISCOUNT)
    discounted = fg.MDP(golden.TRANSITIONS, golden.REWARDS, 0.6)
    policies = {
        "behavior_policies": np.array([golden.B1, golden.B2]),
        "target_policy": golden.TARGET,
    }
    policies |= {
        "features": golden.FEATURES,
        "initial_distribution": golden.FIRST_STATE,
        "num_agents": 2,
    }
    different = {
        "the golden problem": fingerprint(),
        "rewards": fingerprint(fg.Federation(mdp, **policies)),
        "discount": fingerprint(fg.Federation(discounted, **policies)),
        "agents": fingerprint(golden.federation(num_agents=3)),
        "assignment": fingerprint(golden.federation(assignment=[1, 0])),
        "behaviour": fingerprint(golden.federation([golden.B2, golden.B1])),
        "target": fingerprint(golden.federation(target_policy=golden.B1)),
        "features": fingerprint(golden.federation(features=[[1.0], [0.25]])),
        "first state": fingerprint(golden.federation(initial_distribution=[0.5, 0.5])),
        "algorithm": fingerprint(algorithm=fg.OnPolicyTD()),
        "horizon": fingerprint(algorithm=fg.OffPolicyLinearTD(2)),
        "preconditioner": fingerprint(algorithm=fg.OffPolicyLinearTD(preconditioned=True)),
        "start": fingerprint(initial_params=[1e-9]),
        "fixed point": fingerprint(fixed_point=[0.0]),
        "noise": fingerprint(coin(), linear()),
        "kernel": fingerprint(coin(0.4), linear()),
        "noise's start": fingerprint(coin(initial_distribution=[1.0, 0.0]), linear()),
        "noise's agents": fingerprint(coin(num_agents=3), linear()),
        "matrix": fingerprint(coin(), linear(-0.9)),
        "offset": fingerprint(coin(), linear(offset=0.5)),
        "rule": fingerprint(coin(), pulling(1.0), **known),
        "what a rule closes over": fingerprint(coin(), pulling(0.9), **known),
        "dimension": fingerprint(coin(), pulling(1.0, dim=2), fixed_point=[0.0, 0.0]),
        "norm": fingerprint(coin(), pulling(1.0, norm=math.inf), **known),
    }
    assert len(set(different.values())) == len(different)


def test_the_fingerprint_is_the_same_for_every_way_of_running_the_same() -> None:
    same = (
        {"step_size": 0.2},
        {"sync_period": 1},
        {"num_steps": 20},
        {"seeds": [9]},
        {"record": None},
        {"sampling": "iid"},
    )
    assert {fingerprint(**changes) for changes in same} == {fingerprint()}
    assert fingerprint(golden.federation(), fg.OffPolicyLinearTD(horizon=1)) == fingerprint()
    assert fingerprint(initial_params=[0.0]) == fingerprint()
    again = {fingerprint(coin(), pulling(1.0), fixed_point=[0.0]) for _ in range(2)}
    assert len(again) == 1


def test_the_fingerprint_of_a_rule_without_a_key_is_not_that_of_another() -> None:
    """Else a history could be resumed with a rule that it was not made with."""

    def made_of(numbers: list[float]) -> fg.StochasticApproximation:
        def rule(params, y, kind, out):
            out[0] = numbers[0] - params[0]

        return fg.StochasticApproximation(rule, dim=1)

    one, other = (fingerprint(coin(), made_of([x]), fixed_point=[0.0]) for x in (1.0, 2.0))
    assert one != other
