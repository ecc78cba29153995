"""The coordinates of a study's cells in words, for legends and titles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SHORT = {
    "num_agents": "N",
    "sync_period": "K",
    "step_size": "α",
    "horizon": "n",
    "num_steps": "T",
    "heterogeneity": "h",
}
_ALGORITHMS = {
    "on_policy_td": "on-policy TD",
    "off_policy_tabular_td": "off-policy tabular TD",
    "q_learning": "Q-learning",
    "off_policy_linear_td": "off-policy linear TD",
    "tdc": "TDC",
    "linear_q_learning": "linear Q-learning",
    "linear_sa": "linear stochastic approximation",
}


def coordinate_words(axis: str, value: Any) -> str:
    """One coordinate of a cell as a person says it.

    Examples
    --------
    >>> coordinate_words("num_agents", 4), coordinate_words("algorithm.name", "on_policy_td")
    ('N = 4', 'on-policy TD')
    >>> coordinate_words("problem.discount", 0.9), coordinate_words("run.sampling", "iid")
    ('discount = 0.9', 'sampling: iid')
    """
    last = axis.rpartition(".")[2]
    if axis == "algorithm.name":
        return _ALGORITHMS.get(value, str(value))
    name = _SHORT.get(axis) or _SHORT.get(last) or last.replace("_", " ")
    if isinstance(value, dict):
        return f"{name}: {_table_words(value)}"
    if name in _SHORT.values():
        return f"{name} = {value}"
    if isinstance(value, str):
        return value.replace("_", " ") if last in ("method", "name") else f"{name}: {value}"
    return f"{name} = {value}"


def _table_words(table: Mapping[str, Any]) -> str:
    """A table of a study in words.

    >>> _table_words({"growing": {"first": 1, "most_rounds": 50}}), _table_words({"power": 0.5})
    ('growing (first 1, most rounds 50)', 'power 0.5')
    """
    said = []
    for key, value in table.items():
        inner = f"({_table_words(value)})" if isinstance(value, Mapping) else value
        said.append(f"{key.replace('_', ' ')} {inner}")
    return ", ".join(said)


def axis_words(axis: str) -> str:
    """The name of an axis.

    >>> axis_words("num_agents"), axis_words("problem.discount")
    ('number of agents N', 'discount')
    """
    names = {"num_agents": "number of agents N", "sync_period": "sync period K"}
    names |= {"step_size": "step size α", "num_steps": "steps T"}
    return names.get(axis) or axis.rpartition(".")[2].replace("_", " ")
