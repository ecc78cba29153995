"""The command line: what it prints, what it writes, and how it says no."""

from __future__ import annotations

import contextlib
import ctypes
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import warnings

import pytest

from fegsam import doctor
from fegsam.cli import help_pages, main
from helpers.malformed_specs import MALFORMED, TABULAR, WRONG_BYTES, one_sentence
from helpers.processes import HANG

STUDY = """
[study]
name = "small"
seeds = 6
[problem]
generator = "garnet"
states = 4
actions = 2
branching = 2
discount = 0.8
seed = 0
[problem.target]
kind = "uniform"
[algorithm]
name = "off_policy_tabular_td"
[run]
num_steps = 200
record = 20
[grid]
num_agents = [1, 4]
sync_period = [5, 10]
step_size = 0.1
[[figures]]
kind = "error_curves"
[[figures]]
kind = "speed_up"
[[figures]]
kind = "tradeoff"
[[figures]]
kind = "floor"
by = "sync_period"
"""


@pytest.fixture
def spec(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def test_check_says_how_many_cells_there_are_and_writes_nothing(spec, capsys) -> None:
    assert main(["run", str(spec), "--check"]) == 0
    assert "4 cells" in capsys.readouterr().out
    assert list(spec.parent.iterdir()) == [spec]


def test_a_new_study_is_valid_says_the_way_on_and_overwrites_nothing(tmp_path, capsys) -> None:
    assert main(["new", str(tmp_path / "mine")]) == 0
    said = capsys.readouterr().out
    path = tmp_path / "mine" / "study.toml"
    for command in re.findall(r"fegsam (run \S+ --check|run --keys)", said):
        with contextlib.suppress(SystemExit):
            assert main(command.split()) == 0
    assert "3 cells" in capsys.readouterr().out
    assert f"fegsam report {tmp_path / 'mine' / 'results'}" in said
    path.write_text("mine", encoding="utf-8")
    assert main(["new", str(tmp_path / "mine")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == "mine"


def test_keys_are_listed_in_80_columns_without_a_file(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--keys"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < 80
    for heading in ("[study]", "[problem.features]", "[grid]", "[[figures]]"):
        assert heading in lines
    assert any(re.match(r"  num_steps +whole number.*required", line) for line in lines)
    with pytest.raises(SystemExit) as ended:
        main(["run", "--keys", "gird"])
    assert ended.value.code == 2
    assert "There is no table 'gird'; give one of study," in capsys.readouterr().err


def test_a_study_is_run_stored_and_drawn(spec, tmp_path, capsys) -> None:
    output = tmp_path / "out"
    assert main(["run", str(spec), "-o", str(output), "--workers", "1"]) == 0
    assert len(list((output / "cells").glob("*.nc"))) == 4
    assert main(["report", str(output)]) == 0
    assert str(output / "report.html") in capsys.readouterr().out
    drawn = sorted(path.name for path in (output / "figures").iterdir())
    assert [name for name in drawn if name.endswith(".svg")] == [
        "1-error-curves.svg",
        "2-speed-up.svg",
        "3-tradeoff.svg",
        "4-floor.svg",
    ]
    assert "Speed-up" in (output / "report.html").read_text(encoding="utf-8")


BATTERY = {name: (text.encode(), told) for name, (text, told) in MALFORMED.items()} | WRONG_BYTES
BATTERY |= {
    f"cut after {end} characters": (TABULAR[:end].encode(), "")
    for end in range(0, TABULAR.index("step_size"), 40)
}
PROCESSES = ("text for a number", "no grid", "open list", "UTF-16", "huge whole number")
"""Of the battery: what is also given to a command of its own."""


@pytest.mark.parametrize(("content", "told"), BATTERY.values(), ids=BATTERY.keys())
def test_a_malformed_study_is_refused_in_one_sentence_and_nothing_is_written(
    tmp_path, monkeypatch, capsys, content, told
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    pathlib.Path("study.toml").write_bytes(content)
    assert main(["run", "study.toml", "-o", "out"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert_refused(captured.err, told)
    assert [path.name for path in tmp_path.iterdir()] == ["study.toml"]


@pytest.mark.parametrize("name", PROCESSES)
def test_a_malformed_study_ends_the_command_with_status_2(tmp_path, name) -> None:
    content, told = BATTERY[name]
    (tmp_path / "study.toml").write_bytes(content)
    code = "import sys; from fegsam.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "run", "study.toml", "-o", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 2
    assert done.stdout == ""
    assert_refused(done.stderr, told)
    assert [path.name for path in tmp_path.iterdir()] == ["study.toml"]


def assert_refused(printed: str, told: str) -> None:
    message = printed.removeprefix("fegsam: ").removesuffix("\n")
    assert printed == f"fegsam: {message}\n"
    assert one_sentence(message).startswith("study.toml")
    assert told in message


@pytest.mark.parametrize(
    "command",
    [["run", "nowhere.toml"], ["report", "nowhere"], ["plan", "nowhere.toml", "--accuracy", "1"]],
)
def test_a_file_that_is_not_there_is_named(command, capsys) -> None:
    assert main(command) == 2
    assert "nowhere" in capsys.readouterr().err


def test_a_plan_is_printed_with_its_verification_and_the_trade_off(spec, capsys) -> None:
    assert (
        main(["plan", str(spec), "--accuracy", "0.05", "--goal", "samples", "--budget", "40"]) == 0
    )
    out = capsys.readouterr().out
    head, title, *_ = out.splitlines()
    assert head.endswith(", agents: 4")
    assert title == "Squared error (2-norm) 0.05 with the fewest samples, within 40 communications"
    for said in (
        "step size",
        "sync period",
        "communications",
        "exact moments",
        "over 200 seeds: met",
        "Trade-off",
    ):
        assert said in out


def test_plans_of_methods_are_printed_as_a_table(spec, capsys) -> None:
    assert main(["plan", str(spec), "--accuracy", "0.05", "--methods", "plain"]) == 0
    _, title, header, row = capsys.readouterr().out.splitlines()
    assert title == "Squared error (2-norm) 0.05 with the fewest communications"
    assert header.split("  ")[0] == "method"
    assert row.split()[0] == "plain"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--accuracy", "0.1", "--methods", "scaflsa"], "methods.scaflsa is 'scaflsa', which is"),
        (["--accuracy", "-1"], "accuracy is -1.0; give a positive number."),
        (["--accuracy", "nan"], "accuracy is nan; give a positive number."),
        (["--accuracy", "1e-9", "--budget", "10"], "out of reach within 10 steps"),
        (["--accuracy", "0.1", "--budget", "0"], "budget is 0"),
        (["--accuracy", "1e9"], "already"),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused_in_one_sentence(spec, capsys, options, said) -> None:
    assert main(["plan", str(spec), *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("fegsam: ")
    assert captured.err.count("\n") == 1
    assert said in captured.err


def test_doctor_names_what_is_installed(capsys) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for name in ("numpy", "numba", "plotly", "ray", "flwr", "threads", "compiler cache", "GPU"):
        assert name in out


def test_doctor_says_what_to_do_about_a_gap(monkeypatch) -> None:
    monkeypatch.setattr(
        doctor, "installed_version", lambda name: None if name in doctor.OPTIONAL else "1.0"
    )
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/proc/nowhere/at/all")
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    told = doctor.examine()
    for _, extra in doctor.OPTIONAL.values():
        assert f"pip install 'fegsam[{extra}]'" in told
    assert "set NUMBA_CACHE_DIR" in told
    assert "install a C compiler" in told


@pytest.mark.parametrize("command", [name for name in help_pages() if name != "fegsam"])
def test_every_command_has_an_example_in_its_help_that_parses(command) -> None:
    page = help_pages()[command]
    examples = re.findall(rf"^  {command}( .*)?$", page.partition("examples:")[2], re.MULTILINE)
    examples += re.findall(rf"\$\({command}( .*)?\)", page)
    assert examples, "an example"
    for options in page.partition("options:")[2].partition("examples:")[0].split("\n  -")[1:]:
        assert len(options.split()) > 1, f"-{options} is not explained"
    words = [word for word in re.split(r"\s{3,}| >> ", examples[0])[0].split() if word]
    assert not [word for word in words if word.startswith("--") and word not in page]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("re", "report reproduce"),
        ("run --exe", "--executor"),
        ("run study.toml --executor r", "ray"),
        ("plan --go", "--goal"),
        ("federate in", "init"),
        ("federate run st", "study.toml"),
        ("report st", "study.toml"),
        ("bench --show st", "study.toml"),
    ],
)
def test_the_shell_completes_what_the_parser_knows(typed, expected, capsys, tmp_path) -> None:
    (tmp_path / "study.toml").touch()
    assert main(["completion", "bash"]) == 0
    words = " ".join(f"'{word}'" for word in ["fegsam", *typed.split(" ")])
    ask = f"COMP_WORDS=({words}); COMP_CWORD={len(typed.split(' '))}; _shtab_fegsam"
    script = f'{capsys.readouterr().out}\n{ask}; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert sorted(done.stdout.split()) == sorted(expected.split())


@pytest.mark.parametrize(
    ("login", "opening"), [("/usr/bin/zsh", "#compdef fegsam"), ("/bin/sh", "# AUTOMATICALLY")]
)
def test_completion_is_for_the_login_shell(login, opening, capsys, monkeypatch) -> None:
    monkeypatch.setenv("SHELL", login)
    assert main(["completion"]) == 0
    assert capsys.readouterr().out.startswith(opening)


def test_the_command_is_installed_and_loads_nothing_heavy() -> None:
    heavy = "{'ray', 'plotly', 'pydantic', 'matplotlib', 'gymnasium', 'jinja2', 'shtab'}"
    code = f"import sys, fegsam.cli; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("action", ["run", "init", "server", "node", "status"])
def test_every_action_of_a_federation_explains_itself(action, capsys) -> None:
    with pytest.raises(SystemExit) as done:
        main(["federate", action, "--help"])
    assert done.value.code == 0
    said = capsys.readouterr().out
    assert f"example:\n  fegsam federate {action} " in said
    about = said.split("\n\n")[1]
    assert about.endswith(".")
    assert len(about) > 60


def test_an_interrupt_that_the_compiler_loses_still_ends_the_command(capsys, monkeypatch) -> None:
    """Python can only print an interrupt in a callback of C; then the compiler itself fails."""

    def compile_and_fail() -> str:
        ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))()
        raise RuntimeError("no compiled object yet")

    monkeypatch.setattr(doctor, "examine", compile_and_fail)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["doctor"]) == 130
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "fegsam: interrupted\n"


def test_a_command_leaves_ctrl_c_to_its_work(monkeypatch, capsys) -> None:
    """A sweep lets a cell that is being stored be finished, where no one else handles Ctrl-C."""
    seen = []
    monkeypatch.setattr(doctor, "examine", lambda: seen.append(signal.getsignal(signal.SIGINT)))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main(["doctor"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.default_int_handler]


@pytest.mark.parametrize("columns", [80, 120])
def test_every_help_page_fits_the_terminal(columns, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for command, page in help_pages().items():
        for line in page.splitlines():
            assert len(line) <= columns or " " not in line.strip(), (command, line)


def test_a_warning_is_one_sentence_without_the_line_of_code_that_gave_it(monkeypatch) -> None:
    said = []
    monkeypatch.setattr(
        doctor,
        "examine",
        lambda: said.extend(
            warnings.formatwarning("Take care.", UserWarning, file, 1)
            for file in (doctor.__file__, "/elsewhere/numpy.py")
        ),
    )
    main(["doctor"])
    assert said[0] == "fegsam: warning: Take care.\n"
    assert said[1].startswith("/elsewhere/numpy.py:1: UserWarning: Take care.")
