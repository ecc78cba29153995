"""The base model of all tables of a spec, and the types of their values. Needs pydantic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from fegsam.errors import ProblemError
from fegsam.experiments.spec.array_values import FileRef, array_value, file_ref
from fegsam.experiments.spec.log_files import LogRef, log_ref
from fegsam.experiments.spec.wording import show

try:
    from pydantic import (
        BaseModel,
        BeforeValidator,
        ConfigDict,
        Field,
        ValidationError,
        ValidationInfo,
        WrapValidator,
        create_model,
        model_validator,
    )
except ImportError:
    raise ProblemError("Studies need pydantic; run: pip install 'fegsam[experiments]'") from None

__all__ = [
    "BeforeValidator",
    "Field",
    "TableModel",
    "ValidationError",
    "WrapValidator",
    "canonical",
    "create_model",
    "either",
    "model_validator",
]


def _array(value: Any, info: ValidationInfo) -> Any:
    return array_value(value, _directory(info))


def _number_or_array(value: Any, number: Any, info: ValidationInfo) -> Any:
    return _array(value, info) if isinstance(value, str | list) else number(value)


def _numbers(value: Any) -> Any:
    if not isinstance(value, list):
        raise ValueError(f"is {show(value)}, but must be a list of numbers: correct it")
    return np.array(array_value(value, Path()), dtype=np.float64)


def _function(value: Any, info: ValidationInfo) -> Any:
    path, _, name = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not path.endswith(".py") or not name.isidentifier():
        raise ValueError(
            f"is {show(value)}, but must name a function in a Python file: write 'file.py:function'"
        )
    return file_ref(value, _directory(info))


def _log(value: Any, info: ValidationInfo) -> Any:
    return log_ref(value, _directory(info))


def _directory(info: ValidationInfo) -> Path:
    return (info.context or {}).get("directory", Path())


def either(*words: str, other: str = "a number") -> WrapValidator:
    """A number, or what else `other` says, or one of these words instead."""

    def check(value: Any, number: Any) -> Any:
        if not isinstance(value, str):
            return number(value)
        if value not in words:
            raise ValueError(
                f"is {show(value)}, but must be {other} or {' or '.join(map(repr, words))}: give "
                "either"
            )
        return value

    return WrapValidator(check)


Count = Annotated[int, Field(ge=1, le=10**9)]
Long = Annotated[int, Field(ge=1, le=10**15)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Share = Annotated[float, Field(ge=0, le=1)]
Open = Annotated[float, Field(gt=0, lt=1)]
Discount = Annotated[float, Field(gt=0, lt=1), WrapValidator(_number_or_array)]
"""A number, or an array of the discounts of all transitions."""
Positive = Annotated[float, Field(gt=0)]
Text = Annotated[str, Field(min_length=1, max_length=500)]
Array = Annotated[Any, BeforeValidator(_array)]
Numbers = Annotated[Any, BeforeValidator(_numbers)]
Function = Annotated[Any, BeforeValidator(_function)]
Logged = Annotated[Any, BeforeValidator(_log)]
Kinds = Annotated[int, Field(ge=1, le=10**6), either("agents")]
"""The number of agent kinds; "agents" gives each agent its own kind."""


class TableModel(BaseModel):
    """The base of all tables: no unknown keys, no conversions, no changes, no NaN."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )

    tag: ClassVar[str] = ""
    """The key that selects the model of a table."""


def canonical(value: Any) -> Any:
    """A value as plain JSON, equal for equal values.

    None is left out, and a file is identified by its content.

    >>> canonical((1, FileRef("/tmp/a.npz", "rewards", "ab12")))
    [1, {'name': 'rewards', 'sha256': 'ab12'}]
    """
    if isinstance(value, TableModel):
        fields = type(value).model_fields
        return canonical(
            {name: getattr(value, name) for name, field in fields.items() if not field.exclude}
        )
    if isinstance(value, dict):
        return {key: canonical(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, FileRef):
        return {"name": value.name, "sha256": value.sha256}
    if isinstance(value, LogRef):
        return {"sha256": value.sha256}
    if isinstance(value, list | tuple):
        return [canonical(entry) for entry in value]
    return value if isinstance(value, int | float | str | None) else str(value)
