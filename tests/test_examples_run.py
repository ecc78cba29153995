"""The examples run as they stand, at a smaller size."""

from __future__ import annotations

import importlib.util
import math
import pathlib
import re

import pytest

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def test_the_speed_up_study_prints_its_table_and_draws_its_figure(tmp_path, monkeypatch, capsys) -> None:
    image = pytest.importorskip("matplotlib.image")
    spec = importlib.util.spec_from_file_location("speed_up", EXAMPLES / "speed_up.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    agents = tuple(range(1, 1 + len(example.AGENTS)))
    for name, value in (("AGENTS", agents), ("SEEDS", range(4)), ("NUM_STEPS", 300)):
        monkeypatch.setattr(example, name, value)
    monkeypatch.setattr("sys.argv", ["speed_up.py", "--output", str(tmp_path / "new" / "folder")])
    example.main()

    printed = capsys.readouterr().out
    rows = re.findall(r"^ +(\d+) +(\d\.\d+e[-+]\d+) \+- (\S+) ", printed, re.MULTILINE)
    assert tuple(int(number) for number, *_ in rows) == agents
    assert all(math.isfinite(float(error)) and float(half) > 0 for _, error, half in rows)
    assert math.isfinite(float(re.search(r"slope of log error against log N: (\S+)", printed)[1]))
    (figure,) = (tmp_path / "new" / "folder").iterdir()
    assert figure.name in printed
    pixels = image.imread(figure)
    assert min(pixels.shape[:2]) > 300
    assert len({tuple(pixel) for pixel in pixels[::7, ::7].reshape(-1, pixels.shape[2])}) > 5, "more than a white page"
