"""The errata of the paper, as the page of a reproduction lists them.

``errata.json`` is made from ``docs/errata.md``, which also has the reasons:

    python -m fegsam.reproduction.errata docs/errata.md
"""

from __future__ import annotations

import json
import re
import sys
from importlib import resources
from pathlib import Path

from fegsam.report.paper import Erratum

_ENTRY = re.compile(r"^### (\w+)\. (.+?)\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
_FILE = "errata.json"


def parse(markdown: str) -> list[Erratum]:
    """The errata of the page in docs.

    Examples
    --------
    >>> text = "### 2. A sign\\n\\n- *Where.* Theorem 3.1.\\n- *Severity.* False.\\n"
    >>> parse(text)[0].title, parse(text)[0].severity
    ('A sign', 'false')
    """
    found = []
    for number, title, body in _ENTRY.findall(markdown):
        parts = {
            key.lower(): " ".join(text.split())
            for key, text in re.findall(r"^- \*(\w+)\.\* (.*?)(?=^- \*|\Z)", body, re.M | re.S)
        }
        severity = parts.get("severity", "").lower().partition(" ")[0].strip(".,:;")
        where, printed, right, test = (
            _plain(parts.get(key, "")) for key in ("where", "printed", "right", "test")
        )
        found.append(Erratum(number, _plain(title), where, printed, right, severity, test))
    return found


def errata() -> list[Erratum]:
    """All errata, in the order of the page in docs.

    >>> errata()[0].title
    'The output distribution must favour late iterates'
    """
    text = resources.files("fegsam.reproduction").joinpath(_FILE).read_text(encoding="utf-8")
    return [Erratum(**entry) for entry in json.loads(text)]


def _plain(text: str) -> str:
    """Text without Markdown's marks and links.

    >>> _plain("`B` of [the sharper bound](sharper_bound.md)")
    'B of the sharper bound'
    """
    return re.sub(r"\[([^]]+)\]\([^)\s]+\.md[^)\s]*\)", r"\1", text).replace("`", "")


if __name__ == "__main__":
    entries = [one._asdict() for one in parse(Path(sys.argv[1]).read_text(encoding="utf-8"))]
    target = Path(__file__).with_name(_FILE)
    text = json.dumps(entries, ensure_ascii=False, indent=1)
    target.write_text(f"{text}\n", encoding="utf-8")
