"""The algorithms that can be named in a file: the package's own, and those that other installed
packages provide as entry points of the group ``fegsam.algorithms``.

A package provides one in its pyproject.toml:

    [project.entry-points."fegsam.algorithms"]
    my_td = "my_package.my_td:MyTD"

Whoever installs a package decides that its code may run. So a name that stands here needs no
further trust, whoever wrote the file that it stands in.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fegsam.algorithms.alg1_stochastic_approximation import LinearSA, StochasticApproximation
from fegsam.algorithms.alg2_on_policy_td import OnPolicyTD
from fegsam.algorithms.alg3_off_policy_tabular_td import OffPolicyTabularTD
from fegsam.algorithms.alg4_q_learning import QLearning
from fegsam.algorithms.alg5_off_policy_linear_td import OffPolicyLinearTD
from fegsam.algorithms.tdc import TDC
from fegsam.errors import ProblemError

GROUP = "fegsam.algorithms"
_OWN: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        LinearSA,
        StochasticApproximation,
        OnPolicyTD,
        OffPolicyTabularTD,
        QLearning,
        OffPolicyLinearTD,
        TDC,
    )
}


def provided() -> dict[str, EntryPoint]:
    """The entry points of the group, by name; nothing of theirs is imported."""
    return {point.name: point for point in entry_points(group=GROUP)}


def load_provided(name: str) -> type[Any]:
    """The class behind an entry point of the group; raises what its import raises."""
    return provided()[name].load()


def algorithm_class(name: str) -> type[Any]:
    """The class of an algorithm by its name: a class of the package's own, or an entry point.

    >>> algorithm_class("QLearning")
    <class 'fegsam.algorithms.alg4_q_learning.QLearning'>
    """
    if name in _OWN:
        return _OWN[name]
    if name not in provided():
        raise ProblemError(
            f"The algorithm {name!r} is not installed here; install the package that provides it "
            f"as an entry point {name!r} of the group {GROUP}."
        )
    try:
        return load_provided(name)
    except Exception as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ProblemError(
            f"The algorithm {name!r} of the group {GROUP} cannot be imported ({told}); correct the "
            "package that provides it."
        ) from None


def algorithm_name(kind: type[Any]) -> str:
    """The name under which `algorithm_class` finds a class where it is installed; for a class that
    no entry point provides here, that of the class.

    >>> algorithm_name(QLearning)
    'QLearning'
    """
    if _OWN.get(kind.__name__) is kind:
        return kind.__name__
    path = f"{kind.__module__}:{kind.__qualname__}"
    return next((p.name for p in provided().values() if p.value == path), kind.__name__)
