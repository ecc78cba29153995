"""Which version of a package is installed."""

from __future__ import annotations

from importlib import metadata


def installed_version(package: str) -> str | None:
    """None where it is not installed; a package that runs from its sources need not be."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
