"""The node on Flower: a ClientApp that passes each payload to the node and returns its answer.

Flower runs a new process for each message, so nothing is kept in memory. An agent's state is in a
file under the node's `state-dir`. The node's settings are in its `--node-config`: `experiment` (a
share, or a study and a `seed`), `agents` ("0,3"), `state-dir`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from fegsam.federation.errors import FederationError
from fegsam.federation.flower.grid_transport import packed, unpacked
from fegsam.federation.hosting import NodeSettings, node_of

try:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
except ImportError as error:
    raise FederationError(
        "A federation on several machines needs Flower; run: pip install 'fegsam[flower]'"
    ) from error


def node_settings(context: Context) -> NodeSettings:
    """The settings in the SuperNode's `--node-config`."""
    config = context.node_config
    seed = config.get("seed")
    return NodeSettings(
        experiment=Path(str(config["experiment"])),
        seed=None if seed is None else int(seed),
        agents=tuple(int(agent) for agent in str(config["agents"]).split(",")),
        state_dir=Path(str(config["state-dir"])),
        trust=bool(config.get("trust", False)),
        salt=str(config.get("salt", "")),
        data=Path(str(config["data"])) if "data" in config else None,
    )


def client_app(settings: Callable[[Context], NodeSettings]) -> ClientApp:
    """A ClientApp for the node that `settings` describes."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        try:
            node = node_of(settings(context))
        except Exception as error:
            # Flower sends the message of an exception to the server; this one may reveal details of
            # this machine.
            traceback.print_exception(error)
            raise FederationError("the node cannot be set up; its own log says why.") from None
        # The node answers a message without a payload like any other unreadable one: with a named
        # reason.
        return Message(packed(node.answer(unpacked(message.content) or b"")), reply_to=message)

    return app


app = client_app(node_settings)
