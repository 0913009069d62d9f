"""Defines a matrix, which says what runs a night consists of, and reads it from a file. Reading checks all of it at
once.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import tomli_w
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from squall.chaos.drivers.library import DISTRIBUTIONS
from squall.chaos.faults.kind import FaultError
from squall.chaos.nearest import did_you_mean
from squall.chaos.nightly.axes import AXES, word, workloads_of
from squall.chaos.plans.lines import in_order, with_line
from squall.chaos.plans.parts import StrictModel
from squall.chaos.plans.schedule import parse_kinds
from squall.chaos.plans.words import in_plain_words
from squall.workloads.registry import DEFAULT, SCENARIOS

FILE = "plans/nightly.toml"
UNITS = {"s": 1, "m": 60, "h": 3600}
NO_FAULTS = "none"


class MatrixError(ValueError):
    """Is raised for a matrix that cannot be run; the message lists all mistakes, one in each line."""


def seconds(given: Any) -> float:
    """Return a time in seconds: "90s", "20m", "1h", or a number of seconds, as in a night's matrix.toml. Raise
    ValueError for anything else.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(given).strip())
    # A text without a unit could mean minutes or hours. Only a number is in seconds.
    if found is None or (isinstance(given, str) and not found[2]):
        raise ValueError(f"{given!r} is no time: write it as 90s, 20m or 1h")
    if not float(found[1]):
        raise ValueError(f"{given!r} must be more than 0")
    return float(found[1]) * UNITS[found[2] or "s"]


def _values(given: Any) -> Any:
    return list(given) if isinstance(given, list | tuple) else [given]


Seconds = Annotated[float, BeforeValidator(seconds)]
Values = Annotated[tuple[str | bool | int, ...], BeforeValidator(_values)]
Kinds = Annotated[tuple[str, ...], BeforeValidator(lambda given: given.split(",") if isinstance(given, str) else given)]


class MatrixSection(StrictModel):
    """Describes a section of the matrix: every combination of its axes, with every mix of faults and every seed."""

    name: str = ""
    axes: dict[str, Values] = Field(default_factory=dict)
    faults: tuple[str, ...] = ()
    """Names the mixes of faults; empty: the kinds that `squall run` draws by itself."""
    seeds: int | None = Field(None, ge=1, le=10_000)
    """Is the number of seeds for each configuration and mix; None: as the matrix says."""
    time_s: float = Field(10, gt=0, le=86_400)
    warmup_s: float | None = Field(None, ge=0, le=600)
    rate: int | None = Field(None, ge=1, le=1_000_000)
    fault_count: int | None = Field(None, ge=1)
    clients: tuple[str, ...] = ()
    """Lists the client libraries that the user's program (the value of the axis `command`) needs, such as `aiokafka`.
    If this machine lacks one, the runs are left out.
    """

    def values(self) -> dict[str, tuple[str, ...]]:
        """Return a map from each axis to its values, as text."""
        return {axis: tuple(word(axis, each) for each in given) for axis, given in self.axes.items()}


class ExclusionRule(StrictModel):
    """Excludes combinations of values from the matrix. `where`: axis -> one or more values; all axes have to match."""

    where: dict[str, Values]
    why: str


class ExpectationRule(StrictModel):
    """Forbids anomalies in each configuration (cell) that matches `where`, even if the configuration permits them."""

    where: dict[str, Values] = Field(default_factory=dict)
    never: tuple[str, ...] = Field(min_length=1)
    """Lists the forbidden anomalies, such as `lost-write`."""


class Matrix(StrictModel):
    """Describes a whole night: its runs, its expectations and its limits."""

    budget: Seconds | None = None
    """Limits the seconds of the night; None: no limit."""
    seeds: int = Field(1, ge=1, le=10_000)
    seed: int | None = Field(None, ge=0, lt=1 << 62)
    """Is the first seed; None: derived from the night's date, so that each night tries other seeds."""
    unknown_share: float = Field(0.2, ge=0, le=1)
    """Limits the share of played runs without a verdict, 0 to 1. Above it the night shows too little (exit code 2)."""
    max_unplayed: float = Field(0.5, ge=0, le=1)
    """Limits the share of planned runs that were not played, 0 to 1. Above it the night shows too little (exit code 2).
    """
    run_limit: Seconds | None = None
    """Limits the seconds of one run; None: ten minutes, plus three times the seconds of its load."""
    retries: int = Field(1, ge=0, le=10)
    """Limits how often a run of unknown verdict is tried again. Simulations are not, because they would end in the same
    way.
    """
    keep_mib: int = Field(4096, ge=1)
    """Limits the size of the night's files, in MiB: run directories, Allure's results and page, the output of runs, and
    the report.
    """
    bootstrap: str = ""
    """Is the address, HOST:PORT, of the running cluster that is tested if the target is `external`."""
    faults: dict[str, Kinds] = Field(default_factory=dict)
    """Maps the name of a mix to its kinds of faults."""
    runs: tuple[MatrixSection, ...] = Field(min_length=1)
    exclude: tuple[ExclusionRule, ...] = ()
    expect: tuple[ExpectationRule, ...] = ()

    @model_validator(mode="after")
    def _relations(self) -> Self:
        if wrong := _mistakes(self):
            raise ValueError("\n".join(wrong))
        return self

    def kinds(self, mix: str) -> tuple[str, ...] | None:
        """Return the kinds of faults in the mix of this name; None: those that a run draws by itself."""
        if mix in self.faults:
            return self.faults[mix]
        return None if not mix else () if mix == NO_FAULTS else tuple(mix.split(","))


