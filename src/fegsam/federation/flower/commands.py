"""Runs several commands of Flower's command line in one process, because starting takes seconds.

    python -m fegsam.federation.flower.commands '[["supernode", "register", ...], ["run", ...]]'

prints a JSON object for each command, separated by `SEPARATOR`.
"""

from __future__ import annotations

import json
import sys

SEPARATOR = "\x1e"


def main() -> None:
    from flwr.cli.app import app

    for words in json.loads(sys.argv[1]):
        try:
            app([*words, "--format", "json"], standalone_mode=False)
        except Exception as error:  # any error is the answer to this command
            print(
                json.dumps({"success": False, "error-message": str(error) or type(error).__name__})
            )
        except SystemExit as stop:
            print(json.dumps({"success": False, "error-message": f"exit {stop.code}"}))
        print(SEPARATOR, flush=True)


if __name__ == "__main__":
    main()
