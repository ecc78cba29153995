"""The rule of a round: schedule, correction, average, server, participation and rounding.

A round starts with every agent at the same parameters x. Agent i makes local steps
``theta += alpha_t (F_i(theta, y) + c_i)`` and reports the change ``Delta_i = theta_i - x``. The
server forms one change D from those of the agents that take part, and moves x by it. A `Method` is
a choice in each of these places; plain averaging is the default in all of them.

>>> import fegsam as fg
>>> fg.methods.fedavgm(0.9) == fg.Method(server=fg.Server(momentum=0.9))
True
"""

from fegsam.methods.named import fedavgm, fedhsa, fednova, importance_averaging, scafflsa

__all__ = ["fedavgm", "fedhsa", "fednova", "importance_averaging", "scafflsa"]


def __dir__() -> list[str]:
    return list(__all__)
