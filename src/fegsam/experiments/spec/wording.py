"""How keys, values and advice are written in the errors of a spec."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any


def show_key(key: Iterable[str | int]) -> str:
    """A key as a user would write it.

    >>> show_key(("figures", 0, "kind"))
    'figures[0].kind'
    """
    shown = ""
    for part in key:
        if isinstance(part, int):
            shown += f"[{part}]"
        else:
            bare = re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", part)
            shown += ("." if shown else "") + (part if bare else json.dumps(part)[:80])
    return shown


def show(value: Any) -> str:
    """A value in short form.

    >>> show([1, 2]), show("a"), show(2.5), show(True)
    ('a list', "'a'", '2.5', 'true')
    """
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a whole number of more than 18 digits"
    return repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."


def nearest(name: Any, known: Iterable[str]) -> str:
    """Advice after an unknown name.

    >>> nearest("garnett", ["garnet", "bandit"]), nearest(3, ["a", "b"])
    (": did you mean 'garnet'?", ': choose one of a, b')
    """
    names = list(known)
    if not names:
        return ": drop it"
    close = difflib.get_close_matches(name, names, n=1) if isinstance(name, str) else []
    return f": did you mean '{close[0]}'?" if close else f": choose one of {', '.join(names)}"
