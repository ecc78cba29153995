"""Print every number of the technical note, with its name.

    python docs/note/evidence.py

The page `docs/note/index.md` contains none of them: it names them, and the site's build puts them
in. Nothing is sampled but the runs of Q-learning, which have fixed seeds.
"""

from __future__ import annotations

import functools
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from computed import bounds, buys, hierarchy, paper_errors, small_steps

SECTIONS = (paper_errors, bounds, hierarchy, small_steps, buys)
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@functools.cache
def values() -> dict[str, float]:
    """Every number of the note by its name."""
    found: dict[str, float] = {}
    for section in SECTIONS:
        found |= section.numbers()
    return found


def shown(value: float, form: str = "") -> str:
    """A number as the page shows it: in a format, or with two or three digits.

    >>> shown(0.0696), shown(12.5), shown(1234.5), shown(42), shown(42, ".1f")
    ('0.0696', '12.5', '1234', '42', '42.0')
    >>> shown(123456.0), shown(-2.5e-7), shown(10**9), shown(0.0)
    ('1.2·10⁵', '−2.5·10⁻⁷', '10⁹', '0')
    """
    value = float(value)
    if form:
        return f"{value:{form}}".replace("-", "−")
    size = abs(value)
    if value == 0 or 1e-3 <= size < 1e4:
        text = f"{value:.0f}" if size >= 1000 or value == round(value) else f"{value:.3g}"
        return text.replace("-", "−")
    mantissa, exponent = f"{value:.1e}".split("e")
    power = "10" + str(int(exponent)).translate(_RAISED)
    mantissa = mantissa.removesuffix(".0").replace("-", "−")
    return power if math.isclose(value, 10.0 ** int(exponent)) else f"{mantissa}·{power}"


if __name__ == "__main__":
    for name, value in values().items():
        print(f"{name:32} {float(value):.12g}")
