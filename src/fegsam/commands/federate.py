"""``fegsam federate``: run a real federation."""

from __future__ import annotations

from fegsam.commands.command import Command
from fegsam.federation.command import add_actions, federate

COMMAND = Command(
    "run a real federation, on this machine or on several",
    """\
Run agents as separate processes, on this machine or on several. Each agent keeps its environment
and its policy to itself; only parameters travel, over TLS and with keys. The results equal those
of the simulator.""",
    """\
examples:
  fegsam federate run study.toml -o federation               a whole federation on this machine
  fegsam federate init DIR study.toml --host server.example  directories for several machines""",
    add_actions,
    federate,
)
