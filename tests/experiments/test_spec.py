"""Studies as TOML: what a spec can say, and what a malformed one is told."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from scipy import sparse

import fegsam as fg
from fegsam.errors import SpecError
from fegsam.experiments.spec.study import load_study, parse_study
from fegsam.experiments.spec.toml_lines import key_lines, line_of
from helpers.malformed_specs import (
    LINEAR,
    MALFORMED,
    NOISE,
    TABULAR,
    WRONG_BYTES,
    one_sentence,
    replaced,
)


class TestWhatASpecSays:
    def test_cells_are_the_product_of_the_axes_in_their_order(self):
        cells = parse_study(TABULAR).cells()
        assert [(c.num_agents, c.sync_period, c.step_size) for c in cells] == [
            (n, k, a) for n in (1, 4) for k in (1, 10) for a in (0.1, 0.05)
        ]
        assert cells[1].axes == {"num_agents": 1, "sync_period": 1, "step_size": 0.05}

    def test_everything_else_is_as_written(self):
        study = parse_study(TABULAR, "speed.toml")
        assert (study.name, study.title, study.seeds, study.engine) == (
            "speed-up",
            "Linear speed-up",
            (0, 1, 2),
            "cpu",
        )
        assert [(f.kind, f.by, f.exact) for f in study.figures] == [
            ("error_curves", "num_agents", True),
            ("speed_up", "num_agents", True),
        ]
        assert study.claim == {"slope_low": -1.2, "slope_high": -0.8}
        assert study.text == TABULAR
        assert study.axes == {
            "num_agents": (1, 4),
            "sync_period": (1, 10),
            "step_size": (0.1, 0.05),
        }

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
            expected = {
                "corollary": schedule.sync_period,
                "advised": schedule.advised_sync_period,
                1: 1,
            }[asked]
            assert (cell.step_size, cell.sync_period) == (schedule.step_size, expected)
            assert cell.axes["step_size"] == "corollary"

    def test_several_grids_follow_each_other(self):
        grids = "[[grid]]\nnum_agents = 1\nsync_period = 1\nstep_size = 0.1\n\n"
        grids += "[[grid]]\nnum_agents = [2, 4]\nsync_period = 10\nstep_size = 0.2\n\n"
        head, tail = TABULAR.split("[grid]")
        cells = parse_study(head + grids + tail[tail.index("[[figures]]") :]).cells()
        assert [(c.num_agents, c.sync_period, c.step_size) for c in cells] == [
            (1, 1, 0.1),
            (2, 10, 0.2),
            (4, 10, 0.2),
        ]

    def test_values_can_be_overridden_and_the_text_says_so(self):
        values = {
            "study.engine": "reference",
            "study.seeds": [7],
            "grid.num_agents": [2],
            "run.record": 50,
        }
        study = parse_study(TABULAR).override({**values, "study.title": 'a "b"\n\\ é \x7f'})
        assert {(c.engine, c.seeds, c.num_agents, c.record_times) for c in study.cells()} == {
            ("reference", (7,), 2, 50)
        }
        again = parse_study(study.text)
        assert again.cells() == study.cells()
        assert (again.title, again.figures, again.claim) == (
            'a "b"\n\\ é \x7f',
            study.figures,
            study.claim,
        )

    @pytest.mark.parametrize("text", [TABULAR, LINEAR, NOISE])
    def test_nothing_overridden_changes_nothing(self, text):
        study = parse_study(text)
        assert study.override({}).cells() == study.cells()

    def test_an_override_is_checked_too(self):
        with pytest.raises(SpecError, match="num_agents is -1"):
            parse_study(TABULAR).override({"grid.num_agents": -1})
        with pytest.raises(SpecError, match="cannot be set"):
            parse_study(TABULAR).override({"figures.kind": "floor"})
        with pytest.raises(SpecError, match=r"num_agents cannot be None: give what TOML can hold"):
            parse_study(TABULAR).override({"grid.num_agents": None})

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
            (
                'generator = "random_walk"\nstates = 5\ndiscount = 0.8',
                lambda: fg.examples.random_walk(5, 0.8),
            ),
            ('generator = "river_swim"', lambda: fg.examples.river_swim()),
            (
                'generator = "grid_world"\nrows = 2\ncolumns = 3\ndiscount = 0.9\nslip = 0.2',
                lambda: fg.examples.grid_world(2, 3, 0.9, 0.2),
            ),
            ('generator = "two_state"', lambda: fg.examples.two_state()),
            (
                'generator = "two_state"\nto_second = [[0.5, 0.2], [0.1, 1]]\nrewards = [[1, 2], '
                "[3, 4]]\ndiscount = 0.3",
                lambda: fg.examples.two_state([[0.5, 0.2], [0.1, 1]], [[1, 2], [3, 4]], 0.3),
            ),
            (
                'generator = "bandit"\nrewards = [0, 1]\ndiscount = 0.5',
                lambda: fg.examples.bandit([0, 1], 0.5),
            ),
            (
                'generator = "gymnasium"\nenv_id = "FrozenLake-v1"\ndiscount = 0.9\noptions = { '
                "is_slippery = false }",
                lambda: fg.examples.from_gymnasium("FrozenLake-v1", 0.9, is_slippery=False),
            ),
            (
                'generator = "gymnasium"\nenv_id = "FrozenLake-v1"\ndiscount = 0.9\nends = "stop"',
                lambda: fg.examples.from_gymnasium("FrozenLake-v1", 0.9, ends="stop"),
            ),
            (
                'generator = "arrays"\ntransitions = [[[0.5, 0.5]], [[1, 0]]]\nrewards = [[1], '
                "[2]]\ndiscount = 0.5",
                lambda: fg.MDP([[[0.5, 0.5]], [[1, 0]]], [[1], [2]], 0.5),
            ),
            (
                'generator = "arrays"\ntransitions = [[[0.5, 0.5]], [[1, 0]]]\nrewards = [[1], '
                "[2]]\ndiscount = [0.5, 0]",
                lambda: fg.MDP([[[0.5, 0.5]], [[1, 0]]], [[1], [2]], [0.5, 0]),
            ),
        ],
    )
    def test_generators_build_what_the_library_does(self, table, mdp):
        head, tail = TABULAR.split("[problem]\n")
        cell = parse_study(head + "[problem]\n" + table + "\n" + tail[tail.index("\n[") :]).cells()[
            -1
        ]
        problem, algorithm = cell.build()
        expected = mdp()
        uniform = fg.policies.uniform(expected.num_states, expected.num_actions)
        drawn = fg.policies.random(expected.num_states, expected.num_actions, 4, 1)
        same = fg.Federation(
            expected, 0.5 * uniform + 0.5 * drawn, num_agents=4, target_policy=uniform
        )
        assert problem.fingerprint() == same.fingerprint()
        assert algorithm == fg.OffPolicyTabularTD(horizon=2)

    def test_what_is_known_to_an_agent_does_not_hang_on_how_many_there_are(self):
        few, many = (
            parse_study(replaced("num_agents = 3", f"num_agents = {n}", LINEAR)).cells()[-1]
            for n in (3, 7)
        )
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
            (
                'kind = "random"\ncount = 2\nseed = 0',
                lambda p: p.behavior_policies.shape == (2, 6, 3),
            ),
            (
                'kind = "epsilon_greedy"\nepsilon = [0.5, 1.0]',
                lambda p: np.allclose(p.behavior_policies.min((1, 2)), [1 / 6, 1 / 3]),
            ),
            (
                f'kind = "epsilon_greedy"\nepsilon = 0.3\nq = {[*[[1, 0, 0]] * 5, [0, 0, 1]]}',
                lambda p: np.allclose(p.behavior_policies[0, 5], [0.1, 0.1, 0.8]),
            ),
            (
                f'kind = "table"\npolicies = {[[0.2, 0.3, 0.5]] * 6}',
                lambda p: p.behavior_policies.shape == (1, 6, 3),
            ),
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
        arrays = {
            "transitions": mdp.transitions.toarray().reshape(4, 2, 4),
            "rewards": mdp.rewards,
            "discount": 0.6,
        }
        arrays |= {
            "behavior_policies": policies,
            "target_policy": policies[0],
            "features": np.eye(4)[:, :2],
        }
        np.savez(tmp_path / "problem.npz", **arrays, initial_distribution=start)
        head, tail = TABULAR.split("[problem]\n")
        text = (
            head
            + '[problem]\ngenerator = "file"\npath = "problem.npz"\n\n'
            + tail[tail.index("[algorithm]") :]
        )
        (tmp_path / "study.toml").write_text(text)
        cell = load_study(tmp_path / "study.toml").cells()[-1]
        expected = fg.Federation(
            mdp,
            policies,
            num_agents=4,
            target_policy=policies[0],
            features=np.eye(4)[:, :2],
            initial_distribution=start,
        )
        assert cell.build()[0].fingerprint() == expected.fingerprint()

    def test_sparse_transitions_and_several_environments_come_from_files(self, tmp_path):
        mdp = fg.examples.garnet(6, 3, 4, 0.7, 0)
        sparse.save_npz(tmp_path / "moves.npz", mdp.transitions)
        np.save(tmp_path / "paid.npy", mdp.rewards)
        head, tail = TABULAR.split("[problem]\n")
        table = (
            '[problem]\ngenerator = "arrays"\ntransitions = "moves.npz"\nrewards = "paid.npy"\n'
            "discount = 0.7\n"
        )
        problem, _ = (
            parse_study(head + table + tail[tail.index("\n[") :], directory=tmp_path)
            .cells()[0]
            .build()
        )
        assert problem.fingerprint() == parse_study(TABULAR).cells()[0].build()[0].fingerprint()
        dense = mdp.transitions.toarray().reshape(6, 3, 6)
        np.savez(
            tmp_path / "kinds.npz",
            transitions=[dense] * 4,
            rewards=[mdp.rewards + k for k in range(4)],
            discount=[0.7, 0.7, 0.7, 0.7, 0.7, 0.0],
        )
        table = '[problem]\ngenerator = "file"\npath = "kinds.npz"\n'
        problem, _ = (
            parse_study(head + table + tail[tail.index("\n[") :], directory=tmp_path)
            .cells()[0]
            .build()
        )
        assert [
            mdp.rewards[0, 0] - problem.mdps[0].rewards[0, 0] for mdp in problem.mdps
        ] == pytest.approx([0, 1, 2, 3])
        assert problem.discounts.tolist() == [[[[0.7, 0.7, 0.7, 0.7, 0.7, 0.0]]]]

    def test_noise_comes_from_a_file_too(self, tmp_path):
        arrays = {
            "kernels": [[0.5, 0.5], [0.5, 0.5]],
            "matrices": [[[-1.0]], [[-1.0]]],
            "offsets": [[0.0], [1.0]],
        }
        np.savez(tmp_path / "noise.npz", **arrays)
        head, tail = NOISE.split("kernels")
        text = head + 'path = "noise.npz"\n' + tail[tail.index("\n[algorithm]") :]
        (one, algorithm), (other, inline) = (
            s.cells()[0].build()
            for s in (parse_study(text, directory=tmp_path), parse_study(NOISE))
        )
        assert one.fingerprint() == other.fingerprint()
        np.testing.assert_array_equal(algorithm.matrices, inline.matrices)

    def test_a_rule_of_ones_own_comes_from_a_python_file(self, tmp_path):
        (tmp_path / "rule.py").write_text(
            "def rule(params, y, kind, out):\n    out[0] = y - params[0]\n"
        )
        algorithm = (
            'name = "stochastic_approximation"\nrule = "rule.py:rule"\ndim = 1\n'
            "assumptions = { gamma_c = 0.0 }"
        )
        text = replaced('name = "linear_sa"', algorithm, NOISE).replace(
            '["corollary", "advised", 1]', "1"
        )
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


class TestMalformedSpecs:
    @pytest.mark.parametrize(("text", "told"), MALFORMED.values(), ids=MALFORMED.keys())
    def test_one_sentence_names_the_key_or_the_line(self, text, told):
        with pytest.raises(SpecError) as caught:
            parse_study(text, "study.toml")
        message = one_sentence(str(caught.value))
        assert message.startswith("study.toml")
        assert told in message

    def test_no_truncation_is_taken_for_something_else(self):
        """Cut anywhere, a spec is refused in one sentence, or asks for cells of the same
        problem."""
        whole = {cell.problem.digest for cell in parse_study(TABULAR).cells()}
        for end in range(0, len(TABULAR), 7):
            try:
                study = parse_study(TABULAR[:end], "study.toml")
            except SpecError as error:
                one_sentence(str(error))
            else:
                assert end > TABULAR.index("step_size")
                assert {cell.problem.digest for cell in study.cells()} == whole

    @pytest.mark.parametrize(("content", "told"), WRONG_BYTES.values(), ids=WRONG_BYTES.keys())
    def test_wrong_encoding_is_told_with_its_line(self, tmp_path, content, told):
        path = tmp_path / "study.toml"
        path.write_bytes(content)
        with pytest.raises(SpecError, match=re.escape(told)) as caught:
            load_study(path)
        one_sentence(str(caught.value))

    def test_what_is_no_file_is_told(self, tmp_path):
        for path in (tmp_path, tmp_path / "none.toml", "a\0b"):
            with pytest.raises(SpecError, match="cannot be read") as caught:
                load_study(path)
            one_sentence(str(caught.value))

    @pytest.mark.parametrize(
        ("reference", "told"),
        [
            ("text.npz:a", "is not an .npz file"),
            ("good.npz:b", "that file holds a: name one of its arrays"),
            ("good.npz", "that file holds a: name one of its arrays"),
            ("words.npz:a", "are not finite numbers"),
            ("nan.npz:a", "are not finite numbers"),
            ("objects.npz:a", "cannot be read"),
            ("good.txt:a", "arrays are read from .npz and .npy files"),
            ("good", "must name a file and an entry of it"),
        ],
    )
    def test_files_that_hold_no_numbers_are_refused(self, tmp_path, reference, told):
        (tmp_path / "text.npz").write_text("not an archive")
        (tmp_path / "good.txt").write_text("1")
        arrays = {
            "good": [1.0],
            "words": ["a"],
            "nan": [np.nan],
            "objects": np.array([{}], dtype=object),
        }
        for name, array in arrays.items():
            np.savez(tmp_path / f"{name}.npz", a=array)
        text = replaced("num_steps = 200", f'num_steps = 200\ninitial_params = "{reference}"')
        with pytest.raises(SpecError, match=re.escape(told)) as caught:
            parse_study(text, "study.toml", tmp_path)
        assert "study.toml, line 31: run.initial_params is" in one_sentence(str(caught.value))

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
        text = replaced('name = "linear_sa"', algorithm, NOISE).replace(
            '["corollary", "advised", 1]', "1"
        )
        text = text.replace('step_size = "corollary"', "step_size = 0.1")
        if told is None:
            assert parse_study(text, directory=tmp_path).cells()
            return
        with pytest.raises(SpecError, match=re.escape(told)) as caught:
            parse_study(text, "study.toml", tmp_path)
        one_sentence(str(caught.value))


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
            ("a",): 1,
            ("a", "b"): 1,
            ("x.y",): 2,
            ("t",): 5,
            ("t", "list"): 6,
            ("t", "k = v"): 10,
            ("t", "sub"): 11,
            ("t", "sub", 0): 11,
            ("t", "sub", 0, "one"): 12,
            ("t", "sub", 1): 14,
            ("t", "sub", 1, "two"): 15,
            ("t", "sub", 1, "deep"): 16,
            ("t", "sub", 1, "deep", "three"): 17,
            ("t", "sub", 1, "deep", "three", "four"): 17,
        }
        assert lines == expected
        assert line_of(lines, ("t", "list", 1, 0)) == 6
        assert line_of(lines, ("t", "absent")) == 5
        assert line_of(lines, ("absent",)) is None
