"""Studies as TOML: what a spec can say, and what a malformed one is told."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from scipy import sparse

import fegsam as fg
from fegsam.errors import SpecError
from fegsam.experiments.spec import load_study, parse_study
from fegsam.experiments.toml_lines import key_lines, line_of

TABULAR = """\
# Speed-up of tabular TD.
[study]
name = "speed-up"
title = "Linear speed-up"
seeds = 3
engine = "cpu"

[problem]
generator = "garnet"
states = 6
actions = 3
branching = 4
discount = 0.7
seed = 0

[problem.behavior]
kind = "random"
count = 4
seed = 1
heterogeneity = 0.5

[problem.target]
kind = "uniform"

[algorithm]
name = "off_policy_tabular_td"
horizon = 2

[run]
num_steps = 200
record = { points = 21 }
sampling = "markov"

[grid]
num_agents = [1, 4]
sync_period = [1, 10]
step_size = [0.1,
    0.05]

[[figures]]
kind = "error_curves"
by = "num_agents"

[[figures]]
kind = "speed_up"
by = "num_agents"
exact = true

[claim]
slope_low = -1.2
slope_high = -0.8
"""

LINEAR = """\
[study]
name = "heterogeneity"
seeds = [3, 5]

[problem]
generator = "random_walk"
states = 5
discount = 0.6

[problem.behavior]
kind = "mixed"
count = "agents"
seed = 4

[problem.target]
kind = "uniform"

[problem.features]
kind = "polynomial"
dim = 2

[problem.environments]
count = "agents"
rewards = 0.1
seed = 0

[algorithm]
name = "off_policy_linear_td"

[grid]
num_agents = 3
sync_period = [1, 5]
step_size = 0.05
num_steps = 100
horizon = [1, 2]
heterogeneity = [0.0, 0.5]
problem.environments.transitions = [0, 0.2]
sampling = ["markov", "iid"]
"""

NOISE = """\
[study]
name = "coin"

[problem]
generator = "noise"
kernels = [[0.5, 0.5], [0.5, 0.5]]
matrices = [[[-1.0]], [[-1.0]]]
offsets = [[0.0], [1.0]]

[algorithm]
name = "linear_sa"

[run]
num_steps = 1000
initial_params = 2

