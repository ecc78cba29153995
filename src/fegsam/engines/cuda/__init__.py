"""The compiled engine on a GPU.

Its memory is in `layout` and `memory`, its loop in `kernel`, `rounds`, `agents` and `barrier`, its
paths in `paths`, `walk` and `producer`, its steps in `rule` and `params`, its sums in `sums`,
`settle` and `average`. Methods beside plain averaging have kernels of their own in `methods`.
"""
