"""A ClientApp that lies once in each round that its file of lies names."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fegsam.federation.flower.client import node_of, node_settings
from fegsam.federation.flower.grid_transport import packed, unpacked
from fegsam.federation.protocol.sparse_rows import RowsError, pack_rows, unpack_rows
from fegsam.federation.protocol.wire import FROM_NODE, Reply, decode, encode

DIMENSION = 12
"""Of Q-learning on the study that `deployed` writes."""
LIES_FILE = "lies.json"
"""Beside the node's state: {round: lie}."""


def _rows(reply: Reply, value: float, dimension: int = DIMENSION) -> bytes:
    params = pack_rows(np.full((_stops(reply), dimension), value))
    return encode(dataclasses.replace(reply, params=params))


def _stops(reply: Reply) -> int:
    """The number of rows in a reply: two in the round of the output time, else one."""
    try:
        unpack_rows(reply.params, 0.0, np.empty((1, DIMENSION)))
    except RowsError:
        return 2
    return 1


LIES = {
    "nan": lambda reply: _rows(reply, np.nan),
    "inf": lambda reply: _rows(reply, np.inf),
    "shape": lambda reply: _rows(reply, 0.0, DIMENSION - 1),
    "norm": lambda reply: _rows(reply, 1e300),
    "stale": lambda reply: encode(dataclasses.replace(reply, round=reply.round - 1)),
    "other": lambda reply: encode(dataclasses.replace(reply, fingerprint="ab" * 32)),
    "random": lambda reply: np.random.default_rng(reply.round).bytes(200),
}

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    settings = node_settings(context)
    truth = node_of(settings).answer(unpacked(message.content) or b"")
    return Message(packed(_said(truth, settings.state_dir.with_name(LIES_FILE))), reply_to=message)


def _said(truth: bytes, file: pathlib.Path) -> bytes:
    (reply, *_) = decode(truth, FROM_NODE)
    lies = json.loads(file.read_text()) if file.exists() else {}
    if not isinstance(reply, Reply) or str(reply.round) not in lies:
        return truth
    lie = lies.pop(str(reply.round))
    file.write_text(json.dumps(lies))
    return LIES[lie](reply)
