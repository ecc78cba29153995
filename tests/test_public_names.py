"""Every public name says what it is and shows how it is used; the examples themselves are run as
doctests."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import pathlib
import pkgutil
import subprocess
import sys
import tomllib
import types

import pytest

import fegsam
from fegsam.algorithms.rule import Algorithm
from fegsam.algorithms.structure import Structured

PACKAGES = (
    "fegsam",
    "fegsam.data",
    "fegsam.exact",
    "fegsam.theory",
    "fegsam.engines",
    "fegsam.problem.examples",
    "fegsam.problem.features",
    "fegsam.problem.policies",
    "fegsam.planning",
    "fegsam.report",
    "fegsam.history",
    "fegsam.methods",
    "fegsam.methods.schedules",
)
NAMES = [
    (package, name) for package in PACKAGES for name in importlib.import_module(package).__all__
]


@pytest.mark.parametrize(("package", "name"), NAMES, ids=[".".join(pair) for pair in NAMES])
def test_a_public_name_has_a_docstring_with_an_example(package, name) -> None:
    public = getattr(importlib.import_module(package), name)
    text = inspect.getdoc(public) or ""
    assert text.split("\n\n")[0].endswith((".", ":")), "a first paragraph of whole sentences"
    if isinstance(public, types.ModuleType):
        assert public.__all__, "a public module lists its names, which this test walks"
    else:
        assert doctest.DocTestParser().get_examples(text), "an example that runs"


def test_public_classes_say_what_their_own_methods_do() -> None:
    # What every algorithm tells an engine is explained once, in the protocol.
    protocol = {*vars(Algorithm), *vars(Structured)}
    classes = {
        public
        for package, name in NAMES
        if inspect.isclass(public := getattr(importlib.import_module(package), name))
    }
    assert len(classes) > 20
    for public in classes:
        own = {
            name: value
            for name, value in vars(public).items()
            if not name.startswith("_") and name not in protocol
        }
        for name, value in own.items():
            if inspect.isfunction(value) or isinstance(value, property):
                assert inspect.getdoc(value), f"{public.__name__}.{name}"


@pytest.mark.parametrize("package", PACKAGES)
def test_completion_offers_the_public_names_alone(package) -> None:
    module = importlib.import_module(package)
    assert dir(module) == sorted(module.__all__)


def test_public_modules_that_users_reach_are_all_walked() -> None:
    reached = [
        value.__name__ for value in vars(fegsam).values() if isinstance(value, types.ModuleType)
    ]
    public = [name for name in reached if name.rpartition(".")[2] in fegsam.__all__]
    assert set(public) <= set(PACKAGES)


def test_a_public_module_shows_its_public_names_alone() -> None:
    for module in (fegsam.examples, fegsam.policies, fegsam.features):
        assert dir(module) == sorted(module.__all__)


def test_planning_is_reached_without_its_own_import() -> None:
    # In a fresh process: another test may have imported it.
    code = "import sys, fegsam; assert 'fegsam.planning' not in sys.modules; fegsam.planning.plan"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_the_package_ships_its_types() -> None:
    assert (pathlib.Path(fegsam.__file__).parent / "py.typed").is_file()


def test_no_message_names_an_extra_that_does_not_exist() -> None:
    project = pathlib.Path(__file__).parents[1] / "pyproject.toml"
    extras = set(
        tomllib.loads(project.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    )
    for module in pkgutil.walk_packages(fegsam.__path__, "fegsam."):
        source = pathlib.Path(importlib.util.find_spec(module.name).origin).read_text(
            encoding="utf-8"
        )
        for said in source.split("pip install 'fegsam[")[1:]:
            assert said.partition("]")[0] in extras | {"{extra}"}, module.name
