"""The compiled engine on all cores: its memory (`layout`), its loop (`advance`, `team`), its steps
(`kernels`, `sampling`).

`local` is one agent's share of a round, for agents that live on machines of their own.
"""
