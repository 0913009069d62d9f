"""Finds the extra of the package that installs a module which a command could not import."""

from __future__ import annotations

from importlib.util import find_spec

_FIGURES = ("pyarrow", "numpy", "matplotlib")
_QUERY = ("duckdb", "pyarrow")
_CLIENTS = ("confluent_kafka", "aiokafka", "kafka", "lz4", "snappy", "zstandard")
_RUN = ("toxiproxy", "docker", "pytest", "allure_pytest", "allure", "allure_commons")
_SPARK = ("pyspark", *_FIGURES)
EXTRAS = {
    "run": _RUN,
    "figures": _FIGURES,
    "spark": _SPARK,
    "query": _QUERY,
    "clients": _CLIENTS,
    "all": tuple(dict.fromkeys((*_RUN, *_SPARK, *_QUERY, *_CLIENTS))),
}
"""Maps an extra to the packages that it installs, by the names that are imported. pyproject.toml has their versions."""
FOR = {
    "run": "for runs with real brokers",
    "figures": "to show a run",
    "spark": "to judge a run by Spark",
    "query": "to query a run with SQL",
    "clients": "for real client libraries",
    "all": "for all commands",
}


def extra_of(module: str) -> str:
    """Return the smallest extra that installs a module; empty if none does."""
    package = module.partition(".")[0]
    return next((extra for extra, packages in EXTRAS.items() if package in packages), "")


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'squall[{extra}]'"


def missing(*extras: str) -> list[str]:
    """Return a sentence for each of these extras that is not completely installed."""
    lacks = ((each, next((name for name in EXTRAS[each] if find_spec(name) is None), "")) for each in extras)
    return [install_hint(module) for _, module in lacks if module]


def install_hint(module: str) -> str:
    """Return a sentence that says how to install a missing module; empty if no extra has it."""
    extra = extra_of(module)
    return f"{module} is not installed, which is needed {FOR[extra]}: {install(extra)}" if extra else ""


def no_report(missing: ModuleNotFoundError) -> str:
    """Return a line that says why no report of a run was made, and how to install the missing module."""
    return f"no report: {install_hint(missing.name or '') or missing}"
