"""Benchmarks: every engine beside its baselines and its physical limit, in one run (`fegsam
bench`).

`suite` runs the axes; a cell of an axis is a `problems.Setting`, who runs in it stands in
`contestants`, how it is timed in `timing`, the limits in `cpu_limit` and `gpu_limit`, what comes
out in `results`, `text` and `curves`.
"""
