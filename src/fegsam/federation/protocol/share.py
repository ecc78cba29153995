"""The part of an experiment that one machine needs, as a file: a node's share or a server's terms.

A machine then does not need the study, which has the data of all agents. The files are sealed (see
`state`) and hold plain numbers, no code. An algorithm is written as its name and its fields, and
read by looking up the name among the installed ones (`fegsam.algorithms.installed`): no file can
make a machine import a module.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import numpy as np
from scipy import sparse

from fegsam.algorithms.installed import algorithm_class, algorithm_name
from fegsam.algorithms.rule import Algorithm
from fegsam.data.charter import Charter
from fegsam.errors import ProblemError
from fegsam.federation.errors import StateError
from fegsam.federation.protocol.experiment import Experiment
from fegsam.federation.protocol.reach import Reach
from fegsam.federation.protocol.state import read_sealed, write_sealed
from fegsam.federation.protocol.terms import Terms
from fegsam.history.recorder import Truth, ValueForm
from fegsam.history.settings import Settings
from fegsam.methods.plain import (
    method_from_plain,
    method_to_plain,
    schedule_from_plain,
    schedule_to_plain,
    sync_period_from_plain,
    sync_period_to_plain,
)
from fegsam.problem.federation import Federation
from fegsam.problem.mdp import MDP

_FIELD = "algorithm "
"""Prefix of the names of the algorithm's own arrays."""
_OPTIONAL = ("behavior_policies", "target_policy", "features", "initial_distribution", "assignment")


def save_share(experiment: Experiment, agents: list[int], path: str | pathlib.Path) -> None:
    """Write the data that `agents` need to run, and nothing of the others.

    Examples
    --------
    >>> import tempfile
    >>> import fegsam as fg
    >>> fed = fg.Federation(fg.examples.two_state(), fg.policies.uniform(2, 2), num_agents=4)
    >>> experiment = Experiment(fed, fg.QLearning(), step_size=0.1, sync_period=5, num_steps=50)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_share(experiment, [1, 3], f"{folder}/share")
    ...     share = load_share(f"{folder}/share")
    >>> share.present, share.fingerprint == experiment.fingerprint
    ((1, 3), True)
    """
    part = experiment.only(agents)
    problem, (options, own_arrays) = part.problem, _fields(part.algorithm)
    if isinstance(problem, Charter):
        plain, arrays = problem.to_plain()
        plain = {"charter": plain}
    elif isinstance(problem, Federation):
        plain, arrays = _federation_parts(problem)
    else:
        raise ProblemError(
            f"{type(part.algorithm).__name__} has no share, because it runs on Markov noise: give "
            "its machines the study."
        )
    arrays |= {_FIELD + name: value for name, value in own_arrays.items()}
    header = plain | {
        "what": "share",
        "fingerprint": part.fingerprint,
        "present": part.present,
        "algorithm": [algorithm_name(type(part.algorithm)), options],
        "numbers": {
            name: getattr(part, name) for name in ("step_size", "num_steps", "seed", "sampling")
        },
        "sync_period": sync_period_to_plain(part.sync_period),
        "method": method_to_plain(part.method),
        "schedule": schedule_to_plain(part.schedule),
        "own_steps": part.own_steps,
        "outputs": experiment.output_times,
        "aggregate": part.aggregate,
    }
    write_sealed(pathlib.Path(path), header, arrays)


def load_share(path: str | pathlib.Path) -> Experiment:
    """The experiment of a share, with the data of its agents only."""
    header, arrays = _read(path, "share")
    if "charter" in header:
        problem = Charter.from_plain(header["charter"], arrays)
    else:
        problem = _federation(header, arrays)
    (name, options), own = header["algorithm"], header["own_steps"]
    return Experiment(
        problem,
        _algorithm(name, options, arrays),
        agreed=header["fingerprint"],
        present=tuple(header["present"]),
        sync_period=sync_period_from_plain(header["sync_period"]),
        method=method_from_plain(header["method"]),
        schedule=schedule_from_plain(header["schedule"]),
        own_steps=None if own is None else tuple((steps, factor) for steps, factor in own),
        outputs=tuple(header["outputs"]),
        aggregate=header["aggregate"],
        **header["numbers"],
    )


