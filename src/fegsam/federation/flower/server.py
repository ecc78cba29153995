"""The server on Flower: a ServerApp that runs the server loop over the Grid.

Flower starts it in a separate process. Its environment names the directory of the server's files
and the directory of results, where the app writes its status (`AppStatus`): Flower reports a killed
server app as running.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from fegsam.errors import ProblemError
from fegsam.federation.deployment import load_server
from fegsam.federation.errors import FederationError
from fegsam.federation.flower.grid_transport import GridTransport
from fegsam.federation.protocol.server import FederationServer
from fegsam.federation.protocol.share import load_terms
from fegsam.federation.results import HISTORY_FILE
from fegsam.safe_files import whole

try:
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp
except ImportError as error:
    raise FederationError(
        "A federation on several machines needs Flower; run: pip install 'fegsam[flower]'"
    ) from error

SERVER, OUTPUT = "FEGSAM_SERVER", "FEGSAM_OUTPUT"
"""Environment variables: the two directories."""

FLOWER_FOLDER = "flower"
"""The folder of Flower's files in the directory of results."""

app = ServerApp()


@dataclass(frozen=True)
class AppStatus:
    """The status of a server app: running, finished, or failed with an error."""

    pid: int
    state: str
    error: str = ""

    def write(self, directory: Path) -> None:
        with whole(AppStatus._path(directory)) as temporary:
            temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(directory: Path) -> AppStatus | None:
        try:
            return AppStatus(**json.loads(AppStatus._path(directory).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    @staticmethod
    def clear(directory: Path) -> None:
        AppStatus._path(directory).unlink(missing_ok=True)

    @staticmethod
    def _path(directory: Path) -> Path:
        return directory / "server-app.json"


@app.main()
def main(grid: Grid, context: Context) -> None:
    output, pid = Path(os.environ[OUTPUT]), os.getpid()
    home = output / FLOWER_FOLDER
    AppStatus(pid, "running").write(home)
    try:
        _run(grid, output)
    except ProblemError as error:
        AppStatus(pid, "failed", str(error)).write(home)
        raise
    AppStatus(pid, "finished").write(home)


def _run(grid: Grid, directory: Path) -> None:
    side = load_server(Path(os.environ[SERVER]))
    # A node that returns later than this is asked again.
    transport = GridTransport(grid, lifetime=side.rules.round_timeout)
    outcome = FederationServer(load_terms(side.terms), transport, directory, rules=side.rules).run()
    outcome.history.save(directory / HISTORY_FILE)
