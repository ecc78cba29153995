"""What a method's run puts on the GPU once: its constants, its agents, and its kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda
from numba.np.numpy_support import from_dtype

from fegsam.engines.cuda import paths as cuda_paths
from fegsam.engines.cuda.agents import make_window_memory
from fegsam.engines.cuda.device import allow_shared
from fegsam.engines.cuda.kernel import compile_kernel
from fegsam.engines.cuda.methods.draw import make_begin_server, make_begin_windows, make_draw
from fegsam.engines.cuda.methods.kernel import make_advance, make_observe
from fegsam.engines.cuda.methods.layout import MethodGpuLayout, MethodShape
from fegsam.engines.cuda.methods.memory import GpuAgentArrays, GpuMethodConstants
from fegsam.engines.cuda.rule import make_fix_problem
from fegsam.engines.cuda.specialization import Specialization
from fegsam.engines.job import Job
from fegsam.engines.round_draws import word_threshold
from fegsam.methods.aggregate import Aggregator
from fegsam.methods.rounding import Rounding, SomeCells


def method_constants(job: Job) -> GpuMethodConstants:
    participation, server, rounding = (
        job.method.participation,
        job.method.server,
        job.method.rounding,
    )
    count, threshold = 0, np.uint64(0)
    if participation is not None and participation.agents is not None:
        count = participation.agents
    elif participation is not None:
        threshold = word_threshold(participation)
    return GpuMethodConstants(
        num_drawn=np.int64(count),
        threshold=threshold,
        go_on=np.bool_(participation is not None and participation.others == "go_on"),
        over_all=np.bool_(participation is not None and participation.divide_by == "all"),
        step=np.float64(server.step),
        momentum=np.float64(server.momentum),
        look_ahead=np.float64(server.step * server.momentum if server.looks_ahead else 0.0),
        grid=np.float64(rounding.step if isinstance(rounding, Rounding) else 1.0),
        cells=np.int64(rounding.count if isinstance(rounding, SomeCells) else 1),
    )


def upload_agents(job: Job, rows: int) -> GpuAgentArrays:
    """What belongs to each agent, on the GPU."""
    kinds, local = job.agents.kinds.astype(np.int64), job.method.local_steps
    weights = Aggregator(job.method, kinds, len(job.agents.mdps)).weights
    ones = np.ones(len(kinds))
    arrays = GpuAgentArrays(
        weights=weights,
        factors=ones if local is None else local.factors(kinds),
        lengths=np.zeros(1, np.int64) if local is None else local.of_agents(kinds),
        shares=np.bincount(kinds, weights, rows) if rows > 1 else np.array([weights.sum()]),
    )
    return GpuAgentArrays(*map(cuda.to_device, arrays))


class MethodKernels:
    """The kernels of one rule and method, compiled when first launched."""

    def __init__(
        self,
        job: Job,
        rule: Any,
        run: MethodShape,
        layout: MethodGpuLayout,
        real: Any,
        copied: dict[Any, int],
    ) -> None:
        features, kind = run.features, from_dtype(np.dtype(real))
        spec = Specialization(
            form=job.form,
            layout=layout.name,
            where=layout.where,
            together=layout.together,
            real=kind,
            window=job.window,
            iid=job.settings.sampling == "iid",
            narrow=bool(cuda_paths.is_narrow(job.chain)),
        )
        fix, windows = make_fix_problem(job, kind, copied), make_window_memory(spec)
        self.begin = make_begin_windows(spec.ahead, spec.narrow, features.own_clocks)
        self.send, self.draw = make_begin_server(), make_draw(run.rows > 1)
        self._kernels: list[Any] = [
            compile_kernel(make(spec, features, rule, fix, windows), layout.registers)
            for make in (make_advance, make_observe)
        ]
        self._allowed = [0, 0]

    def launch(self, layout: MethodGpuLayout, inside: bool, args: tuple[Any, ...]) -> None:
        """Run whole rounds, or a round's first steps."""
        which = int(inside)
        if layout.shared_bytes > self._allowed[which]:
            allow_shared(self._kernels[which], layout.shared_bytes, args)
            self._allowed[which] = layout.shared_bytes
        self._kernels[which][layout.grid, layout.threads, 0, layout.shared_bytes](*args)
