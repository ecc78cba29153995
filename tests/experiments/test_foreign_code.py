"""Results and studies from strangers: reading them runs no code of theirs, and asks for no more
than they hold."""

from __future__ import annotations

import io
import os
import pathlib
import re
import shutil
import sys
import zipfile

import numpy as np
import pytest
from scipy import sparse

from fegsam.cli import main
from fegsam.errors import ProblemError, SpecError
from fegsam.experiments.spec.foreign_code import TrustError
from fegsam.experiments.spec.study import EXAMPLE, load_study, parse_study
from fegsam.experiments.sweep.sweep import load_results, run_sweep
from fegsam.history import load_history
from fegsam.report.study import report_study

RULE = """
import pathlib
MARKER = pathlib.Path({marker!r})
MARKER.write_text("ran")
def rule(params, y, kind, out):
    out[0] = y - params[0]
"""

STUDY = """
[study]
name = "mine"
seeds = 2
engine = "reference"
[problem]
generator = "noise"
kernels = [[0.5, 0.5], [0.5, 0.5]]
[algorithm]
name = "stochastic_approximation"
rule = "rule.py:rule"
dim = 1
[run]
num_steps = 20
record = 5
fixed_point = [0.5]
[grid]
num_agents = [1, 2]
sync_period = 5
step_size = 0.1
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with a study whose rule leaves a mark when it is run, and with its results."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "study").mkdir()
    (folder / "study" / "rule.py").write_text(RULE.format(marker=str(folder / "marker")))
    (folder / "study" / "study.toml").write_text(STUDY)
    run_sweep(load_study(folder / "study" / "study.toml"), folder / "results", workers=1)
    assert (folder / "results" / "inputs" / "rule.py").exists()
    return folder


@pytest.fixture
def marker(made: pathlib.Path) -> pathlib.Path:
    (made / "marker").unlink(missing_ok=True)
    return made / "marker"


@pytest.fixture
def study(made: pathlib.Path) -> pathlib.Path:
    return made / "study" / "study.toml"


@pytest.fixture
def results(made: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """What a stranger sends: results with the study and its rule, made elsewhere."""
    return pathlib.Path(shutil.copytree(made / "results", tmp_path / "results"))


def test_reports_and_loaded_results_run_no_rule(results, marker, capsys) -> None:
    assert main(["report", str(results)]) == 0
    loaded = load_results(results)
    assert [history.settings.num_agents for _, history in loaded.select()] == [1, 2]
    assert not marker.exists()
    with pytest.raises(
        TrustError, match=r"would run .*inputs/rule\.py:rule.*--trust \(in Python: trust=True\)"
    ):
        loaded.cells[0].build()
    assert not marker.exists()
    load_results(results, trust=True).cells[0].build()
    assert marker.exists()


def test_wherever_in_the_results_the_rule_lies_it_is_not_run(results, marker, capsys) -> None:
    shutil.copy(results / "inputs" / "rule.py", results / "rule.py")
    assert main(["report", str(results)]) == 0
    assert main(["run", str(results / "study.toml"), "-o", str(results)]) == 2
    assert (
        "rule.py:rule, which the study names; if you trust its author, add --trust"
        in capsys.readouterr().err
    )
    assert not marker.exists()


def test_a_stored_copy_runs_where_it_is_trusted(results, marker, capsys) -> None:
    words = ["run", str(results / "study.toml"), "-o", str(results), "--workers", "1"]
    assert main(words) == 2
    assert not marker.exists()
    assert main([*words, "--trust"]) == 0
    assert marker.exists()


def test_planning_from_a_stored_copy_asks_first(results, marker, capsys) -> None:
    assert main(["plan", str(results / "study.toml"), "--accuracy", "0.1"]) == 2
    assert "--trust" in capsys.readouterr().err
    assert not marker.exists()


def test_checking_a_study_runs_nothing_and_says_what_it_left_out(study, marker, capsys) -> None:
    assert main(["run", str(study), "--check"]) == 0
    assert re.search(
        r"2 cells; not checked without --trust: .*rule\.py:rule", capsys.readouterr().out
    )
    assert not marker.exists()
    assert main(["run", str(study), "--check", "--trust"]) == 0
    assert capsys.readouterr().out.endswith(": 2 cells\n")
    assert marker.exists()


def test_ones_own_study_runs_as_ever(study, marker, tmp_path, capsys) -> None:
    assert main(["run", str(study), "-o", str(tmp_path / "out"), "--workers", "1"]) == 0
    assert marker.exists()


def test_a_bound_that_needs_the_rule_is_left_out_and_the_page_says_so(results, marker) -> None:
    text = (
        results / "study.toml"
    ).read_text() + '[[figures]]\nkind = "error_curves"\nbound = true\n'
    (results / "study.toml").write_text(text)
    page = report_study(results).read_text(encoding="utf-8")
    assert "left out where computing them would run" in page
    assert not marker.exists()


def test_a_schedule_that_needs_the_rule_asks_first(results, marker) -> None:
    text = (
        (results / "study.toml").read_text().replace("step_size = 0.1", 'step_size = "corollary"')
    )
    (results / "study.toml").write_text(text)
    with pytest.raises(TrustError, match=r"rule\.py:rule"):
        report_study(results)
    assert not marker.exists()


def gymnasium_study(env_id: str) -> str:
    lines = ['generator = "gymnasium"', f'env_id = "{env_id}"', "discount = 0.9"]
    problem = EXAMPLE[EXAMPLE.index("generator") : EXAMPLE.index("[problem.behavior]")]
    return EXAMPLE.replace(problem, "\n".join(lines) + "\n")


def test_a_module_named_in_an_environments_id_is_not_imported(
    tmp_path, marker, monkeypatch
) -> None:
    (tmp_path / "stranger_module.py").write_text(RULE.format(marker=str(marker)))
    monkeypatch.syspath_prepend(tmp_path)
    text = gymnasium_study("stranger_module:Env-v0")
    with pytest.raises(
        TrustError, match="would run the Gymnasium environment stranger_module:Env-v0"
    ):
        parse_study(text)
    parse_study(text, trust=False)
    assert not marker.exists()
    assert "stranger_module" not in sys.modules
    with pytest.raises(SpecError, match="Gymnasium cannot make"):
        parse_study(text, trust=True)
    assert marker.exists()


def test_an_environment_is_not_made_for_a_report(tmp_path, monkeypatch) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    text = gymnasium_study("FrozenLake-v1").replace("num_steps = 1000", "num_steps = 20")
    text = text.replace("seeds = 2", 'seeds = 2\nengine = "reference"')
    run_sweep(parse_study(text), tmp_path, workers=1)

    def make(*_: object, **__: object) -> None:
        raise AssertionError("made")

    monkeypatch.setattr(gymnasium, "make", make)
    assert "would run the Gymnasium environment FrozenLake-v1" in report_study(tmp_path).read_text(
        encoding="utf-8"
    )
    with pytest.raises(AssertionError, match="made"):
        report_study(tmp_path, trust=True)


def test_trust_does_not_change_what_a_cell_is() -> None:
    keys = {
        tuple(cell.key for cell in parse_study(EXAMPLE, trust=trust).cells())
        for trust in (None, True, False)
    }
    assert len(keys) == 1


# --- What a file may ask for ----------------------------------------------------------------------


def with_array(value: str) -> str:
    return EXAMPLE.replace("num_steps = 1000", f'num_steps = 1000\ninitial_params = "{value}"')


@pytest.mark.parametrize("what", ["pipe.npy", "pipe.npz:a"])
def test_a_pipe_is_not_waited_for(tmp_path, what) -> None:
    os.mkfifo(tmp_path / what.partition(":")[0])
    with pytest.raises(
        SpecError, match=r"run\.initial_params.*a pipe or a device, not a plain file"
    ):
        parse_study(with_array(what), directory=tmp_path)


def test_a_device_and_a_rule_in_a_pipe_are_not_read(tmp_path) -> None:
    with pytest.raises(SpecError, match="a pipe or a device"):
        load_study("/dev/zero")
    os.mkfifo(tmp_path / "rule.py")
    with pytest.raises(SpecError, match="a pipe or a device"):
        parse_study(STUDY, directory=tmp_path)
    os.symlink("/dev/zero", tmp_path / "endless.npy")
    with pytest.raises(SpecError, match="a pipe or a device"):
        parse_study(with_array("endless.npy"), directory=tmp_path)


@pytest.mark.parametrize("name", ["study.toml", "cell"])
def test_pipes_among_results_are_not_waited_for(results, name, capsys) -> None:
    path = results / name if name.endswith("toml") else next((results / "cells").glob("*.nc"))
    path.unlink()
    os.mkfifo(path)
    assert main(["report", str(results)]) == 2
    assert re.search("a pipe or a device|missing or damaged", capsys.readouterr().err)


def test_a_spec_of_gigabytes_is_not_read(tmp_path) -> None:
    with (tmp_path / "study.toml").open("wb") as file:
        file.truncate(10**10)  # takes no room on the disk
    with pytest.raises(SpecError, match="it has 10000000000 bytes"):
        load_study(tmp_path / "study.toml")


def head_of(shape: tuple[int, ...]) -> bytes:
    """An .npy file that claims to hold an array of this shape."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


