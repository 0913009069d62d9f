"""Checks what pip installs: extras that bring what commands import, errors that name them, and data files."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.version import Version

from squall.chaos import cli
from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.real import lacks
from squall.chaos.toolchain import extras, places
from squall.checkers.engines import REFERENCE
from tests.architecture.source import PACKAGES, ROOT
from tests.support.installed import lowest

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = {
    "trio", "crc32c", "cramjam", "re2", "msgspec", "click", "rich", "pydantic", "jinja2", "prometheus_client",
    "tomli_w",
}  # fmt: skip
"""What every installation has, as it is imported."""
OF_OTHERS = {"future": "toxiproxy", "requests": "toxiproxy", "outcome": "trio", "pydantic_core": "pydantic"}
"""Brought by what we name; imported beside it."""
DEVELOPMENT = {"coverage", "kio", "tests", "bench", "hypothesis", "importlinter", "mypy", "ruff"}


def pins(lines: list[str]) -> set[str]:
    """Names of distributions."""
    return {re.split(r"[=<>\[]", each)[0].replace("_", "-") for each in lines}


def imported() -> dict[str, str]:
    """Package that our code imports -> a file that does."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if "codegen" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names = [node.module]
                for name in names:
                    found.setdefault(name.partition(".")[0], str(path.relative_to(ROOT)))
    of_type_checkers = {"_typeshed", "typing_extensions"}
    ours = {"squall", *sys.stdlib_module_names, "__future__", *of_type_checkers}
    return {name: where for name, where in found.items() if name not in ours}


def test_everything_that_is_imported_is_in_the_core_or_in_an_extra() -> None:
    known = CORE | OF_OTHERS.keys() | DEVELOPMENT | {name for names in extras.EXTRAS.values() for name in names}
    assert {name: where for name, where in imported().items() if name not in known} == {}


def test_nothing_is_installed_that_is_never_imported() -> None:
    names = {*CORE, *(name for packages in extras.EXTRAS.values() for name in packages)}
    # kafka-python takes its codecs from these three, and pytest finds allure-pytest by itself.
    by_others = {"lz4", "snappy", "zstandard", "allure_pytest"}
    assert names - by_others <= imported().keys()


def test_the_table_of_extras_is_that_of_the_package() -> None:
    optional = PROJECT["optional-dependencies"]
    assert optional.keys() == extras.EXTRAS.keys() == extras.FOR.keys()
    by_module = packages_distributions()
    assert optional["all"] == ["squall[run,spark,query,clients]"], "and spark has figures"
    of_all = [each for name, wanted in optional.items() if name != "all" for each in wanted]
    optional = {**optional, "spark": [*optional["spark"], *optional["figures"]], "all": of_all}
    for extra, packages in extras.EXTRAS.items():
        brought = {name.lower().replace("_", "-") for package in packages for name in by_module[package]}
        brought -= {"allure-python-commons"}
        assert brought == pins(optional[extra]) - {"squall"}, extra


def test_the_launcher_installs_every_extra_but_the_clients() -> None:
    optional = PROJECT["optional-dependencies"]
    assert optional["spark"][1:] == ["squall[figures]"], "which shows what Spark found"
    extra = [each for name, wanted in optional.items() if name != "clients" for each in wanted if "squall" not in each]
    wanted = pins([*PROJECT["dependencies"], *extra])
    pinned = {line.split("==")[0] for line in (ROOT / "requirements.txt").read_text().splitlines() if "==" in line}
    assert wanted <= pinned
    assert not pinned & {"pandas", "scipy", "structlog"}
    clients = (ROOT / "requirements-clients.txt").read_text().splitlines()
    added = {line.split("==")[0] for line in clients if "==" in line}
    assert pins(optional["clients"]) <= added - pinned


def test_the_lowest_version_of_each_range_is_the_one_that_the_tests_run_with() -> None:
    files = [(ROOT / name).read_text() for name in ("requirements.txt", "requirements-clients.txt")]
    pinned = dict(re.findall(r"^([\w-]+)==([^ ;\\]+)", "\n".join(files), re.MULTILINE))
    assert {name: Version(each) for name, each in lowest().items()} == {
        name: Version(pinned[name]) for name in lowest()
    }


@pytest.mark.parametrize(
    ("module", "extra"), [("pyspark.sql", "spark"), ("docker", "run"), ("toxiproxy", "run"), ("kafka", "clients")]
)
def test_a_command_that_lacks_a_package_names_the_extra(
    module: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacks_it(*_: object) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr("squall.chaos.cli.LazyCommandGroup.get_command", lacks_it)
    assert cli.run(["faults"]) == 3
    assert f"pip install 'squall[{extra}]'" in capsys.readouterr().err


def test_a_module_that_no_extra_brings_is_a_failure_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def lacks_it(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'squall.chaos.nothing'", name="squall.chaos.nothing")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("squall.chaos.cli.LazyCommandGroup.get_command", lacks_it)
    assert cli.run(["faults"]) == 2
    assert "a failure inside Squall" in capsys.readouterr().err


def test_a_run_that_could_not_be_judged_is_refused_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "pyspark" else object())
    (lack,) = lacks(make_plan({}))
    assert "pip install 'squall[spark]'" in lack.what
    assert "--engine reference does without" in lack.what
    assert lacks(make_plan({}), REFERENCE) == []
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "toxiproxy" else object())
    for runtime in ("process", "docker"):
        told = [each.what for each in lacks(make_plan({"runtime": runtime}))]
        assert any("pip install 'squall[run]'" in each for each in told), runtime


def test_recipes_and_plans_are_found_in_a_checkout_and_in_a_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places.shared("compose") == ROOT / "compose"
    monkeypatch.setattr(places, "is_checkout", lambda: False)
    assert places.shared("compose") == ROOT / "chaos/shared/compose"
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    of_package = {"squall.py": "__init__.py", "chaos/py.typed": "py.typed"}
    assert included["force-include"] == of_package | {name: f"chaos/shared/{name}" for name in ("compose", "plans")}