def meets(where: Mapping[str, tuple[Any, ...]], cell: Mapping[str, str]) -> bool:
    """Return whether a cell matches `where`: on each axis that `where` names, the cell has one of its values."""
    return all(cell.get(axis) in [word(axis, each) for each in values] for axis, values in where.items())


def _mistakes(matrix: Matrix) -> list[str]:
    wrong = []
    for mix, kinds in matrix.faults.items():
        wrong += [f"faults.{mix}: {line}" for line in _wrong_kinds(kinds)]
    for number, runs in enumerate(matrix.runs):
        wrong += [f"runs.{number}.axes.{line}" for line in _wrong_axes(runs.axes)]
        wrong += [f"runs.{number}.clients: there is no {name!r}: {', '.join(DISTRIBUTIONS)}"
                  for name in runs.clients if name not in DISTRIBUTIONS]  # fmt: skip
        for mix in runs.faults:
            if mix not in matrix.faults:
                unknown = _wrong_kinds(matrix.kinds(mix))
                wrong += [f"runs.{number}.faults: {_no_mix(mix, line, matrix)}" for line in unknown]
    wrong += _idle_axes(matrix.runs)
    for part in ("exclude", "expect"):
        for number, each in enumerate(getattr(matrix, part)):
            wrong += [f"{part}.{number}.where.{line}" for line in _wrong_axes(each.where)]
    for number, expect in enumerate(matrix.expect):
        wrong += [f"expect.{number}.never: {line}" for line in _wrong_anomalies(expect.never)]
    return wrong


def _wrong_axes(axes: Mapping[str, tuple[Any, ...]]) -> list[str]:
    wrong = []
    for axis, values in axes.items():
        if axis not in AXES:
            wrong.append(f"{axis}: there is no such axis: {did_you_mean(axis.replace('_', '-'), AXES)}")
            continue
        if not values:
            wrong.append(f"{axis}: no value is given")
        for value in values:
            try:
                word(axis, value)
            except ValueError as error:
                wrong.append(str(error))
    return wrong


def _idle_axes(parts: Iterable[MatrixSection]) -> Iterator[str]:
    """Yield a mistake for each axis that no workload of its section has. All runs of that axis would be equal."""
    workloads: dict[str, set[str]] = {}
    for runs in parts:
        for axis in runs.axes.keys() & AXES.keys():
            workloads.setdefault(axis, set()).update(map(str, runs.axes.get("workload", (DEFAULT,))))
    for axis, named in sorted(workloads.items()):
        having = workloads_of(axis)
        # An unknown workload is a mistake of its own, which _wrong_axes reports.
        if named <= {*SCENARIOS} and not named & {*having}:
            them = " and ".join(sorted(named))
            yield f"axis {axis} means nothing to the workload {them}: name one that has it, of {', '.join(having)}"


def _wrong_kinds(kinds: tuple[str, ...] | None) -> list[str]:
    try:
        parse_kinds(",".join(kinds or (NO_FAULTS,)))
    except FaultError as error:
        return str(error).splitlines()
    return []


def _no_mix(mix: str, line: str, matrix: Matrix) -> str:
    if not matrix.faults:
        return line
    return f"{mix!r} is neither a mix of this matrix ({', '.join(matrix.faults)}) nor a list of kinds: {line}"


def _wrong_anomalies(names: tuple[str, ...]) -> list[str]:
    from squall.checkers.anomalies.registry import CATALOG

    found = []
    for name in names:
        if name not in CATALOG:
            found.append(f"there is no anomaly {name!r}: {did_you_mean(name, CATALOG)}")
    return found


def make_matrix(values: Mapping[str, Any]) -> Matrix:
    """Return a checked matrix. Raise MatrixError with all mistakes."""
    try:
        return Matrix.model_validate(values)
    except ValidationError as error:
        # pydantic does not run the validators after a type error; _mistakes finds the other mistakes all the same.
        lines = dict.fromkeys((*_lines(error), *_mistakes(_as_far_as_it_goes(values))))
        raise MatrixError("\n".join(lines)) from None


