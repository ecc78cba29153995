"""Benchmarks (`fegsam bench`): each engine, its baselines and its physical limit, in one run.

`suite` runs the axes; a cell of an axis is a `problems.BenchSetting`. `contestants` lists what runs
in a cell, `timing` times it, `cpu_limit` and `gpu_limit` measure the limits, and `results`, `text`
and `curves` present the outcome.
"""