@pytest.mark.parametrize("shape", [(10**12,), (10**6, 10**6), (2**40, 2**40)])
def test_arrays_of_terabytes_are_refused_before_they_are_made(tmp_path, shape, monkeypatch) -> None:
    (tmp_path / "a.npy").write_bytes(head_of(shape))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", head_of(shape))

    def loaded(*_: object, **__: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr(np.lib.format, "read_array", loaded)
    for value in ("a.npy", "a.npz:a"):
        with pytest.raises(
            SpecError, match=r"that array should have \d+ bytes, but the file holds 0"
        ):
            parse_study(with_array(value), directory=tmp_path)


def test_a_compressed_array_beyond_the_memory_is_refused(tmp_path, monkeypatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(10**6))
    monkeypatch.setattr("fegsam.experiments.spec.array_sizes.memory_limit", lambda: 10**6)
    with pytest.raises(SpecError, match=r"that array would take 8\.0e\+06 bytes of memory"):
        parse_study(with_array("a.npz:a"), directory=tmp_path)


def test_a_sparse_matrix_of_too_many_rows_is_refused(tmp_path) -> None:
    huge = sparse.coo_array((np.ones(1), ([0], [0])), shape=(10**15, 2))
    sparse.save_npz(tmp_path / "p.npz", huge)
    with pytest.raises(SpecError, match="that matrix would take"):
        parse_study(with_array("p.npz"), directory=tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            "states = 6\nactions = 2\nbranching = 3",
            "states = 10000000\nactions = 10000\nbranching = 10000",
            "problem",
        ),
        ("count = 4", "count = 1000000\nheterogeneity = 0.5", "behavior"),
        ("num_steps = 1000", "num_steps = 1000000000000000\nrecord = 1", "record"),
        (
            "[problem.behavior]",
            '[problem.features]\nkind = "random"\ndim = 10000\nseed = 1\n[problem.behavior]',
            "features",
        ),
    ],
)
def test_numbers_that_ask_for_terabytes_are_refused_before_anything_is_made(
    before, after, told, monkeypatch
) -> None:
    """Garnets, policies, records and features; the last two on a machine that has little memory."""
    monkeypatch.setattr("fegsam.experiments.spec.array_sizes.memory_limit", lambda: 10**5)
    assert before in EXAMPLE
    with pytest.raises(ProblemError, match=rf"{told}.*would take .* bytes of memory"):
        parse_study(EXAMPLE.replace(before, after))