[grid]
num_agents = [2, 4]
sync_period = ["corollary", "advised", 1]
step_size = "corollary"
"""


def replaced(old: str, new: str, text: str = TABULAR) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


def without(table: str, text: str = TABULAR) -> str:
    """The text without a table and its keys."""
    head, _, tail = text.partition(f"[{table}]\n")
    return head + tail[tail.index("\n[") + 1 :]


class TestWhatASpecSays:
    def test_cells_are_the_product_of_the_axes_in_their_order(self):
        cells = parse_study(TABULAR).cells()
        assert [(c.num_agents, c.sync_period, c.step_size) for c in cells] == [
            (n, k, a) for n in (1, 4) for k in (1, 10) for a in (0.1, 0.05)
        ]
        assert cells[1].axes == {"num_agents": 1, "sync_period": 1, "step_size": 0.05}

    def test_everything_else_is_as_written(self):
        study = parse_study(TABULAR, "speed.toml")
        assert (study.name, study.title, study.seeds, study.engine) == ("speed-up", "Linear speed-up", (0, 1, 2), "cpu")
        assert [(f.kind, f.by, f.exact) for f in study.figures] == [
            ("error_curves", "num_agents", True),
            ("speed_up", "num_agents", True),
        ]
        assert study.claim == {"slope_low": -1.2, "slope_high": -0.8}
        assert study.text == TABULAR
        assert study.axes == {"num_agents": (1, 4), "sync_period": (1, 10), "step_size": (0.1, 0.05)}

    def test_an_axis_sets_keys_of_other_tables(self):
        cells = parse_study(LINEAR).cells()
        assert len(cells) == 32
        last = cells[-1]
        assert last.axes == {
            "num_agents": 3,
            "sync_period": 5,
            "step_size": 0.05,
            "num_steps": 100,
            "horizon": 2,
            "heterogeneity": 0.5,
            "problem.environments.transitions": 0.2,
            "sampling": "iid",
        }
        assert last.algorithm.horizon == 2
        assert last.problem.behavior.heterogeneity == 0.5
        assert last.problem.environments.transitions == 0.2
        assert (last.sampling, last.num_steps, last.seeds) == ("iid", 100, (3, 5))

    def test_the_corollary_is_a_number_in_every_cell(self):
        for cell in parse_study(NOISE).cells():
            schedule = fg.theory.schedule(*cell.build(), num_steps=1000)
            asked = cell.axes["sync_period"]
            expected = {"corollary": schedule.sync_period, "advised": schedule.advised_sync_period, 1: 1}[asked]
            assert (cell.step_size, cell.sync_period) == (schedule.step_size, expected)
            assert cell.axes["step_size"] == "corollary"

    def test_several_grids_follow_each_other(self):
        grids = "[[grid]]\nnum_agents = 1\nsync_period = 1\nstep_size = 0.1\n\n"
        grids += "[[grid]]\nnum_agents = [2, 4]\nsync_period = 10\nstep_size = 0.2\n\n"
        head, tail = TABULAR.split("[grid]")
        cells = parse_study(head + grids + tail[tail.index("[[figures]]") :]).cells()
        assert [(c.num_agents, c.sync_period, c.step_size) for c in cells] == [(1, 1, 0.1), (2, 10, 0.2), (4, 10, 0.2)]

    def test_values_can_be_overridden_and_the_text_says_so(self):
        values = {"study.engine": "reference", "study.seeds": [7], "grid.num_agents": [2], "run.record": 50}
        study = parse_study(TABULAR).override({**values, "study.title": 'a "b"\n\\ é \x7f'})
        assert {(c.engine, c.seeds, c.num_agents, c.record_times) for c in study.cells()} == {("reference", (7,), 2, 50)}
        again = parse_study(study.text)
        assert again.cells() == study.cells()
        assert (again.title, again.figures, again.claim) == ('a "b"\n\\ é \x7f', study.figures, study.claim)

    @pytest.mark.parametrize("text", [TABULAR, LINEAR, NOISE])
    def test_nothing_overridden_changes_nothing(self, text):
        study = parse_study(text)
        assert study.override({}).cells() == study.cells()

    def test_an_override_is_checked_too(self):
        with pytest.raises(SpecError, match="num_agents is -1"):
            parse_study(TABULAR).override({"grid.num_agents": -1})
        with pytest.raises(SpecError, match="cannot be set"):
            parse_study(TABULAR).override({"figures.kind": "floor"})

    def test_cells_can_have_paths_of_their_own(self):
        study = parse_study(replaced("num_steps = 200", "num_steps = 200\ncommon_paths = false"))
        seeds = [seed for cell in study.cells() for seed in cell.seeds]
        assert len(set(seeds)) == len(seeds) == 3 * 8
        assert all(0 <= seed < 2**64 for seed in seeds)
        shorter = parse_study(replaced("sync_period = [1, 10]", "sync_period = 10", study.text))
        assert {cell.seeds for cell in shorter.cells()} < {cell.seeds for cell in study.cells()}

    @pytest.mark.parametrize(
        ("record", "times"),
        [
            ("50", 50),
            ("[0, 7, 200]", [0, 7, 200]),
            ("{ points = 5 }", [0, 50, 100, 150, 200]),
            ("{ every = 20 }", 20),
            ("{ times = [3] }", [3]),
        ],
    )
    def test_times_are_recorded_as_asked(self, record, times):
        cell = parse_study(replaced("{ points = 21 }", record)).cells()[0]
        np.testing.assert_array_equal(cell.record_times, times)

    def test_times_can_grow_geometrically(self):
        spec = replaced("{ points = 21 }", '{ points = 8, spacing = "log" }')
        times = parse_study(spec).cells()[0].record_times
        assert times[0] == 0
        assert times[1] == 1
        assert times[-1] == 200
        assert (np.diff(times) >= 1).all()
        ratios = times[2:] / times[1:-1]
        assert ratios.max() < 4

    def test_a_study_and_its_cells_survive_pickling(self):
        study = parse_study(LINEAR)
        assert pickle.loads(pickle.dumps(study)).cells() == study.cells()

    def test_byte_order_mark_and_windows_line_ends_are_read(self, tmp_path):
        path = tmp_path / "windows.toml"
        path.write_bytes(b"\xef\xbb\xbf" + TABULAR.replace("\n", "\r\n").encode())
        assert load_study(path).cells() == parse_study(TABULAR).cells()

    def test_a_large_grid_is_read_in_seconds(self):
        spec = replaced("num_agents = [1, 4]", f"num_agents = {list(range(1, 2501))}")
        assert len(parse_study(spec).cells()) == 10_000


class TestProblems:
    @pytest.mark.parametrize(
        ("table", "mdp"),
        [
            ('generator = "random_walk"\nstates = 5\ndiscount = 0.8', lambda: fg.examples.random_walk(5, 0.8)),
            ('generator = "river_swim"', lambda: fg.examples.river_swim()),
            (
                'generator = "grid_world"\nrows = 2\ncolumns = 3\ndiscount = 0.9\nslip = 0.2',
                lambda: fg.examples.grid_world(2, 3, 0.9, 0.2),
            ),
            ('generator = "two_state"', lambda: fg.examples.two_state()),
            (
                'generator = "two_state"\nto_second = [[0.5, 0.2], [0.1, 1]]\nrewards = [[1, 2], [3, 4]]\ndiscount = 0.3',
                lambda: fg.examples.two_state([[0.5, 0.2], [0.1, 1]], [[1, 2], [3, 4]], 0.3),
            ),
            ('generator = "bandit"\nrewards = [0, 1]\ndiscount = 0.5', lambda: fg.examples.bandit([0, 1], 0.5)),
            (
                'generator = "gymnasium"\nenv_id = "FrozenLake-v1"\ndiscount = 0.9\noptions = { is_slippery = false }',
                lambda: fg.examples.from_gymnasium("FrozenLake-v1", 0.9, is_slippery=False),
            ),
            (
                'generator = "arrays"\ntransitions = [[[0.5, 0.5]], [[1, 0]]]\nrewards = [[1], [2]]\ndiscount = 0.5',
                lambda: fg.MDP([[[0.5, 0.5]], [[1, 0]]], [[1], [2]], 0.5),
            ),
        ],
    )
    def test_generators_build_what_the_library_does(self, table, mdp):
        head, tail = TABULAR.split("[problem]\n")
        cell = parse_study(head + "[problem]\n" + table + "\n" + tail[tail.index("\n[") :]).cells()[-1]
        problem, algorithm = cell.build()
        expected = mdp()
        uniform = fg.policies.uniform(expected.num_states, expected.num_actions)
        drawn = fg.policies.random(expected.num_states, expected.num_actions, 4, 1)
        same = fg.Federation(expected, 0.5 * uniform + 0.5 * drawn, num_agents=4, target_policy=uniform)
        assert problem.fingerprint() == same.fingerprint()
        assert algorithm == fg.OffPolicyTabularTD(horizon=2)

    def test_what_is_known_to_an_agent_does_not_hang_on_how_many_there_are(self):
        few, many = (parse_study(replaced("num_agents = 3", f"num_agents = {n}", LINEAR)).cells()[-1] for n in (3, 7))
        (small, _), (large, _) = few.build(), many.build()
        np.testing.assert_array_equal(large.behavior_policies[:3], small.behavior_policies)
        for one, other in zip(small.mdps, large.mdps[:3], strict=True):
            np.testing.assert_array_equal(one.rewards, other.rewards)
            np.testing.assert_array_equal(one.transitions.toarray(), other.transitions.toarray())

    def test_perturbed_environments_stay_near_and_differ(self):
        problem, _ = parse_study(LINEAR).cells()[-1].build()
        base = fg.examples.random_walk(5, 0.6)
        for mdp in problem.mdps:
            assert 0 < np.abs(mdp.rewards - base.rewards).max() <= 0.1
            gap = np.abs(mdp.transitions - base.transitions).sum(axis=1)
            assert 0 < gap.max() <= 0.4
        assert not np.array_equal(problem.mdps[0].rewards, problem.mdps[1].rewards)

    def test_zero_heterogeneity_is_one_environment_and_one_policy(self):
        text = replaced("rewards = 0.1", "rewards = 0.0", LINEAR)
        problem, algorithm = parse_study(text).cells()[0].build()
        assert fg.heterogeneity(problem, algorithm) < 1e-12

    @pytest.mark.parametrize(
        ("table", "check"),
        [
            ('kind = "uniform"', lambda p: (p.behavior_policies == 1 / 3).all()),
            ('kind = "target"', lambda p: p.behavior_policies is None),
            ('kind = "random"\ncount = 2\nseed = 0', lambda p: p.behavior_policies.shape == (2, 6, 3)),
            (
                'kind = "epsilon_greedy"\nepsilon = [0.5, 1.0]',
                lambda p: np.allclose(p.behavior_policies.min((1, 2)), [1 / 6, 1 / 3]),
            ),
            (
                f'kind = "epsilon_greedy"\nepsilon = 0.3\nq = {[*[[1, 0, 0]] * 5, [0, 0, 1]]}',
                lambda p: np.allclose(p.behavior_policies[0, 5], [0.1, 0.1, 0.8]),
            ),
            (f'kind = "table"\npolicies = {[[0.2, 0.3, 0.5]] * 6}', lambda p: p.behavior_policies.shape == (1, 6, 3)),
        ],
    )
    def test_behaviour_is_as_asked(self, table, check):
        head, tail = TABULAR.split("[problem.behavior]\n")
        text = head + "[problem.behavior]\n" + table + "\n" + tail[tail.index("\n[") :]
        assert check(parse_study(text).cells()[0].build()[0])

    @pytest.mark.parametrize(
        ("table", "shape"),
        [
            ('kind = "random"\ndim = 3\nseed = 0', (5, 3)),
            ('kind = "one_hot"', (5, 5)),
            ('kind = "aggregate"\ndim = 2', (5, 2)),
            ('kind = "polynomial"\ndim = 4', (5, 4)),
            ('kind = "table"\nfeatures = [[1], [1], [1], [1], [2]]', (5, 1)),
        ],
    )
    def test_features_are_as_asked(self, table, shape):
        text = replaced('kind = "polynomial"\ndim = 2', table, LINEAR)
        features = parse_study(text).cells()[0].build()[0].features
        assert features.shape == shape
        if "table" not in table:
            assert np.linalg.norm(features, axis=1).max() <= 1 + 1e-12

    def test_target_by_epsilon_greedy_follows_the_best_actions(self):
        text = replaced('kind = "uniform"', 'kind = "epsilon_greedy"\nepsilon = 0.3')
        problem, _ = parse_study(text).cells()[0].build()
        q = fg.fixed_point(problem, fg.QLearning()).reshape(6, 3)
        np.testing.assert_allclose(problem.target_policy, fg.policies.epsilon_greedy(q, 0.3))

    def test_a_file_can_hold_the_whole_problem(self, tmp_path):
        mdp = fg.examples.garnet(4, 2, 3, 0.6, 0)
        policies, start = fg.policies.random(4, 2, 2, 0), np.array([1.0, 0, 0, 0])
        arrays = {"transitions": mdp.transitions.toarray().reshape(4, 2, 4), "rewards": mdp.rewards, "discount": 0.6}
        arrays |= {"behavior_policies": policies, "target_policy": policies[0], "features": np.eye(4)[:, :2]}
        np.savez(tmp_path / "problem.npz", **arrays, initial_distribution=start)
        head, tail = TABULAR.split("[problem]\n")
        text = head + '[problem]\ngenerator = "file"\npath = "problem.npz"\n\n' + tail[tail.index("[algorithm]") :]
        (tmp_path / "study.toml").write_text(text)
        cell = load_study(tmp_path / "study.toml").cells()[-1]
        expected = fg.Federation(
            mdp, policies, num_agents=4, target_policy=policies[0], features=np.eye(4)[:, :2], initial_distribution=start
        )
        assert cell.build()[0].fingerprint() == expected.fingerprint()

    def test_sparse_transitions_and_several_environments_come_from_files(self, tmp_path):
        mdp = fg.examples.garnet(6, 3, 4, 0.7, 0)
        sparse.save_npz(tmp_path / "moves.npz", mdp.transitions)
        np.save(tmp_path / "paid.npy", mdp.rewards)
        head, tail = TABULAR.split("[problem]\n")
        table = '[problem]\ngenerator = "arrays"\ntransitions = "moves.npz"\nrewards = "paid.npy"\ndiscount = 0.7\n'
        problem, _ = parse_study(head + table + tail[tail.index("\n[") :], directory=tmp_path).cells()[0].build()
        assert problem.fingerprint() == parse_study(TABULAR).cells()[0].build()[0].fingerprint()
        dense = mdp.transitions.toarray().reshape(6, 3, 6)
        np.savez(tmp_path / "kinds.npz", transitions=[dense] * 4, rewards=[mdp.rewards + k for k in range(4)], discount=0.7)
        table = '[problem]\ngenerator = "file"\npath = "kinds.npz"\n'
        problem, _ = parse_study(head + table + tail[tail.index("\n[") :], directory=tmp_path).cells()[0].build()
        assert [mdp.rewards[0, 0] - problem.mdps[0].rewards[0, 0] for mdp in problem.mdps] == pytest.approx([0, 1, 2, 3])

    def test_noise_comes_from_a_file_too(self, tmp_path):
        arrays = {"kernels": [[0.5, 0.5], [0.5, 0.5]], "matrices": [[[-1.0]], [[-1.0]]], "offsets": [[0.0], [1.0]]}
        np.savez(tmp_path / "noise.npz", **arrays)
        head, tail = NOISE.split("kernels")
        text = head + 'path = "noise.npz"\n' + tail[tail.index("\n[algorithm]") :]
        (one, algorithm), (other, inline) = (
            s.cells()[0].build() for s in (parse_study(text, directory=tmp_path), parse_study(NOISE))
        )
        assert one.fingerprint() == other.fingerprint()
        np.testing.assert_array_equal(algorithm.matrices, inline.matrices)

    def test_a_rule_of_ones_own_comes_from_a_python_file(self, tmp_path):
        (tmp_path / "rule.py").write_text("def rule(params, y, kind, out):\n    out[0] = y - params[0]\n")
        algorithm = 'name = "stochastic_approximation"\nrule = "rule.py:rule"\ndim = 1\nassumptions = { gamma_c = 0.0 }'
        text = replaced('name = "linear_sa"', algorithm, NOISE).replace('["corollary", "advised", 1]', "1")
        text = text.replace('step_size = "corollary"', "step_size = 0.1")
        cell = parse_study(text, directory=tmp_path).cells()[0]
        np.testing.assert_allclose(fg.fixed_point(*cell.build()), [0.5], atol=1e-9)

    def test_agents_take_the_kinds_that_the_spec_assigns(self):
        text = replaced("seed = 0\n", "seed = 0\nassignment = [3, 3, 0, 1, 2]\n")
        problems = [cell.build()[0] for cell in parse_study(text).cells()]
        assert [list(p.assignment) for p in (problems[0], problems[-1])] == [[3], [3, 3, 0, 1]]

    def test_a_stored_copy_is_read_without_its_directory(self, tmp_path):
        np.savez(tmp_path / "start.npz", law=[0.5, 0.5, 0, 0, 0, 0])
        text = replaced("seed = 0\n", 'seed = 0\ninitial_distribution = "start.npz:law"\n')
        study = parse_study(text, directory=tmp_path)
        results = tmp_path / "results"
        study.copy_inputs(results)
        (results / "study.toml").write_text(study.text)
        (tmp_path / "start.npz").unlink()
        stored = load_study(results / "study.toml")
        stored.copy_inputs(results)
        assert load_study(results / "study.toml").cells() == study.cells()

    def test_a_file_that_changes_under_a_study_is_noticed(self, tmp_path):
        np.savez(tmp_path / "start.npz", law=[0.5, 0.5, 0, 0, 0, 0])
        text = replaced("seed = 0\n", 'seed = 0\ninitial_distribution = "start.npz:law"\n')
        cell = parse_study(text, directory=tmp_path).cells()[0]
        np.savez(tmp_path / "start.npz", law=[1.0, 0, 0, 0, 0, 0])
        with pytest.raises(SpecError, match="changed since"):
            cell.build()
        assert parse_study(text, directory=tmp_path).cells()[0].key != cell.key


MALFORMED = {
    # Missing tables and keys.
    "no study": (without("study"), "study is missing"),
    "no problem": (without("problem"), "line 8: problem.generator is missing"),
    "no algorithm": (without("algorithm"), "algorithm is missing"),
    "no grid": (TABULAR.split("[grid]")[0], "grid is missing"),
    "empty": ("", "study is missing"),
    "no run": (without("run"), "run.num_steps is missing"),
    "no name": (replaced('name = "speed-up"\n', ""), "line 2: study.name is missing"),
    "no discount": (replaced("discount = 0.7\n", ""), "line 8: problem.discount is missing"),
    "no kind": (replaced('kind = "random"\n', ""), "line 16: problem.behavior.kind is missing"),
    "no count": (replaced("count = 4\n", ""), "line 16: problem.behavior.count is missing"),
    "no agents": (replaced("num_agents = [1, 4]\n", ""), "line 34: grid.num_agents is missing"),
    "no step size": (replaced("step_size = [0.1,\n    0.05]\n", ""), "line 34: grid.step_size is missing"),
    "no target": (without("problem.target"), "needs the table [problem.target]"),
    "no behaviour": (
        without("problem.target", without("problem.behavior")).replace('"off_policy_tabular_td"\nhorizon = 2', '"q_learning"'),
        "needs the table [problem.behavior]",
    ),
    "no features": (
        replaced("off_policy_tabular_td", "on_policy_td"),
        "line 26: algorithm.name is 'on_policy_td', which needs the",
    ),
    "no figure kind": (replaced('kind = "speed_up"\n', ""), "line 44: figures[1].kind is missing"),
    # Wrong types.
    "text for a number": (replaced("states = 6", 'states = "six"'), "line 10: problem.states is 'six'"),
    "fraction for a whole number": (replaced("actions = 3", "actions = 2.5"), "line 11: problem.actions is 2.5"),
    "truth for a number": (replaced("discount = 0.7", "discount = true"), "line 13: problem.discount is true"),
    "list for a number": (replaced("branching = 4", "branching = [4]"), "line 12: problem.branching is a list"),
    "number for text": (replaced('name = "speed-up"', "name = 3"), "line 3: study.name is 3"),
    "number for a table": (without("run") + "\n[x]\n", "x is not a table that is known"),
    "table for a number": (replaced("num_steps = 200", "num_steps = { a = 1 }"), "line 30: run.num_steps is a table"),
    "date for a number": (replaced("num_steps = 200", "num_steps = 2024-01-01"), "line 30: run.num_steps is datetime.date"),
    "text in an axis": (replaced("[1, 4]", '[1, "4"]'), "line 35: grid.num_agents[1] is '4'"),
    "list in an axis": (replaced("[1, 10]", "[1, [10]]"), "line 36: grid.sync_period[1] is a list"),
    "text for truth": (replaced("exact = true", 'exact = "yes"'), "line 47: figures[1].exact is 'yes'"),
    "figures as a table": (TABULAR.replace("[[figures]]", "[figures]", 1).split("[[")[0], "line 40: figures is a table"),
    "claim as a number": ("claim = 3\n" + TABULAR.split("[claim]")[0], "line 1: claim is 3"),
    "seeds as text": (replaced("seeds = 3", 'seeds = "three"'), "line 5: study.seeds is 'three'"),
    "seeds as a fraction": (replaced("seeds = 3", "seeds = 3.5"), "line 5: study.seeds is 3.5"),
    "record as text": (replaced("{ points = 21 }", '"all"'), "line 31: run.record is 'all'"),
    # Unknown names.
    "unknown table": (
        replaced("[algorithm]", "[algoritm]"),
        "line 25: algoritm is not a table that is known: did you mean 'algorithm'?",
    ),
    "unknown key": (replaced("branching", "branchin"), "line 12: problem.branchin is not a key that is known"),
    "unknown generator": (
        replaced('"garnet"', '"garnett"'),
        "line 9: problem.generator is 'garnett', which is not known: did you mean 'garnet'?",
    ),
    "unknown kind": (
        replaced('"random"', '"randon"'),
        "line 17: problem.behavior.kind is 'randon', which is not known: did you mean 'random'?",
    ),
    "unknown algorithm": (replaced("off_policy_tabular_td", "off_policy_td"), "line 26: algorithm.name is 'off_policy_td'"),
    "unknown engine": (
        replaced('engine = "cpu"', 'engine = "gpu"'),
        "line 6: study.engine is 'gpu', which is not known: did you mean 'cpu'?",
    ),
    "unknown sampling": (
        replaced('"markov"', '"markof"'),
        "line 32: run.sampling is 'markof', which is not known: did you mean 'markov'?",
    ),
    "unknown axis": (
        replaced("sync_period =", "sync_perod ="),
        "line 36: grid.sync_perod is not an axis that is known: did you mean 'sync_period'?",
    ),
    "unknown axis of a table": (
        replaced("sync_period =", "problem.size = 3\nsync_period ="),
        "line 36: grid.problem.size is not a key that is known",
    ),
    "unknown figure": (
        replaced('"speed_up"', '"speedup"'),
        "line 45: figures[1].kind is 'speedup', which is not known: did you mean 'speed_up'?",
    ),
    "figure by an unknown axis": (replaced('by = "num_agents"\n\n', 'by = "agents"\n\n'), "line 42: figures[0].by is 'agents'"),
    "unknown schedule": (replaced("[1, 10]", '"corolary"'), "line 36: grid.sync_period is 'corolary'"),
    "key of another kind": (
        replaced('kind = "uniform"', 'kind = "uniform"\nseed = 1'),
        "line 24: problem.target.seed is not a key that is known here",
    ),
    "unknown key inside": (
        replaced("points = 21", "point = 21"),
        "line 31: run.record.point is not a key that is known here: did you mean 'points'?",
    ),
    # NaN, infinite, negative, out of range.
    "NaN discount": (replaced("discount = 0.7", "discount = nan"), "line 13: problem.discount is nan"),
    "NaN step size": (replaced("step_size = [0.1,", "step_size = [nan,"), "line 37: grid.step_size[0] is nan"),
    "infinite step size": (replaced("    0.05]", "    inf]"), "line 37: grid.step_size[1] is inf"),
    "NaN threshold": (replaced("-1.2", "nan"), "line 50: claim.slope_low is nan"),
    "NaN heterogeneity": (
        replaced("heterogeneity = 0.5", "heterogeneity = nan"),
        "line 20: problem.behavior.heterogeneity is nan",
    ),
    "negative agents": (replaced("[1, 4]", "[1, -4]"), "line 35: grid.num_agents[1] is -4, but must be at least 1"),
    "no agents at all": (replaced("[1, 4]", "0"), "line 35: grid.num_agents is 0"),
    "negative steps": (replaced("num_steps = 200", "num_steps = -200"), "line 30: run.num_steps is -200"),
    "negative seed": (replaced("seed = 1\n", "seed = -1\n"), "line 19: problem.behavior.seed is -1"),
    "negative run seed": (replaced("seeds = 3", "seeds = [0, -3]"), "line 5: study.seeds has -3 at [1]"),
    "no seeds": (replaced("seeds = 3", "seeds = 0"), "line 5: study.seeds is 0"),
    "seed too large": (
        replaced("seeds = 3", f"seeds = [{2**64}]"),
        "line 5: study.seeds has a whole number of more than 18 digits at [0]",
    ),
    "negative step size": (
        replaced("step_size = [0.1,", "step_size = [-0.1,"),
        "line 37: grid.step_size[0] is -0.1, but must be above 0",
    ),
    "discount of one": (replaced("discount = 0.7", "discount = 1.0"), "line 13: problem.discount is 1.0, but must be below 1"),
    "heterogeneity above one": (
        replaced("heterogeneity = 0.5", "heterogeneity = 1.5"),
        "line 20: problem.behavior.heterogeneity is 1.5, but must be at most 1",
    ),
    "horizon of zero": (replaced("horizon = 2", "horizon = 0"), "line 27: algorithm.horizon is 0"),
    "more successors than states": (
        replaced("branching = 4", "branching = 40"),
        "line 12: problem.branching is 40, but successors are distinct",
    ),
    "decay above one": (replaced("num_steps = 200", "num_steps = 200\noutput_decay = 1.5"), "line 31: run.output_decay is 1.5"),
    "times after the end": (replaced("{ points = 21 }", "[0, 300]"), "line 31: run.record has time 300, but num_steps is 200"),
    "too few start parameters": (
        replaced("num_steps = 200", "num_steps = 200\ninitial_params = [1, 2]"),
        "line 31: run.initial_params has shape (2,)",
    ),
    "ragged array": (
        replaced("num_steps = 200", "num_steps = 200\ninitial_params = [1, [2]]"),
        "line 31: run.initial_params has rows of different lengths",
    ),
    "text in an array": (
        replaced("num_steps = 200", 'num_steps = 200\ninitial_params = [1, "2"]'),
        "line 31: run.initial_params has an entry '2'",
    ),
    "missing file": (
        replaced("num_steps = 200", 'num_steps = 200\ninitial_params = "none.npz:a"'),
        "line 31: run.initial_params is 'none.npz:a', but",
    ),
    "too few agents assigned": (
        replaced("seed = 0\n", "seed = 0\nassignment = [0, 1]\n"),
        "line 15: problem.assignment has shape (2,), but must name the kinds of 4",
    ),
    "a law that does not sum to one": (
        replaced("seed = 0\n", "seed = 0\ninitial_distribution = [0.5, 0, 0, 0, 0, 0]\n"),
        "line 15: problem.initial_distribution sums to 0.5",
    ),
    # Huge.
    "huge grid": (
        replaced("[1, 10]", str(list(range(1, 50_000)))),
        "line 34: grid has 199996 cells, but a study has at most 100000",
    ),
    "huge axis": (replaced("[1, 10]", str(list(range(1, 200_000)))), "line 36: grid.sync_period has 199999 values"),
    "huge whole number": (
        replaced("num_steps = 200", f"num_steps = {10**30}"),
        "line 30: run.num_steps is a whole number of more than 18 digits",
    ),
    "huge step size": (
        replaced("step_size = [0.1,", f"step_size = [{10**400},"),
        "line 37: grid.step_size[0] is a whole number of more",
    ),
    "number beyond all": (
        replaced("num_steps = 200", f"num_steps = {'9' * 5000}"),
        "line 30: the text is not valid TOML (a number is too long",
    ),
    "deep nesting": (replaced("[1, 4]", "[" * 5000 + "]" * 5000), "line 35: the text is not valid TOML"),
    "huge environment": (
        replaced("states = 6", f"states = {10**12}"),
        "line 10: problem.states is 1000000000000, but must be at most",
    ),
    "empty axis": (replaced("[1, 4]", "[]"), "line 35: grid.num_agents is an empty list"),
    "value twice": (replaced("[1, 10]", "[1, 10, 1]"), "line 36: grid.sync_period[2] is 1, which the list has already"),
    "axis twice": (replaced("[1, 10]", "[1, 10]\nhorizon = 1\nalgorithm.horizon = 2"), "grid.horizon sets what another axis"),
    # Not TOML.
    "key twice": (replaced("states = 6", "states = 6\nstates = 7"), "line 11: column"),
    "table twice": (TABULAR + "\n[run]\n", "line 53: column"),
    "no value": (replaced("states = 6", "states ="), "line 10: column"),
    "no equals sign": (replaced("states = 6", "states 6"), "line 10: column"),
    "open text": (replaced('"garnet"', '"garnet'), "line 9: column"),
    "open list": (TABULAR.split("    0.05]")[0], "the text ends too early"),
    "prose": ("Dear fegsam, run something.\n", "line 1: column"),
    "zero byte": (replaced("seeds = 3", "seeds = \0"), "line 5: column"),
    # Combinations that cannot work.
    "noise for an MDP's algorithm": (
        replaced("linear_sa", "q_learning", NOISE),
        "line 11: algorithm.name is 'q_learning', which needs a [problem]",
    ),
    "MDP for noise's algorithm": (
        replaced("off_policy_tabular_td", "linear_sa").replace("horizon = 2\n", ""),
        "line 26: algorithm.name is 'linear_sa', which needs a [problem]",
    ),
    "policies for noise": (
        replaced("\n[algorithm]", '\n[problem.target]\nkind = "uniform"\n[algorithm]', NOISE),
        "line 10: problem.target is for MDPs",
    ),
    "chain that is not ergodic": (
        replaced("[[0.5, 0.5], [0.5, 0.5]]", "[[1, 0], [0, 1]]", NOISE),
        "line 4: problem cannot be used",
    ),
    "dependent features": (replaced("dim = 2", "dim = 7", LINEAR), "problem.features.dim is 7, but there are 5 states"),
    "heterogeneity of the uniform policy": (
        replaced('"random"\ncount = 4\nseed = 1\nheterogeneity = 0.5', '"uniform"').replace(
            "[1, 10]", "1\nheterogeneity = [0.5]"
        ),
        "grid.heterogeneity[0] is not a key that is known here (kind = 'uniform'): drop it",
    ),
    "kinds that do not match": (
        replaced("[algorithm]", "[problem.environments]\ncount = 3\nseed = 0\n\n[algorithm]"),
        "line 8: problem cannot be used (there are 3 MDPs and 4",
    ),
    "corollary without a norm": (
        replaced("[[[-1.0]], [[-1.0]]]", "[[[1.0]], [[1.0]]]", NOISE),
        "line 19: grid.sync_period[0] is 'corollary', which does not work here",
    ),
}


def one_sentence(error: SpecError) -> str:
    message = str(error)
    assert "\n" not in message
    assert message.endswith((".", "?"))
    assert not re.search(r"[.?] [A-Z]", message), message
    assert "pydantic" not in message
    assert "Input should" not in message
    assert len(message) < 400
    return message


class TestMalformedSpecs:
    @pytest.mark.parametrize(("text", "told"), MALFORMED.values(), ids=MALFORMED.keys())
    def test_one_sentence_names_the_key_or_the_line(self, text, told):
        with pytest.raises(SpecError) as caught:
            parse_study(text, "study.toml")
        message = one_sentence(caught.value)
        assert message.startswith("study.toml")
        assert told in message

    def test_no_truncation_is_taken_for_something_else(self):
        """Cut anywhere, a spec is refused in one sentence, or asks for cells of the same problem."""
        whole = {cell.problem.digest for cell in parse_study(TABULAR).cells()}
        for end in range(0, len(TABULAR), 7):
            try:
                study = parse_study(TABULAR[:end], "study.toml")
            except SpecError as error:
                one_sentence(error)
            else:
                assert end > TABULAR.index("step_size")
                assert {cell.problem.digest for cell in study.cells()} == whole

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (TABULAR.encode("utf-16"), "line 1: the text is not UTF-8"),
            (TABULAR.replace("Linear", "Línear").encode("latin-1"), "line 4: the text is not UTF-8"),
            (b"\x89PNG\r\n\x1a\n", "line 1: the text is not UTF-8"),
        ],
    )
    def test_wrong_encoding_is_told_with_its_line(self, tmp_path, content, told):
        path = tmp_path / "study.toml"
        path.write_bytes(content)
        with pytest.raises(SpecError, match=re.escape(told)) as caught:
            load_study(path)
        one_sentence(caught.value)

    def test_what_is_no_file_is_told(self, tmp_path):
        for path in (tmp_path, tmp_path / "none.toml", "a\0b"):
            with pytest.raises(SpecError, match="cannot be read") as caught:
                load_study(path)
            one_sentence(caught.value)

    @pytest.mark.parametrize(
        ("reference", "told"),
        [
            ("text.npz:a", "is not an .npz file"),
            ("good.npz:b", "that file holds a: name one of its arrays"),
            ("good.npz", "that file holds a: name one of its arrays"),
            ("words.npz:a", "does not hold finite numbers"),
            ("nan.npz:a", "does not hold finite numbers"),
            ("objects.npz:a", "cannot be read"),
            ("good.txt:a", "arrays are read from .npz and .npy files"),
            ("good", "must name a file and what is in it"),
        ],
    )
    def test_files_that_hold_no_numbers_are_refused(self, tmp_path, reference, told):
        (tmp_path / "text.npz").write_text("not an archive")
        (tmp_path / "good.txt").write_text("1")
        arrays = {"good": [1.0], "words": ["a"], "nan": [np.nan], "objects": np.array([{}], dtype=object)}
        for name, array in arrays.items():
            np.savez(tmp_path / f"{name}.npz", a=array)
        text = replaced("num_steps = 200", f'num_steps = 200\ninitial_params = "{reference}"')
        with pytest.raises(SpecError, match=re.escape(told)) as caught:
            parse_study(text, "study.toml", tmp_path)
        assert "study.toml, line 31: run.initial_params is" in one_sentence(caught.value)

    @pytest.mark.parametrize(
        ("code", "told"),
        [
            ("def rule(params, y, kind, out):\n    out[0] = 0\n", None),
            ("def other(params, y, kind, out):\n    out[0] = 0\n", "has no such function"),
            ("def rule(:\n", "SyntaxError"),
            ("raise OSError('no disk')\n", "OSError: no disk"),
            ("rule = 3\n", "give a function rule(params, y, kind, out)"),
        ],
    )
    def test_rules_that_cannot_be_used_are_refused(self, tmp_path, code, told):
        (tmp_path / "rule.py").write_text(code)
        algorithm = 'name = "stochastic_approximation"\nrule = "rule.py:rule"\ndim = 1'
        text = replaced('name = "linear_sa"', algorithm, NOISE).replace('["corollary", "advised", 1]', "1")
        text = text.replace('step_size = "corollary"', "step_size = 0.1")
        if told is None:
            assert parse_study(text, directory=tmp_path).cells()
            return
        with pytest.raises(SpecError, match=re.escape(told)) as caught:
            parse_study(text, "study.toml", tmp_path)
        one_sentence(caught.value)


class TestLines:
    def test_every_key_of_a_winding_text_is_found(self):
        text = "\n".join(
            [
                "a.b = 1  # comment",
                '"x.y" = """',
                "[not a table]",
                'z = 3"""',
                "[t]",
                "list = [ # [",
                '  "]",',
                "  [1, 2],",
                "]",
                '"k = v" = { inner = [1] }',
                "[[t.sub]]",
                "one = '''",
                "]'''",
                "[[t.sub]]",
                "two = 2",
                "[t.sub.deep]",
                "three.four = 3",
            ]
        )
        lines = key_lines(text)
        expected = {
            ("a",): 1, ("a", "b"): 1, ("x.y",): 2, ("t",): 5, ("t", "list"): 6, ("t", "k = v"): 10,
            ("t", "sub"): 11, ("t", "sub", 0): 11, ("t", "sub", 0, "one"): 12, ("t", "sub", 1): 14, ("t", "sub", 1, "two"): 15,
            ("t", "sub", 1, "deep"): 16, ("t", "sub", 1, "deep", "three"): 17, ("t", "sub", 1, "deep", "three", "four"): 17,
        }  # fmt: skip
        assert lines == expected
        assert line_of(lines, ("t", "list", 1, 0)) == 6
        assert line_of(lines, ("t", "absent")) == 5
        assert line_of(lines, ("absent",)) is None
