"""Safe files: atomic writes, seals that reveal damage, and reads of regular files only.

A *seal* is the end of a file: ``label (32 bytes), magic (16 bytes), SHA-256 of everything before
(32 bytes)``. The label identifies the owner of the file and is all zeros if there is none. Readers
of NetCDF and HDF5 ignore bytes after their data, so a sealed NetCDF file is still a NetCDF file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pathlib
import stat
import uuid
from collections.abc import Iterator
from typing import BinaryIO

_MAGIC = b"fegsam seal: 256"
_CHECKSUM = hashlib.sha256().digest_size
SEAL = _CHECKSUM + len(_MAGIC) + _CHECKSUM
"""The number of bytes of a seal."""
_CHUNK = 1 << 20
_NAME = 100
"""The temporary name keeps this many characters of a file's name: file systems have a limit."""


class DamagedError(Exception):
    """A file's seal does not match its content."""


@contextlib.contextmanager
def whole(target: pathlib.Path, *, settled: bool = True) -> Iterator[pathlib.Path]:
    """Write `target` atomically: yield a temporary name that replaces it when the block ends.

    After that the file survives a crash of the process or the machine. If the block fails, the
    temporary file is removed.

    Parameters
    ----------
    settled : bool
        Wait until the name is on the disk, too; this is not needed if another file of the same
        folder is written next.
    """
    temporary = target.with_name(f".{target.name[-_NAME:]}.{uuid.uuid4().hex}")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, target)
        if settled:
            _sync(target.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _sync(path: pathlib.Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a plain file for reading; `OSError` for anything else.

    Reading from a pipe or a device might block, or never end.
    """
    _require_plain(path, os.stat(path))
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    file = open(handle, "rb")  # noqa: SIM115  the caller closes it
    try:
        _require_plain(path, os.fstat(handle))
    except OSError:
        file.close()
        raise
    return file


def _require_plain(path: str | os.PathLike[str], found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a plain file", str(path))


def read_plain(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """The bytes of a plain file; `OSError` if it is not one or has more than `most` bytes.

    The default limit is half of the machine's memory.

    >>> read_plain("/dev/zero")
    Traceback (most recent call last):
    OSError: [Errno 22] it is a pipe or a device, not a plain file: '/dev/zero'
    """
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        most = memory_limit() // 2 if most is None else most
        if size > most:
            raise OSError(
                errno.EFBIG, f"it has {size} bytes, and at most {most} are read", str(path)
            )
        return file.read(size)


def memory_limit() -> int:
    """The bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def label_of(owner: str) -> bytes:
    """The label of a seal: 32 bytes that identify `owner`."""
    return hashlib.sha256(owner.encode()).digest() if owner else bytes(_CHECKSUM)


def append_seal(path: pathlib.Path, owner: str = "") -> None:
    """Seal a file; any later change breaks the seal."""
    with path.open("rb+") as file:
        state = _hashed(file, os.fstat(file.fileno()).st_size)
        end = label_of(owner) + _MAGIC
        state.update(end)
        file.write(end + state.digest())


def sealed_by(path: str | os.PathLike[str]) -> bytes | None:
    """The label of a sealed file, or None if it has no seal; `DamagedError` if the seal is wrong.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "numbers"
    ...     written = path.write_bytes(b"1 2 3")
    ...     before = sealed_by(path)
    ...     append_seal(path, "mine")
    ...     print(before, sealed_by(path) == label_of("mine"))
    None True
    """
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size < SEAL:
            return None
        file.seek(size - SEAL)
        end = file.read(SEAL)
        label, magic, checksum = end[:_CHECKSUM], end[_CHECKSUM:-_CHECKSUM], end[-_CHECKSUM:]
        if magic != _MAGIC:
            return None
        file.seek(0)
        if _hashed(file, size - _CHECKSUM).digest() != checksum:
            raise DamagedError
    return label


def _hashed(file: BinaryIO, count: int) -> hashlib._Hash:
    """The SHA-256 of the next `count` bytes."""
    state = hashlib.sha256()
    while count > 0 and (some := file.read(min(_CHUNK, count))):
        state.update(some)
        count -= len(some)
    return state