def _as_far_as_it_goes(values: Mapping[str, Any]) -> Matrix:
    """Return a matrix of only the valid values, so that the names in them (axes, kinds of faults, anomalies) can be
    checked although other values are invalid.
    """
    faults = values.get("faults")
    mixes = {name: _texts(each) for name, each in faults.items()} if isinstance(faults, dict) else {}
    return Matrix.model_construct(
        faults=mixes,
        runs=tuple(
            MatrixSection.model_construct(
                axes=_sound(each.get("axes")),
                faults=_texts(each.get("faults"), split=False),
                clients=_texts(each.get("clients"), split=False),
            )
            for each in _tables(values.get("runs"))
        ),
        exclude=tuple(
            ExclusionRule.model_construct(where=_sound(each.get("where")), why="")
            for each in _tables(values.get("exclude"))
        ),
        expect=tuple(
            ExpectationRule.model_construct(
                where=_sound(each.get("where")), never=_texts(each.get("never"), split=False)
            )
            for each in _tables(values.get("expect"))
        ),
    )


def _tables(given: Any) -> list[Mapping[str, Any]]:
    """Return a list of TOML tables with an empty table in place of each entry that is no table, so that error messages
    number the others correctly. Return an empty list for anything but a list.
    """
    return [each if isinstance(each, dict) else {} for each in given] if isinstance(given, list) else []


def _texts(given: Any, *, split: bool = True) -> tuple[str, ...]:
    """Return the texts in a list. Entries that are no text are left out. split: accept one text as well, and split it
    at its commas.
    """
    if isinstance(given, str):
        return tuple(given.split(",")) if split else ()
    return tuple(each for each in given if isinstance(each, str)) if isinstance(given, list | tuple) else ()


def _sound(axes: Any) -> dict[str, tuple[Any, ...]]:
    """Return the axes with their valid values. An axis without any is left out, because that mistake is reported
    already.
    """
    pairs = axes.items() if isinstance(axes, dict) else ()
    kept = {axis: tuple(each for each in _values(given) if isinstance(each, str | bool | int)) for axis, given in pairs}
    return {axis: values for axis, values in kept.items() if values or axis not in AXES}


def _lines(error: ValidationError) -> list[str]:
    found: list[str] = []
    spoilt = {each["loc"][:1] for each in error.errors() if len(each["loc"]) > 1}
    for each in error.errors():
        where = ".".join(str(part) for part in each["loc"])
        message = str(each["msg"]).removeprefix("Value error, ")
        if each["type"] == "extra_forbidden":
            message = f"there is no such setting{_near(each['loc'])}"
        elif each["type"] == "too_short":
            if each["loc"] in spoilt:
                continue  # it is short because its entries are wrong, which is reported
            message = "names none, and needs one"
        elif len(each["loc"]) > 1 and each["loc"][-1] in ("str", "bool", "int"):
            # pydantic reports a value that has none of three types three times.
            where, message = ".".join(map(str, each["loc"][:-2])), f"{each['input']!r} is neither a word nor a number"
        else:
            message = in_plain_words(each) or message
            if where and not isinstance(given := each.get("input"), dict | list) and repr(given) not in message:
                message = f"{message} (given: {given!r})"
        found += [f"{where}: {line}" if where else line for line in message.splitlines()]
    return list(dict.fromkeys(found))


def _near(loc: tuple[int | str, ...]) -> str:
    models: dict[str, type[BaseModel]] = {"runs": MatrixSection, "exclude": ExclusionRule, "expect": ExpectationRule}
    model = Matrix if len(loc) < 2 else models.get(str(loc[0]), Matrix)
    return f": {did_you_mean(str(loc[-1]), model.model_fields)}"


def read_matrix(path: Path) -> Matrix:
    """Return the matrix in a TOML file. Raise MatrixError with all mistakes and their lines."""
    try:
        text = path.read_text()
        values = tomllib.loads(text)
    except FileNotFoundError:
        raise MatrixError(f"{path}: there is no such file") from None
    except tomllib.TOMLDecodeError as error:
        raise MatrixError(f"{path}: not TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise MatrixError(f"{path}: cannot be read: {error}") from None
    try:
        return make_matrix(values)
    except MatrixError as error:
        wrong = in_order(with_line(text, line) for line in str(error).splitlines())
        raise MatrixError("\n".join(f"{path}: {line}" for line in wrong)) from None


def varied(matrix: Matrix | None, axes: Mapping[str, tuple[str, ...]]) -> Matrix:
    """Return the matrix with these axes in each of its sections; for None, a matrix of these axes only. Raise
    MatrixError if the result is invalid.
    """
    if matrix is None:
        return make_matrix({"runs": [{"name": "by hand", "axes": dict(axes), "time_s": 30}]})
    values = plain(matrix)
    for runs in values["runs"]:
        runs["axes"] = {**runs.get("axes", {}), **axes}
    return make_matrix(values)


def plain(matrix: Matrix) -> dict[str, Any]:
    """Return the matrix as JSON values; `make_matrix` turns them into an equal matrix."""
    return matrix.model_dump(mode="json", exclude_defaults=True)


def write_matrix(matrix: Matrix) -> str:
    """Return the matrix as TOML text; `read_matrix` turns it into an equal matrix."""
    return tomli_w.dumps(plain(matrix))
