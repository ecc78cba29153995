"""The compiled engine on a GPU.

Its memory is in `layout` and `memory`, its loop in `kernel`, `paths` and `meet`, its steps in
`rule` and `params`, its sums in `sums` and `average`.
"""
