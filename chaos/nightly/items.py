"""Turns a matrix into the runs of a night, each with its configuration, faults, seed and command. It does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from squall.chaos.faults.kind import FaultError
from squall.chaos.nightly.axes import EXTERNAL, Cell, ImpossibleCombination, cell_of, flags_of, plan_of, slug, title
from squall.chaos.nightly.matrix import Matrix, MatrixSection, meets
from squall.chaos.plans.plan import PlanError, with_schedule

DRAWN = "drawn"
"""Is the word for faults that a run draws by itself."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """Describes one planned run of a night."""

    item: str
    """Is the run's id, which also names its files: configuration, mix of faults, seed."""
    cell: Cell
    faults: str
    """Lists the kinds of faults, such as "kill,latency"; "none" for no faults; `DRAWN` if the run draws its faults
    itself.
    """
    mix: str
    """Is the matrix's name for the mix of faults."""
    seed: int
    time_s: float
    arguments: tuple[str, ...]
    """Holds the arguments of the `squall` program, without the folder for runs."""
    part: str = ""
    """Names the section of the matrix that the run belongs to."""
    clients: tuple[str, ...] = ()
    """Lists the client libraries that the user's program (the value of the axis `command`) needs, such as `aiokafka`.
    """

    @property
    def runtime(self) -> str:
        """Returns the runtime of the run's brokers, such as "process"."""
        return self.cell["runtime"]

    @property
    def configuration(self) -> str:
        """Returns the name of the run's configuration."""
        return title(self.cell)

    def as_json(self) -> dict[str, Any]:
        """Return the run as night.json contains it."""
        axes = ("workload", "target", "runtime", "client")
        named = {name: self.cell.get(name, "squall") for name in axes}
        return {**asdict(self), "cell": dict(self.cell), "configuration": self.configuration, **named}


def item_of(entry: Mapping[str, Any]) -> PlannedRun:
    """Return the run that an entry of night.json describes. Raise KeyError or TypeError if the entry is invalid."""
    plain = {name: entry[name] for name in ("item", "cell", "faults", "mix", "seed", "time_s", "part")}
    return PlannedRun(arguments=tuple(entry["arguments"]), clients=tuple(entry.get("clients", ())), **plain)


@dataclass(frozen=True, slots=True)
class ExcludedCombination:
    """Names a combination of values that is not run, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class NightPlan:
    """Holds the runs that a matrix asks for, in the order of the matrix, and the combinations that cannot be run."""

    items: tuple[PlannedRun, ...]
    excluded: tuple[ExcludedCombination, ...]


def plan_night(matrix: Matrix, first_seed: int, seeds: int | None = None) -> NightPlan:
    """Return the runs of a night. `seeds`: the number of seeds for each configuration and mix of faults; None: as the
    matrix says.
    """
    items: dict[str, PlannedRun] = {}
    excluded: dict[ExcludedCombination, None] = {}
    for section in matrix.runs:
        mixes = section.faults or ("",)
        for cell in _cells(matrix, section, excluded):
            numbers = range(first_seed, first_seed + (seeds or section.seeds or matrix.seeds))
            for seed, mix in product(numbers, mixes):
                made = _item(matrix, section, cell, mix, seed)
                if isinstance(made, ExcludedCombination):
                    excluded.setdefault(made)
                else:
                    items.setdefault(made.item, made)  # parts of a matrix may overlap
    return NightPlan(tuple(items.values()), tuple(excluded))


def idle(matrix: Matrix, items: Iterable[PlannedRun]) -> list[str]:
    """Return, as text, the conditions (`where`) of those expectation rules in the matrix that match none of these runs,
    such as "acks=1 workload=appends".
    """
    cells = [each.cell for each in items]
    return [
        " ".join(f"{axis}={','.join(map(str, values))}" for axis, values in each.where.items())
        for each in matrix.expect
        if not any(meets(each.where, cell) for cell in cells)
    ]


def _cells(matrix: Matrix, section: MatrixSection, excluded: dict[ExcludedCombination, None]) -> Iterator[Cell]:
    """Yield the configurations of a section, each once. An axis that a workload does not have is left out of its
    configurations, so several values of the axis give one configuration.
    """
    axes = section.values()
    seen: list[Cell] = []
    for values in product(*axes.values()):
        named = dict(zip(axes, values, strict=True))
        said = " ".join(f"{axis}={value}" for axis, value in named.items()) or "everything as it always is"
        try:
            cell = cell_of(named)
        except ImpossibleCombination as senseless:
            excluded.setdefault(ExcludedCombination(said, str(senseless)))
            continue
        if why := next((each.why for each in matrix.exclude if meets(each.where, cell)), ""):
            excluded.setdefault(ExcludedCombination(said, why))
        elif cell not in seen:
            seen.append(cell)
            yield cell


def _item(matrix: Matrix, section: MatrixSection, cell: Cell, mix: str, seed: int) -> PlannedRun | ExcludedCombination:
    kinds = matrix.kinds(mix)
    faults = DRAWN if kinds is None else ",".join(kinds) or "none"
    if wrong := _impossible(cell, kinds, section):
        return ExcludedCombination(f"{title(cell)} with faults {faults}", wrong)
    word = mix.replace(",", "-").replace("_", "-") or DRAWN  # containers have the id in their names, and no + there
    arguments = ["sim" if cell["runtime"] == "sim" else "run", "--seed", str(seed), "--time", f"{section.time_s:g}"]
    if faults != DRAWN:
        arguments += ["--faults", faults]
    for flag in ("warmup", "rate", "fault_count"):
        value = section.warmup_s if flag == "warmup" else getattr(section, flag)
        if value is not None:
            arguments += [f"--{flag.replace('_', '-')}", f"{value:g}"]
    if cell["runtime"] == EXTERNAL:
        arguments += ["--bootstrap", matrix.bootstrap]
    arguments += flags_of(cell)
    if cell["runtime"] == "sim":
        arguments.append("--page")  # a night's report and Allure link to the page of each run
    name = f"{slug(cell)}.{word}.seed{seed}"
    return PlannedRun(
        name, cell, faults, mix or DRAWN, seed, section.time_s, tuple(arguments), section.name, section.clients
    )


def _impossible(cell: Cell, kinds: Sequence[str] | None, section: MatrixSection) -> str:
    """Return why this configuration cannot have faults of these kinds; empty if it can. kinds: None if the run draws
    them. An external cluster is checked later, by the run.
    """
    if cell["runtime"] == EXTERNAL:
        return ""
    warmup = {} if section.warmup_s is None else {"warmup_s": section.warmup_s}
    try:
        bare = plan_of(cell, seed=1, time_s=section.time_s, **warmup)
        values = {name: value for name, value in bare.model_dump(mode="json").items() if name != "faults"}
        with_schedule(values, None if kinds is None else tuple(kinds), section.fault_count)
    except (PlanError, FaultError, ImpossibleCombination) as wrong:
        return "; ".join(str(wrong).splitlines())
    return ""
