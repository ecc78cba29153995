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
from fegsam.federation.protocol.wire import FROM_NODE, Reply, decode, encode

LIES_FILE = "lies.json"
"""Beside the node's state: {round: lie}."""


def _other_params(reply: Reply, value: float) -> bytes:
    params = reply.params.copy()
    params[-1, 0] = value
    return encode(dataclasses.replace(reply, params=params))


LIES = {
    "nan": lambda reply: _other_params(reply, np.nan),
    "inf": lambda reply: _other_params(reply, np.inf),
    "shape": lambda reply: encode(dataclasses.replace(reply, params=reply.params[:, :-1])),
    "norm": lambda reply: _other_params(reply, 1e300),
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
