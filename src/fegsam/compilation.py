"""Compilation with a disk cache keyed by content.

Numba's own cache misses in every process for a closure over a rule, and does not notice an edited
helper. Here the key is the content: the rule's code, its closure cells, the globals and helpers
that it names, and the sources of this package. A function that cannot be keyed is compiled again
in each process. The cache depends on a private class of Numba, which is why pyproject bounds
Numba's version.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import hashlib
import pathlib
import re
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

from fegsam.errors import ProblemError

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_LINE = re.compile(r'File ".*", line (\d+):')
_PACKAGE = pathlib.Path(__file__).resolve().parent
_PARTS = ("algorithms", "engines", "exact", "history", "problem")
"""The folders whose code is compiled, or named by compiled code."""
_STABLE = ("builtins", "math", "cmath", "numpy", "numba")
"""Modules whose content is determined by their version, on which Numba's cache depends, too."""


class _Unkeyable(Exception):
    """Something in a rule has no content to hash."""


class _ContentCache(FunctionCache):
    def __init__(self, py_func: Callable[..., Any], key: str) -> None:
        super().__init__(py_func)
        self._key = key
        # One index file per content, so that processes that fill the cache at the same time never
        # write each other's entries.
        self._cache_file = IndexDataCacheFile(
            self._cache_path, f"{self._impl.filename_base}-{key[:20]}", key
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        # A stored function may name a module that this process cannot import; then it is compiled
        # again.
        with contextlib.suppress(ImportError):
            return super().load_overload(sig, target_context)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return sig, codegen.magic_tuple(), self._key


def compiled(
    function: Callable[..., Any] | None = None, *, key: str | None = "", **options: Any
) -> Any:
    """`numba.njit` without the GIL, without reference counts, and with the content-keyed cache.

    `key` stands for what the function closes over; None means that it cannot be cached. A function
    that allocates needs reference counts, with ``_nrt=True``.
    """
    if function is None:
        return functools.partial(compiled, key=key, **options)
    settings: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, **options}
    dispatcher: Any = numba.njit(**settings)(function)
    interpreted = dispatcher is function
    if key is not None and not interpreted:
        content = (
            f"{package_digest()} {np.__version__} {function.__module__} {function.__qualname__} "
            f"{sorted(options.items())} {key}"
        )
        # A function typed at a prompt has no file beside which its cache could be kept; Numba then
        # raises a RuntimeError.
        with contextlib.suppress(RuntimeError):
            dispatcher._cache = _ContentCache(
                function, hashlib.sha256(content.encode()).hexdigest()
            )
    return dispatcher


@functools.cache
def package_digest() -> str:
    """A hash of the sources that compiled code can come from."""
    state = hashlib.sha256()
    compiled_from = [
        _PACKAGE / "compilation.py",
        _PACKAGE / "randomness.py",
        *(file for part in _PARTS for file in (_PACKAGE / part).rglob("*.py")),
    ]
    for source in sorted(compiled_from):
        state.update(source.relative_to(_PACKAGE).as_posix().encode() + source.read_bytes())
    return state.hexdigest()


def rule_key(rule: Callable[..., Any]) -> str | None:
    """A hash of everything that determines what `rule` compiles to.

    It is None if something in the rule has no content to hash.
    """
    state = hashlib.sha256()
    try:
        _hash_function(rule, state, set())
    except _Unkeyable:
        return None
    return state.hexdigest()


def _hash_function(function: Any, state: Any, seen: set[int]) -> None:
    function = getattr(function, "py_func", function)
    if id(function) in seen:
        return
    seen.add(id(function))
    # Numba finds a stored function by its module, which a function typed at a prompt may not have.
    if not isinstance(function, types.FunctionType) or function.__module__ is None:
        raise _Unkeyable
    state.update(f"{function.__module__}.{function.__qualname__}".encode())
    _hash_code(function.__code__, state)
    for cell in function.__closure__ or ():
        _hash_value(cell.cell_contents, state, seen)
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        _hash_value(value, state, seen)
    names = _names(function.__code__)
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            state.update(name.encode())
            _hash_value(function.__globals__[name], state, seen, names)


