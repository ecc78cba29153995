"""Methods, schedules, tails and rounds of different lengths in a study: what the keys stand for,
what wrong ones are told, and that a sweep over them is stored, resumed and drawn."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import fegsam as fg
from fegsam.errors import SpecError
from fegsam.experiments.spec.study import EXAMPLE, parse_study
from fegsam.experiments.sweep.sweep import load_results, run_sweep
from fegsam.methods import schedules
from helpers.malformed_specs import NOISE, one_sentence

GRID = "num_agents = [1, 4]"
STUDY = EXAMPLE.replace('name = "speed-up"', 'name = "speed-up"\nengine = "reference"')
SMALL = STUDY.replace("num_steps = 1000", "num_steps = 60\nrecord = 20").replace(
    "step_size = [0.1, 0.05]", "step_size = 0.1"
)


def with_tables(tables: str, run: str = "", grid: str = GRID) -> str:
    return EXAMPLE.replace("[run]\n", f"{tables}\n[run]\n{run}\n").replace(GRID, grid)


def method_of(table: str) -> fg.Method | None:
    text = with_tables(f"[methods.mine]\n{table}", 'method = "mine"', "num_agents = 4")
    return parse_study(text).cells()[0].method


class TestMeaning:
    @pytest.mark.parametrize(
        ("table", "method"),
        [
            ('average = "by_visits"', fg.Method(average=fg.ByVisits())),
            (
                "average = {weights = [0.1, 0.2, 0.3, 0.4]}",
                fg.Method(average=fg.Mean((0.1, 0.2, 0.3, 0.4))),
            ),
            (
                'correction = {of = "kind", source = "first_step"}',
                fg.Method(correction=fg.ControlVariates("kind", "first_step")),
            ),
            (
                "server = {step = 2, momentum = 0.5, nesterov = true}",
                fg.Method(server=fg.Server(2.0, 0.5, True)),
            ),
            (
                'participation = {agents = 3, others = "go_on", divide_by = "all"}',
                fg.Method(participation=fg.Participation(3, None, "go_on", "all")),
            ),
            (
                "participation.probability = 0.5",
                fg.Method(participation=fg.Participation(probability=0.5)),
            ),
            (
                "rounding = {step = 0.01, dither = true}",
                fg.Method(rounding=fg.Rounding(0.01, True)),
            ),
            ("rounding = {cells = 8}", fg.Method(rounding=fg.SomeCells(8))),
            (
                "local_steps = {by_kind = [5, 10, 1, 2], normalised = false}",
                fg.Method(local_steps=fg.LocalSteps((5, 10, 1, 2), False)),
            ),
        ],
    )
    def test_a_table_is_the_method_of_the_library(self, table, method):
        assert method_of(table) == method

    @pytest.mark.parametrize("table", ["", "server = {step = 1}", "average = {}"])
    def test_a_table_may_be_plain_averaging(self, table):
        assert method_of(table) is None

    def test_published_names_need_no_table(self):
        names = ["plain", "scafflsa", "fedhsa", "fedavgm", "importance_averaging"]
        cells = parse_study(EXAMPLE.replace(GRID, f"num_agents = 4\nmethod = {names}")).cells()
        assert [cell.method for cell in cells[::2]] == [
            None,
            fg.methods.scafflsa(),
            fg.methods.fedhsa(),
            fg.methods.fedavgm(),
            fg.methods.importance_averaging(),
        ]
        assert [cell.axes["method"] for cell in cells[::2]] == names
        assert [cell.communications for cell in cells[::2]] == [100, 100, 200, 100, 100]

    def test_a_table_with_a_published_name_changes_that_method(self):
        grid = 'num_agents = 4\n"methods.fedavgm.server.step" = [0.5, 1]\nmethod = "fedavgm"'
        cells = parse_study(EXAMPLE.replace(GRID, grid)).cells()
        assert [cell.method for cell in cells[::2]] == [
            fg.methods.fedavgm(0.9, step=step) for step in (0.5, 1.0)
        ]
        nova = with_tables(
            "[methods.fednova.local_steps]\nby_kind = [1, 2, 3, 4]", 'method = "fednova"'
        )
        assert parse_study(nova).cells()[0].method == fg.methods.fednova((1, 2, 3, 4))

    @pytest.mark.parametrize(
        ("written", "schedule"),
        [
            ("{polynomial = {power = 0.75, offset = 2}}", schedules.Polynomial(0.75, 2.0)),
            ("{steps = {times = [10, 20], values = [0.5, 0.1]}}", "steps"),
            ("{rescaled = {}}", schedules.Rescaled()),
            ('"rescaled"', schedules.Rescaled()),
        ],
    )
    def test_schedules(self, written, schedule):
        expected = schedules.Steps((10, 20), (0.5, 0.1)) if schedule == "steps" else schedule
        for text in (
            with_tables("", f"schedule = {written}"),
            EXAMPLE.replace(GRID, f"{GRID}\nschedule = {written}"),
            EXAMPLE.replace(GRID, f"{GRID}\nrun.schedule = [{written}]"),
        ):
            assert parse_study(text).cells()[0].schedule == expected

    @pytest.mark.parametrize(
        ("written", "tail"),
        [("0.5", fg.Tail(0.5)), ('{fraction = 1, over = "syncs"}', fg.Tail(1.0, "syncs"))],
    )
    def test_tails(self, written, tail):
        assert parse_study(with_tables("", f"tail = {written}")).cells()[0].tail == tail

    def test_rounds_of_different_lengths(self):
        growing = "{growing = {first = 1, factor = 2, most = 8}}"
        axis = EXAMPLE.replace("sync_period = 10", f"sync_period = [10, [1, 3], {growing}]")
        periods = [10, (1, 3), schedules.Growing(1, 2.0, 8)]
        cells = parse_study(axis).cells()
        assert [cell.sync_period for cell in cells[:6:2]] == periods
        # 1000 steps: 100 rounds of 10; 1 and 333 rounds of 3; 1, 2, 4 and 124 rounds of 8.
        assert [cell.communications for cell in cells[:6:2]] == [100, 334, 127]
        in_run = EXAMPLE.replace("sync_period = 10\n", "")
        for written, period in (("[1, 3]", (1, 3)), (growing, periods[2]), ("10", 10)):
            text = in_run.replace("[run]", f"[run]\nsync_period = {written}")
            assert {cell.sync_period for cell in parse_study(text).cells()} == {period}

    def test_an_override_keeps_them(self):
        text = with_tables(
            "[methods.mine]\nserver.momentum = 0.5",
            'schedule = "rescaled"\ntail = 0.5',
            f'{GRID}\nmethod = ["mine", "plain"]\n"methods.mine.server.momentum" = [0.1, 0.2]',
        ).replace(
            "sync_period = 10", "sync_period = [{growing = {first = 1, factor = 2, most = 8}}]"
        )
        study = parse_study(text)
        assert study.override({}).cells() == study.cells()
        assert len({cell.key for cell in study.cells()}) == 2 * 2 * 3


class TestKeys:
    def test_plain_cells_keep_their_keys(self):
        plain = {cell.key for cell in parse_study(EXAMPLE).cells()}
        for text in (
            with_tables("[methods.mine]\nserver.momentum = 0.5"),
            with_tables("[methods.mine]\nserver.step = 1", 'method = "mine"'),
            EXAMPLE.replace(GRID, f'{GRID}\nmethod = "plain"'),
        ):
            assert {cell.key for cell in parse_study(text).cells()} == plain

    def test_a_method_has_one_key_under_every_name(self):
        one = with_tables("[methods.mine]\ncorrection = {}", 'method = "mine"')
        other = with_tables("", 'method = "scafflsa"')
        keys = [[cell.key for cell in parse_study(text).cells()] for text in (one, other)]
        assert keys[0] == keys[1]

    def test_all_that_changes_the_data_changes_the_key(self):
        runs = [
            "",
            'method = "scafflsa"',
            'method = "fedhsa"',
            "tail = 0.5",
            'tail = {fraction = 0.5, over = "syncs"}',
            'schedule = "rescaled"',
            "schedule = {polynomial = {power = 0.5}}",
            "schedule = {polynomial = {power = 0.5, offset = 2}}",
        ]
        keys = {parse_study(with_tables("", run)).cells()[0].key for run in runs}
        assert len(keys) == len(runs)


MINE = 'method = "mine"'
WRONG = {
    "unknown key": ("[methods.mine]\nservr = {}", MINE, "line 22: methods.mine.servr is not a kn"),
    "unknown inner key": (
        "[methods.mine]\nserver = {stp = 1}",
        MINE,
        "line 22: methods.mine.server.stp is not a known key here: did you mean 'step'?",
    ),
    "wrong value": (
        "[methods.mine]\nserver.momentum = 1.5",
        MINE,
        "line 22: methods.mine.server.momentum is 1.5, but must be below 1",
    ),
    "wrong word": (
        "[methods.mine]\ncorrection.of = 'agents'",
        MINE,
        "line 22: methods.mine.correction.of is 'agents', which is not known: did you mean",
    ),
    "wrong average": (
        "[methods.mine]\naverage = 'visits'",
        MINE,
        "line 22: methods.mine.average is 'visits', but must be a table or 'by_visits'",
    ),
    "weights that do not sum to one": (
        "[methods.mine]\naverage.weights = [0.5, 0.25]",
        MINE,
        "line 22: methods.mine.average cannot be used (weights sum to 0.75",
    ),
    "two kinds of rounding": (
        "[methods.mine]\nrounding = {step = 0.1, cells = 2}",
        MINE,
        "line 22: methods.mine.rounding cannot be used (give either step",
    ),
    "parts that exclude each other": (
        "[methods.mine]\ncorrection = {}\nrounding = {cells = 2}",
        MINE,
        "line 21: methods.mine cannot be used (A method has either correction or rounding",
    ),
    "a method that is no table": ("[methods]\nmine = 3", MINE, "line 22: methods.mine is 3, but m"),
    "a name with a dot": ('[methods."a.b"]', "", "methods.a.b cannot be used, since a name"),
    "a table for plain averaging": ("[methods.plain]", "", "methods.plain is the name of plain"),
    "unknown method": (
        "[methods.mine]",
        'method = "mind"',
        "line 23: run.method is 'mind', which is not known: did you mean 'mine'?",
    ),
    "fednova without steps": (
        "",
        'method = "fednova"',
        "line 23: run.method is 'fednova', which needs local steps: add [methods.fednova]",
    ),
    "too many agents": (
        "[methods.mine]\nparticipation.agents = 3",
        MINE,
        "run.method does not fit num_agents = 1 and this problem (participation asks for 3 agents",
    ),
    "weights of other agents": (
        "[methods.mine]\naverage.weights = [0.5, 0.5]",
        MINE,
        "run.method does not fit num_agents = 1 and this problem (There are 2 weights, but 1 ag",
    ),
    "two schedules": (
        "",
        "schedule = {rescaled = {}, polynomial = {power = 1}}",
        "line 23: run.schedule cannot be used (give one of polynomial, steps and rescaled)",
    ),
    "wrong power": (
        "",
        "schedule = {polynomial = {power = -1}}",
        "line 23: run.schedule.polynomial.power is -1, but must be above 0",
    ),
    "times that fall": (
        "",
        "schedule = {steps = {times = [20, 10], values = [0.5, 0.1]}}",
        "line 23: run.schedule.steps cannot be used (Steps has the times (20, 10)",
    ),
    "tail above one": ("", "tail = 1.5", "line 23: run.tail.fraction is 1.5, but must be at most"),
    "tail of a shorter run": (
        "",
        "tail = 0.5\nstop_at_output = true",
        "line 23: run.tail needs the run to its end",
    ),
    "tail as text": ("", "tail = 'half'", "line 23: run.tail is 'half', but must be a table"),
    "a round of no steps": ("", "sync_period = [1, 0]", "line 23: run.sync_period has 0 at [1]"),
    "rounds that do not grow": (
        "",
        "sync_period = {growing = {first = 5, factor = 2, most = 3}}",
        "line 23: run.sync_period.growing cannot be used (most is 3",
    ),
}


class TestMistakes:
    @pytest.mark.parametrize(("tables", "run", "told"), WRONG.values(), ids=WRONG.keys())
    def test_one_sentence_names_the_key_and_the_line(self, tables, run, told):
        text = with_tables(tables, run)
        text = text.replace("sync_period = 10\n", "") if run.startswith("sync") else text
        with pytest.raises(SpecError) as caught:
            parse_study(text, "study.toml")
        assert told in one_sentence(str(caught.value))

    @pytest.mark.parametrize(
        ("tables", "grid", "told"),
        [
            ("", 'method = ["plain", "scaflsa"]', "grid.method[1] is 'scaflsa', which is not kno"),
            (
                "",
                'method = "scafflsa"\n"methods.mine.server.momentum" = [0.1, 0.2]',
                "sets a key of the method 'mine', which no cell of this grid uses",
            ),
            (
                "",
                'method = "mine"\n"methods.mine.server.momentum" = [0.1, 2]',
                "methods.mine.server.momentum[1] is 2, but must be below 1",
            ),
            (
                '[methods.mine]\naverage = "by_visits"',
                'method = "mine"\nmethods.mine.average.weights = [[0.5, 0.5]]',
                "sets a key of methods.mine.average, which is 'by_visits' and not a table",
            ),
            ("", "run.sync_period = 3", "sets the same key as another axis of this grid"),
            ("", "sync_periods = 3", "grid.sync_periods is not a known axis"),
        ],
    )
    def test_axes_too(self, tables, grid, told):
        with pytest.raises(SpecError) as caught:
            parse_study(with_tables(tables, "", f"{GRID}\n{grid}"), "study.toml")
        assert told in one_sentence(str(caught.value))

    @pytest.mark.parametrize(
        ("run", "axis"),
        [
            ('method = "half"', 'method = ["plain", "scafflsa"]'),
            ("sync_period = 7", ""),
            ('sampling = "iid"', 'sampling = "markov"'),
            ("tail = 0.5", "run.tail = [0.2, 0.4]"),
        ],
    )
    def test_a_key_of_run_that_an_axis_replaces_in_every_cell(self, run, axis):
        text = with_tables("", run, f"{GRID}\n{axis}")
        with pytest.raises(SpecError) as caught:
            parse_study(text, "study.toml")
        told, (name, _, value) = one_sentence(str(caught.value)), run.partition(" = ")
        line = text.splitlines().index(run) + 1
        assert f"line {line}: run.{name} is {value}".replace('"', "'") in told
        assert "replaces it in every cell: remove one of them" in told

    def test_a_key_of_run_holds_in_a_grid_without_its_axis(self):
        text = with_tables("", 'method = "scafflsa"', f'{GRID}\nmethod = "plain"')
        other = "[[grid]]\nnum_agents = 4\nsync_period = 10\nstep_size = 0.1\n"
        study = parse_study(f"{text.replace('[grid]', '[[grid]]')}\n{other}")
        assert {cell.method for cell in study.cells()[:-1]} == {None}
        assert study.cells()[-1].method == fg.methods.scafflsa()

    def test_a_method_that_the_algorithm_does_not_allow(self):
        text = EXAMPLE.replace('name = "q_learning"', 'name = "on_policy_td"').replace(
            GRID, f'{GRID}\nmethod = ["plain", "importance_averaging"]'
        )
        tables = '[problem.target]\nkind = "uniform"\n[problem.features]\nkind = "one_hot"\n'
        with pytest.raises(
            SpecError, match=r"line 30: grid.method does not fit num_agents = 1 .*cell"
        ):
            parse_study(text.replace("[algorithm]", f"{tables}[algorithm]"))

    def test_a_floor_over_methods(self):
        text = EXAMPLE.replace(GRID, f'{GRID}\nmethod = ["plain", "scafflsa"]')
        figure = '[[figures]]\nkind = "floor"\nby = "method"\n'
        with pytest.raises(SpecError, match=r"figures\[0\].by is 'method', which has the value"):
            parse_study(text + figure)


class TestSweeps:
    AXIS = SMALL.replace("[run]", "[methods.some]\nparticipation.agents = 2\n\n[run]").replace(
        GRID, 'num_agents = 4\nmethod = ["plain", "scafflsa", "some"]'
    )

    def test_each_cell_is_the_run_of_its_method(self, tmp_path, assert_same_bits):
        text = self.AXIS.replace("[run]", "[run]\ntail = 0.5\nschedule = {polynomial.power = 0.5}")
        study = parse_study(text.replace("sync_period = 10", "sync_period = [[5, 10]]"))
        mdp = fg.examples.garnet(6, 2, 3, 0.7, 0)
        federation = fg.Federation(mdp, fg.policies.random(6, 2, 4, 1), num_agents=4)
        methods = {
            "plain": None,
            "scafflsa": fg.methods.scafflsa(),
            "some": fg.Method(participation=fg.Participation(agents=2)),
        }
        run_sweep(study, tmp_path, workers=1)
        for name, method in methods.items():
            [(_, stored)] = load_results(tmp_path).select(method=name)
            alone = fg.run(
                federation,
                fg.QLearning(),
                step_size=0.1,
                sync_period=(5, 10),
                num_steps=60,
                method=method,
                schedule=schedules.Polynomial(0.5),
                tail=0.5,
                seeds=range(2),
                record=20,
                engine="reference",
            )
            assert_same_bits(stored, alone)

    def test_it_resumes_and_is_drawn(self, tmp_path):
        pytest.importorskip("plotly")
        from fegsam.report.study import report_study

        figures = "".join(
            f'[[figures]]\nkind = "{kind}"\n' for kind in ("error_curves", "tradeoff")
        )
        text = self.AXIS.replace("sync_period = 10", "sync_period = [[5, 10], 10]") + figures
        study = parse_study(text)
        run_sweep(study, tmp_path, workers=1)
        stored = sorted((tmp_path / "cells").iterdir())
        assert len(stored) == 6
        assert sum("method=scafflsa" in path.name for path in stored) == 2
        kept = {path: path.stat().st_mtime_ns for path in stored[1:]}
        content = stored[0].read_bytes()
        stored[0].unlink()
        run_sweep(study, tmp_path, workers=1)
        assert stored[0].read_bytes() == content
        assert kept == {path: path.stat().st_mtime_ns for path in stored[1:]}
        page = report_study(tmp_path).read_text(encoding="utf-8")
        for name in ("plain", "scafflsa", "some"):
            assert f'"name":"{name}, ' in page


def test_exact_curves_are_those_of_the_method(tmp_path):
    pytest.importorskip("plotly")
    from fegsam.report.exact_answers import ExactAnswers

    tables = '[methods.mine]\ncorrection.of = "kind"\n\n[run]\ntail = 0.5\n'
    text = NOISE.replace("[run]\n", tables).replace("num_steps = 1000", "num_steps = 40")
    text = text.replace('sync_period = ["corollary", "advised", 1]', "sync_period = [[2, 4]]")
    text = text.replace('"corollary"', "0.1").replace(
        "[grid]", '[grid]\nmethod = ["plain", "mine"]'
    )
    text = text.replace('name = "coin"', 'name = "coin"\nseeds = 2\nengine = "reference"')
    results = run_sweep(parse_study(text), tmp_path, workers=1)
    exact = ExactAnswers(results)
    for cell in results.cells[::2]:
        problem, algorithm = cell.build()
        expected = fg.exact.moments(
            problem,
            algorithm,
            step_size=0.1,
            sync_period=(2, 4),
            times=results.history(cell).data.time.values,
            method=cell.method,
            initial_params=[2.0],
        )
        np.testing.assert_allclose(exact.curve(cell), expected.mse, rtol=1e-9)
        assert (exact.bound(cell) is None) == (not cell.is_plain)


def test_a_federation_gets_no_new_arguments_from_a_plain_cell():
    cell = parse_study(EXAMPLE).cells()[0]
    assert not {"method", "schedule", "tail"} & cell.arguments(12).keys()
    other = dataclasses.replace(cell, method=fg.methods.scafflsa())
    assert other.arguments(12)["method"] == fg.methods.scafflsa()
