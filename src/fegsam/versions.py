"""The installed version of a package."""

from __future__ import annotations

from importlib import metadata


def installed_version(package: str) -> str | None:
    """The version, or None if it is not installed: a package may run from its sources."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
