"""What the compiled rounds of a method contain: one loop or kernel for each combination."""

from __future__ import annotations

from typing import NamedTuple

from fegsam.engines.job import Job
from fegsam.methods.average import ByVisits
from fegsam.methods.rounding import Rounding, SomeCells


class Features(NamedTuple):
    """What is compiled in: one loop is made for each combination that occurs."""

    form: str
    """the shape of an update: "cell", "row" or "dense" """
    variates: str
    """whose control variates: "agent", "kind", or "" for none"""
    first_step: bool
    """whether the variates are those of the round's first step"""
    visits: bool
    """whether cells are averaged by visits"""
    rounding: str
    """how changes are reported: "random", "dither", "cells", or "" for as they are"""
    partial: bool
    """whether some agents do not take part"""
    own_clocks: bool
    """whether agents may have made different numbers of steps"""
    unequal: bool
    """whether agents make different numbers of local steps in a round"""
    tail: bool
    """whether the averages inside rounds are summed"""

    @property
    def slots(self) -> int:
        """Sums over agents that a round needs."""
        return self.tail_slot + int(self.tail)

    @property
    def sums_variates(self) -> bool:
        """Whether the variates of those who take part are added up: for all, their mean is kept."""
        last = self.variates == "agent" and not self.first_step
        return last and self.partial and self.form == "cell"

    @property
    def tail_slot(self) -> int:
        return 4 if self.visits else 1 + int(self.sums_variates)


def features_of(job: Job) -> Features:
    """What the job's loop is compiled for."""
    method, correction, rounding = job.method, job.method.correction, job.method.rounding
    kinds = {None: "", True: "dither", False: "random"}
    dithered = rounding.dither if isinstance(rounding, Rounding) else None
    return Features(
        form=job.form,
        variates="" if correction is None else correction.of,
        first_step=correction is not None and correction.source == "first_step",
        visits=isinstance(method.average, ByVisits),
        rounding="cells" if isinstance(rounding, SomeCells) else kinds[dithered],
        partial=method.participation is not None,
        own_clocks=method.own_clocks,
        unequal=method.local_steps is not None,
        tail=job.settings.tail > 0 and job.settings.tail_over == "steps",
    )
