"""Parameters with a correction, as a compiled rule reads them."""

# pyright: reportUnknownParameterType=false, reportMissingParameterType=false

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from numba import types
from numba.extending import overload


class Corrected(NamedTuple):
    """The parameters of an agent whose correction has been added for some steps.

    A correction is constant within a round, so it need not be added to a table at every step: the
    rule reads each cell with the correction of the steps so far, `passed` in step sizes.
    """

    params: Any
    correction: Any
    passed: Any

    def __getitem__(self, cell):
        return self.params[cell] + self.passed * self.correction[cell]


@overload(operator.getitem)
def _corrected_getitem(corrected, cell):
    if (
        isinstance(corrected, types.NamedTuple)
        and corrected.instance_class is Corrected
        and isinstance(cell, types.Integer)
    ):
        return lambda corrected, cell: (
            corrected.params[cell] + corrected.passed * corrected.correction[cell]
        )
    return None
