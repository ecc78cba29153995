"""Methods, schedules and sync periods as plain data, which files and fingerprints can hold.

A value is a dictionary with its name and its fields. A method is a dictionary with a version and
the places in which it differs from plain averaging. Values are read by looking up their names in
a fixed list, and checked as if they were given in Python, so that no file can make a machine run
code.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fegsam.errors import ProblemError, shown
from fegsam.methods.average import ByVisits, Mean
from fegsam.methods.correction import ControlVariates
from fegsam.methods.local_steps import LocalSteps
from fegsam.methods.method import Method, check_method
from fegsam.methods.participation import Participation
from fegsam.methods.rounding import Rounding, SomeCells
from fegsam.methods.schedules import Growing, Polynomial, Rescaled, Steps, StepSchedule, SyncPeriod
from fegsam.methods.server import Server

VERSION = 1
"""The version of the form of a method."""

_PARTS: dict[str, type] = {
    "mean": Mean,
    "by_visits": ByVisits,
    "control_variates": ControlVariates,
    "server": Server,
    "participation": Participation,
    "rounding": Rounding,
    "some_cells": SomeCells,
    "local_steps": LocalSteps,
}
_SCHEDULES: dict[str, type] = {"polynomial": Polynomial, "rescaled": Rescaled, "steps": Steps}
_PERIODS: dict[str, type] = {"growing": Growing}


def method_to_plain(method: Method) -> dict[str, Any]:
    """A method as plain data.

    >>> method_to_plain(Method(server=Server(momentum=0.5)))["server"]
    {'name': 'server', 'step': 1.0, 'momentum': 0.5, 'nesterov': False}
    >>> method_to_plain(Method())
    {'version': 1}
    """
    plain, places = Method(), [field.name for field in dataclasses.fields(check_method(method))]
    changed = [name for name in places if getattr(method, name) != getattr(plain, name)]
    return {"version": VERSION} | {
        name: _to_plain(getattr(method, name), _PARTS, name) for name in changed
    }


def method_from_plain(plain: Any) -> Method:
    """The method that `method_to_plain` wrote.

    >>> method_from_plain({"version": 1, "rounding": {"name": "some_cells", "count": 3}})
    Method(rounding=SomeCells(count=3))
    """
    given = dict(plain) if isinstance(plain, dict) else {}
    version = given.pop("version", None)
    places = [field.name for field in dataclasses.fields(Method)]
    if version != VERSION or not set(given).issubset(places):
        raise ProblemError(
            f"A stored method is {shown(plain)}, but this version of fegsam reads version "
            f"{VERSION} with {', '.join(places)}; install the version that wrote it."
        )
    return Method(**{name: _from_plain(each, _PARTS, name) for name, each in given.items()})


def schedule_to_plain(schedule: StepSchedule | None) -> dict[str, Any] | None:
    """A schedule of this package as plain data.

    >>> schedule_to_plain(Polynomial(power=1))
    {'name': 'polynomial', 'power': 1.0, 'offset': 1.0}
    """
    return None if schedule is None else _to_plain(schedule, _SCHEDULES, "schedule")


def schedule_from_plain(plain: Any) -> StepSchedule | None:
    """The schedule that `schedule_to_plain` wrote.

    >>> schedule_from_plain({"name": "rescaled"})
    Rescaled()
    """
    return None if plain is None else _from_plain(plain, _SCHEDULES, "schedule")


def sync_period_to_plain(sync_period: SyncPeriod) -> Any:
    """A sync period as plain data: a number, a list of numbers, or a dictionary.

    >>> sync_period_to_plain((1, 3)), sync_period_to_plain(Growing(first=1, factor=2, most=8))
    ([1, 3], {'name': 'growing', 'first': 1, 'factor': 2.0, 'most': 8})
    """
    if isinstance(sync_period, Growing):
        return _to_plain(sync_period, _PERIODS, "sync_period")
    return np.asarray(sync_period).tolist()


def sync_period_from_plain(plain: Any) -> SyncPeriod:
    """The sync period that `sync_period_to_plain` wrote.

    >>> sync_period_from_plain([1, 3])
    (1, 3)
    """
    if isinstance(plain, dict):
        return _from_plain(plain, _PERIODS, "sync_period")
    return tuple(plain) if isinstance(plain, list) else plain


def _to_plain(value: Any, known: dict[str, type], place: str) -> dict[str, Any]:
    for name, kind in known.items():
        if type(value) is kind:
            return {"name": name} | {
                field.name: _plain_field(getattr(value, field.name), str(field.type))
                for field in dataclasses.fields(kind)
            }
    raise ProblemError(
        f"{place} is {shown(value)}, which cannot be written as plain data; give one of "
        f"{', '.join(kind.__name__ for kind in known.values())}."
    )


def _plain_field(value: Any, declared: str) -> Any:
    if isinstance(value, tuple):
        return list(value)
    # 1 and 1.0 must have one form, since equal values must have equal fingerprints.
    return float(value) if declared.startswith("float") and value is not None else value


def _from_plain(plain: Any, known: dict[str, type], place: str) -> Any:
    given = dict(plain) if isinstance(plain, dict) else {}
    name = given.pop("name", None)
    kind = known.get(name) if isinstance(name, str) else None
    if kind is None or not set(given).issubset(field.name for field in dataclasses.fields(kind)):
        raise ProblemError(
            f"A stored {place} is {shown(plain)}, which this version of fegsam does not know; "
            "install the version that wrote it."
        )
    try:
        return kind(**given)
    except TypeError:
        raise ProblemError(
            f"A stored {place} is {shown(plain)}, which lacks a field; restore it from a copy."
        ) from None