def _federation_parts(problem: Federation) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A federation as plain values and arrays."""
    arrays = {name: value for name in _OPTIONAL if (value := getattr(problem, name)) is not None}
    for number, mdp in enumerate(problem.mdps):
        rows = mdp.transitions
        arrays |= {
            f"data {number}": rows.data,
            f"indices {number}": rows.indices,
            f"indptr {number}": rows.indptr,
        }
        arrays[f"rewards {number}"] = mdp.rewards
        if mdp.discounts is not None:
            arrays[f"discounts {number}"] = mdp.discounts
    plain = {
        "num_agents": problem.num_agents,
        "discount": problem.discount,
        "num_mdps": len(problem.mdps),
    }
    return plain, arrays


def _federation(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Federation:
    """The federation of a share."""
    mdps = []
    for number in range(header["num_mdps"]):
        rewards = arrays[f"rewards {number}"]
        states, actions = rewards.shape
        parts = tuple(arrays[f"{part} {number}"] for part in ("data", "indices", "indptr"))
        each = arrays.get(f"discounts {number}")
        discount = header["discount"] if each is None else each
        moves = sparse.csr_array(parts, shape=(states * actions, states))
        mdps.append(MDP(moves, rewards, discount))
    return Federation(
        mdps, num_agents=header["num_agents"], **{part: arrays.get(part) for part in _OPTIONAL}
    )


def _fields(algorithm: Algorithm) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The fields of an algorithm: plain values, and arrays."""
    if not dataclasses.is_dataclass(algorithm):
        raise ProblemError(
            f"{type(algorithm).__name__} has no share, because it is not a dataclass: give its "
            "machines the study."
        )
    plain: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    names = [field.name for field in dataclasses.fields(algorithm) if field.init]
    for name, value in ((name, getattr(algorithm, name)) for name in names):
        if isinstance(value, np.ndarray) and value.dtype != object:
            arrays[name] = value
        elif value is None or isinstance(value, bool | int | float | str):
            plain[name] = value
        elif isinstance(value, np.generic):
            plain[name] = value.item()
        else:
            raise ProblemError(
                f"{type(algorithm).__name__} has no share, because its field {name} is neither a "
                "number, a text nor an array: give its machines the study."
            )
    return plain, arrays


def _algorithm(name: str, options: dict[str, Any], arrays: dict[str, np.ndarray]) -> Algorithm:
    kind = algorithm_class(name)
    own = {key.removeprefix(_FIELD): arrays[key] for key in arrays if key.startswith(_FIELD)}
    try:
        return kind(**options, **own)
    except TypeError:
        raise StateError(
            f"The share has the fields {', '.join([*options, *own])} of the algorithm {name!r}, "
            "but the installed version has others; install the same version everywhere."
        ) from None


def save_terms(terms: Terms, path: str | pathlib.Path) -> None:
    """Write the terms of a server, which have no environment and no policy."""
    settings = {
        field.name: getattr(terms.settings, field.name) for field in dataclasses.fields(Settings)
    }
    arrays = {
        "record": settings.pop("record"),
        "start": terms.initial_params,
        "kinds": terms.kinds,
        "fixed_point": terms.truth.fixed_point,
    }
    value = terms.truth.value
    if value is not None:
        arrays |= {"gram": value.gram, "slope": value.slope, "floor": np.array(value.floor)}
    header = {
        "what": "terms",
        "fingerprint": terms.fingerprint,
        "settings": settings,
        "norm": terms.truth.norm,
        "output_time": terms.output_time,
        "num_kinds": terms.num_kinds,
        "discount": terms.discount,
        "reach": None if terms.reach is None else dataclasses.asdict(terms.reach),
        "salt": terms.salt,
        "aggregate": terms.aggregate,
        "method": method_to_plain(terms.method),
        "schedule": schedule_to_plain(terms.schedule),
    }
    write_sealed(pathlib.Path(path), header, arrays)


def load_terms(path: str | pathlib.Path) -> Terms:
    """The terms that `save_terms` wrote."""
    header, arrays = _read(path, "terms")
    plain = header["settings"]
    value = (
        ValueForm(arrays["gram"], arrays["slope"], float(arrays["floor"]))
        if "gram" in arrays
        else None
    )
    return Terms(
        fingerprint=header["fingerprint"],
        settings=Settings(
            **{name: tuple(plain.pop(name)) for name in ("seeds", "periods")},
            **plain,
            record=arrays["record"].copy(),
        ),
        initial_params=arrays["start"],
        truth=Truth(arrays["fixed_point"], header["norm"], value),
        output_time=header["output_time"],
        kinds=arrays["kinds"].copy(),
        num_kinds=header["num_kinds"],
        method=method_from_plain(header["method"]),
        schedule=schedule_from_plain(header["schedule"]),
        discount=header["discount"],
        reach=None if (reach := header.get("reach")) is None else Reach(**reach),
        salt=header.get("salt", ""),
        aggregate=header.get("aggregate", "agent"),
    )


def _read(path: str | pathlib.Path, what: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        header, arrays = read_sealed(pathlib.Path(path))
    except FileNotFoundError:
        raise StateError(f"There is no {what} at {str(path)!r}; copy it there.") from None
    if header.get("what") != what:
        raise StateError(f"{str(path)!r} is not a {what}; copy the right file there.")
    return header, arrays
