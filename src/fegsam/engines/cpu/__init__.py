"""The compiled engine on all cores.

Its memory is in `memory` and `layout`, its loop in `advance`, `tile` and `team`, its steps in
`steps`, `kernels` and `sampling`. `local` runs one agent's share of a round, for agents that live
on machines of their own.
"""