def test_a_report_does_not_write_through_links_that_lead_out_of_the_results(
    results, tmp_path
) -> None:
    (tmp_path / "precious").write_text("mine")
    (results / "figures").mkdir()
    for name in ("figures/1-error-curves.svg", "report.html"):
        (results / name).symlink_to(tmp_path / "precious")
    report_study(results)
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (results / "figures" / "1-error-curves.svg").is_symlink()


def test_rule_is_stored_by_whatever_path_it_is_named(
    marker: pathlib.Path, results: pathlib.Path
) -> None:
    """A roundabout path must not make a stranger's rule trusted, even where the results have no
    cells."""
    shutil.rmtree(results / "cells")
    text = (
        (results / "study.toml")
        .read_text()
        .replace("rule.py:rule", "inputs/../inputs/rule.py:rule")
    )
    (results / "study.toml").write_text(text)
    with pytest.raises(TrustError, match=r"rule\.py"):
        load_study(results / "study.toml").cells()[0].build()
    assert not marker.exists()


def test_files_that_only_claim_to_be_large_are_refused(tmp_path: pathlib.Path) -> None:
    """A terabyte of nothing: a hole that takes no room on the disk and no memory here."""
    hole = tmp_path / "hole.nc"
    with hole.open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(ProblemError, match=r"hole\.nc.*1000000000000 bytes"):
        load_history(hole)
    os.link(hole, tmp_path / "rewards.npy")
    study = STUDY.replace("kernels = [[0.5, 0.5], [0.5, 0.5]]", 'kernels = "rewards.npy"')
    (tmp_path / "study.toml").write_text(study)
    with pytest.raises(SpecError, match=r"rewards\.npy.*bytes"):
        load_study(tmp_path / "study.toml")


def test_array_under_a_wrong_name_is_not_read_whole(tmp_path: pathlib.Path) -> None:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<f8", "fortran_order": False, "shape": (10**13,)}
    )
    (tmp_path / "kernels.npz").write_bytes(head.getvalue())
    study = STUDY.replace("kernels = [[0.5, 0.5], [0.5, 0.5]]", 'kernels = "kernels.npz:kernels"')
    (tmp_path / "study.toml").write_text(study)
    with pytest.raises(SpecError, match=r"not an \.npz file"):
        load_study(tmp_path / "study.toml")