def _hash_code(code: types.CodeType, state: Any) -> None:
    state.update(code.co_code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _hash_code(constant, state)
        else:
            state.update(repr(constant).encode())
    state.update(repr((code.co_names, code.co_varnames)).encode())


def _names(code: types.CodeType) -> list[str]:
    inner = [
        name
        for constant in code.co_consts
        if isinstance(constant, types.CodeType)
        for name in _names(constant)
    ]
    return [*code.co_names, *inner]


def _global_names(code: types.CodeType) -> list[str]:
    """The names that a function looks up as globals; attributes of the same name do not count."""
    inner = [
        name
        for constant in code.co_consts
        if isinstance(constant, types.CodeType)
        for name in _global_names(constant)
    ]
    own = [
        step.argval
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    ]
    return list(dict.fromkeys([*own, *inner]))


def _hash_value(value: Any, state: Any, seen: set[int], names: list[str] | None = None) -> None:
    """Hash a value; `names` are those that may be read as attributes of a module."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        state.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, bool | int | float | complex | str | bytes | np.generic | type(None)):
        state.update(f"{type(value).__name__} {value!r}".encode())
    elif isinstance(value, tuple | list):
        state.update(f"{type(value).__qualname__} {len(value)}".encode())
        for item in value:
            _hash_value(item, state, seen)
    elif isinstance(value, types.ModuleType):
        _hash_module(value, state, seen, names or [])
    elif isinstance(value, types.FunctionType | Dispatcher):
        _hash_function(value, state, seen)
    elif isinstance(value, types.BuiltinFunctionType | np.ufunc | type) and _is_stable(value):
        state.update(repr(value).encode())
    else:
        raise _Unkeyable


def _is_stable(value: Any) -> bool:
    """Whether a version or `package_digest`, which are in every key, determine the value."""
    module = getattr(value, "__module__", "numpy") or ""
    own = tuple(f"{_PACKAGE.name}.{part}." for part in _PARTS)
    return module in _STABLE or module.startswith(own)


def _hash_module(module: types.ModuleType, state: Any, seen: set[int], names: list[str]) -> None:
    state.update(module.__name__.encode())
    if module.__name__.partition(".")[0] in _STABLE or id(module) in seen:
        return
    seen.add(id(module))
    # We do not find out which names are read from which module: every name that could be is hashed.
    for name in names:
        _hash_value(getattr(module, name, None), state, seen, names)


def renewed(rule: Callable[..., Any]) -> Callable[..., Any]:
    """`rule` as a new function object, which Numba compiles with the current globals.

    Numba compiles a function object once, with the globals of that time.
    """
    renew = getattr(rule, "renew", None)
    _refuse_stale_helpers(rule)
    return rule if renew is None else renew()


_helper_keys: weakref.WeakKeyDictionary[Any, str | None] = weakref.WeakKeyDictionary()
"""The key of each helper of a user's rule when it was first compiled."""


def _refuse_stale_helpers(rule: Callable[..., Any]) -> None:
    own = getattr(rule, "user_rule", None)
    if own is None:
        return
    reached = [cell.cell_contents for cell in own.__closure__ or ()]
    reached += [
        own.__globals__[name] for name in _global_names(own.__code__) if name in own.__globals__
    ]
    for helper in reached:
        if isinstance(helper, types.FunctionType | Dispatcher):
            now = rule_key(helper)
            if _helper_keys.setdefault(helper, now) != now:
                name = getattr(helper, "__name__", "helper")
                raise ProblemError(
                    f"The helper {name!r} of the rule {own.__name__!r} reads something that has "
                    "changed since it was compiled; define the helper again, or pass that to it as "
                    "an argument."
                )


@contextlib.contextmanager
def explained(rule: Callable[..., Any]) -> Iterator[None]:
    """Turn a compilation error into one sentence with the rule's line."""
    try:
        yield
    except NumbaError as error:
        own = getattr(rule, "user_rule", rule)
        text = _ANSI.sub("", str(_error_of_rule(own) if own is not rule else error)).splitlines()
        reason = next(
            line.strip() for line in text if line.strip() and not line.startswith("Failed in")
        )
        lines = [match[1] for match in map(_LINE.match, text) if match]
        number = lines[-1] if lines else str(own.__code__.co_firstlineno)
        raise ProblemError(
            f"Numba cannot compile the rule {own.__name__!r} ({own.__code__.co_filename}, line "
            f"{number}: {reason}); use loops, arithmetic, math functions and numbers or arrays "
            "from outside, or engine='reference', which runs it uncompiled."
        ) from error


def _error_of_rule(rule: Callable[..., Any]) -> NumbaError | str:
    """Numba's error for a user's rule by itself: shorter, and at the rule's own line."""
    params = numba.types.Array(numba.types.float64, 1, "C")
    try:
        numba.njit(rule).compile((params, numba.types.int64, numba.types.int64, params))
    except NumbaError as error:
        return error
    return "it compiles by itself, but not inside the engine"
