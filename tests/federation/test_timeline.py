"""The timeline of a federation shows its log."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

from fegsam.cli import main
from fegsam.federation.protocol.ledger import EVENTS_FILE
from fegsam.federation.status import read_status
from fegsam.federation.timeline import timeline

SPACE = "{http://www.w3.org/2000/svg}"


def closed(number: int, begin: float, end: float, missing=(), asked: int = 4) -> dict:
    return {
        "event": "round",
        "clock": end,
        "seconds": end - begin,
        "round": number,
        "asked": asked,
        "answered": asked - len(missing),
        "missing": list(missing),
    }


LOG = [
    {"event": "started", "clock": 9.0, "rounds": 3},
    closed(0, 10.0, 14.0),
    {"event": "node-died", "clock": 15.0, "node": "<b>"},
    closed(1, 14.0, 20.0, missing=[3]),
    closed(2, 25.0, 30.0, missing=[3, 1]),
]


def bars(picture: ElementTree.Element, colour: str) -> list[tuple[float, ...]]:
    return [
        tuple(float(rect.get(name)) for name in ("x", "width", "height"))
        for rect in picture.iter(f"{SPACE}rect")
        if rect.get("fill") == colour
    ]


def test_bars_are_as_long_as_rounds_and_as_high_as_the_share_that_answered() -> None:
    picture = ElementTree.fromstring(timeline(LOG))
    answered = bars(picture, "#0072B2")
    second = (640 - 72 - 12) / 20  # pixels of one of the 20 seconds
    for (x, width, height), begin, long, share in zip(
        answered, (0, 4, 15), (4, 6, 5), (1.0, 0.75, 0.5), strict=True
    ):
        assert abs(x - 72 - begin * second) < 0.1
        assert abs(width + 0.6 - long * second) < 0.2
        assert abs(height - 48 * share) < 0.1
    said = ["".join(text.itertext()) for text in picture.iter(f"{SPACE}text")]
    assert said[0] == "3 rounds in 20 s, 3 answers missing"
    assert said.index("agent 3") < said.index("agent 1"), "who missed most comes first"
    marks = [each.text for each in picture.iter(f"{SPACE}title")]
    assert "node-died: node <b>" in marks
    assert "started" in marks


def test_many_rounds_share_bars_and_none_have_no_timeline() -> None:
    many = [closed(k, float(k), k + 1.0) for k in range(1000)]
    picture = ElementTree.fromstring(timeline(many))
    assert len(bars(picture, "#0072B2")) == 250
    assert timeline(LOG[:1]) == ""


def test_the_command_writes_it_and_says_where_there_is_none(tmp_path, capsys) -> None:
    def written(events) -> int:
        text = "".join(json.dumps(event) + "\n" for event in events)
        (tmp_path / EVENTS_FILE).write_text(text, encoding="utf-8")
        target = str(tmp_path / "rounds.svg")
        return main(["federate", "status", str(tmp_path), "--timeline", target])

    assert written(LOG[:1]) == 2
    assert "no rounds yet" in capsys.readouterr().err
    whole = [
        each | {"time": 1, "squared_error": 0.5, "bytes_up": 1, "bytes_down": 1} for each in LOG
    ]
    assert written(whole) == 0
    assert (tmp_path / "rounds.svg").read_text(encoding="utf-8") == timeline(whole)


def test_a_notebook_shows_the_line_and_the_timeline(tmp_path) -> None:
    whole = [
        each | {"time": 1, "squared_error": 0.5, "bytes_up": 1, "bytes_down": 1} for each in LOG
    ]
    text = "".join(json.dumps(event) + "\n" for event in whole)
    (tmp_path / EVENTS_FILE).write_text(text, encoding="utf-8")
    found = read_status(tmp_path)
    assert repr(found).startswith("running: round 3/3")
    shown = ElementTree.fromstring(f"<html>{found._repr_html_()}</html>")
    assert repr(found) in "".join(shown.itertext())
    assert len(bars(shown, "#0072B2")) == 3
