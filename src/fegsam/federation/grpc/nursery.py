"""Starts the nodes of one machine quickly: imports the package once, and forks a process for each.

It runs as a program, reads lines of JSON that each describe a node, and writes a line when a node
starts (``{"name", "pid"}``) or ends (``{"name", "status"}``). It and its nodes end when the process
that started them does, whichever way that ends: they all watch one pipe.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from fegsam.errors import ProblemError
from fegsam.federation.deployment import load_node
from fegsam.federation.grpc.node import run_node

LOG_FILE = "node.log"


def main(life: int) -> None:
    names: dict[int, str] = {}
    lock = threading.Lock()
    _end_with(life)
    # A child that is forked while this thread exists has only the thread that forks.
    threading.Thread(target=_reap, args=(names, lock), daemon=True).start()
    for line in sys.stdin:
        order = json.loads(line)
        with lock:
            child = os.fork()
            if child == 0:
                _host(order, life)
            names[child] = order["name"]
            _tell(name=order["name"], pid=child)


def _reap(names: dict[int, str], lock: threading.Lock) -> None:
    while True:
        try:
            child, status = os.wait()
        except ChildProcessError:
            threading.Event().wait(0.1)
            continue
        with lock:
            _tell(name=names.pop(child), status=os.waitstatus_to_exitcode(status))


def _host(order: dict[str, Any], life: int) -> None:
    """Be a node, and never return."""
    directory = Path(order["directory"])
    output = os.open(directory / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    status = 1
    try:
        _end_with(life)
        side = replace(load_node(directory), trust=order["trust"])
        if order["study"] is not None:
            side = replace(side, experiment=Path(order["study"]))
        run_node(side, order["server"])
        status = 0
    except ProblemError as error:
        print(error, flush=True)
        status = 2
    finally:
        os._exit(status)


def _end_with(life: int) -> None:
    """End this process when nobody holds the other end of the pipe any more."""

    def watch() -> None:
        os.read(life, 1)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def _tell(**said: Any) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(int(sys.argv[1]))
