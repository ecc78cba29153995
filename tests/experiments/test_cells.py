"""Cells: what their keys stand for, and that they run as `fegsam.run` does."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

import fegsam as fg
from fegsam.experiments.spec.study import EXAMPLE, parse_study

SEEDLESS = EXAMPLE.replace("seeds = 2", "seeds = [0, 1]")


def keys(text: str, **options: object) -> list[str]:
    return [cell.key for cell in parse_study(text, **options).cells()]


class TestKeys:
    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("seeds = 2", "seeds = [0, 1]"),
            ("step_size = [0.1, 0.05]", "step_size = [1e-1, 5e-2]"),
            ('name = "speed-up"', 'name = "other"\ntitle = "Other"'),
            ("discount = 0.7", "discount = 0.70"),
            ("seed = 1\n", "seed = 1\nheterogeneity = 1\n"),
            ("[grid]", '[[figures]]\nkind = "floor"\n\n[claim]\nlow = 1\n\n[grid]'),
            ("num_steps = 1000", "num_steps = 1_000 # steps\ncommon_paths = true"),
        ],
    )
    def test_are_equal_for_equal_data(self, old, new):
        assert keys(EXAMPLE.replace(old, new)) == keys(EXAMPLE)

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("seeds = 2", "seeds = 3"),
            ("seeds = 2", 'seeds = 2\nengine = "reference"'),
            ("seed = 0", "seed = 2"),
            ("states = 6", "states = 7"),
            ("discount = 0.7", "discount = 0.71"),
            ("seed = 1\n", "seed = 1\nheterogeneity = 0.5\n"),
            ("num_steps = 1000", "num_steps = 1001"),
            ("num_steps = 1000", "num_steps = 1000\nrecord = 10"),
            ("num_steps = 1000", "num_steps = 1000\nrecord_params = true"),
            ("num_steps = 1000", 'num_steps = 1000\nsampling = "iid"'),
            ("num_steps = 1000", "num_steps = 1000\noutput_decay = 0.9"),
            ("num_steps = 1000", "num_steps = 1000\nstop_at_output = true"),
            ("num_steps = 1000", "num_steps = 1000\ninitial_params = 1"),
            ("num_steps = 1000", f"num_steps = 1000\nfixed_point = {[0.0] * 12}"),
            ("num_steps = 1000", "num_steps = 1000\ncommon_paths = false"),
            ("seed = 0", "seed = 0\nassignment = [1, 1, 1, 1]"),
        ],
    )
    def test_differ_for_other_data(self, old, new):
        assert not set(keys(EXAMPLE.replace(old, new))) & set(keys(EXAMPLE))

    def test_differ_between_the_cells_of_a_study(self):
        assert len(set(keys(EXAMPLE))) == 4

    def test_are_the_same_in_another_process(self):
        code = (
            "from fegsam.experiments.spec.study import EXAMPLE, parse_study\n"
            "print(*[cell.key for cell in parse_study(EXAMPLE).cells()])"
        )
        told = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
        assert told == keys(EXAMPLE)

    def test_do_not_depend_on_where_a_file_lies(self, tmp_path):
        text = EXAMPLE.replace("seed = 0", 'seed = 0\ninitial_distribution = "start.npy"')
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            np.save(tmp_path / name / "start.npy", np.full(6, 1 / 6))
        assert keys(text, directory=tmp_path / "a") == keys(text, directory=tmp_path / "b")

    def test_cells_are_equal_and_hashed_by_them(self):
        one, other = parse_study(EXAMPLE).cells(), parse_study(SEEDLESS).cells()
        assert one == other
        assert len({*one, *other}) == 4
        assert one[0] != one[1]


class TestRuns:
    def test_run_as_the_library_does(self, assert_same_bits):
        cell = parse_study(EXAMPLE).cells()[-1]
        mdp = fg.examples.garnet(6, 2, 3, 0.7, 0)
        federation = fg.Federation(mdp, fg.policies.random(6, 2, 4, 1), num_agents=4)
        history = fg.run(
            federation, fg.QLearning(), step_size=0.05, sync_period=10, num_steps=1000, seeds=(0, 1)
        )
        assert_same_bits(cell.run(), history)
        assert cell.agent_steps == 8000

    def test_pass_on_every_setting_of_the_spec(self):
        settings = "\n".join(
            [
                "num_steps = 100",
                "record = [0, 50, 100]",
                "record_params = true",
                'sampling = "iid"',
                "output_decay = 0.95",
                "stop_at_output = false",
                "initial_params = 0.5",
                f"fixed_point = {[0.25] * 12}",
            ]
        )
        history = parse_study(EXAMPLE.replace("num_steps = 1000", settings)).cells()[0].run()
        assert list(history.data.time) == [0, 50, 100]
        assert (history.settings.sampling, history.settings.output_decay) == ("iid", 0.95)
        np.testing.assert_array_equal(history.data.average_params[:, 0], np.full((2, 12), 0.5))
        np.testing.assert_allclose(history.data.squared_error[:, 0], 0.25**2)

    def test_use_their_engine_unless_another_is_given(self):
        cell = dataclasses.replace(
            parse_study(EXAMPLE.replace("1000", "20")).cells()[0], engine="reference"
        )
        assert cell.run().settings.engine == "reference"
        assert cell.run("cpu").settings.engine == "cpu"

    def test_share_paths_whatever_their_agents_period_and_step(self):
        text = EXAMPLE.replace("count = 4", 'count = "agents"').replace(
            "sync_period = 10", "sync_period = [1, 10]"
        )
        paths = []
        for cell in parse_study(text).cells():
            problem, algorithm = cell.build()
            path = fg.sample_path(problem, algorithm, seed=cell.seeds[0], agent=0, num_steps=50)
            paths.append(np.concatenate([np.asarray(path.states), np.asarray(path.actions)]))
        assert len(paths) == 8
        for path in paths[1:]:
            np.testing.assert_array_equal(path, paths[0])


def test_the_library_loads_without_pydantic():
    code = "import sys, fegsam, fegsam.experiments; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_pydantic_one_sentence_says_what_to_install():
    code = """
import sys
sys.modules["pydantic"] = None
from fegsam import ProblemError
try:
    import fegsam.experiments.spec
except ProblemError as error:
    print(error)
"""
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert told == "Studies need pydantic; run: pip install 'fegsam[experiments]'\n"
