"""Describes a setting: its name, type, default and range, and how its text is read and written.

The names, types, defaults and ranges are those of Apache Kafka 4.2 where it has the setting. Types carry the codes of
DescribeConfigs, so that a setting can describe itself on the wire.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import IntEnum
from functools import cache
from itertools import pairwise
from math import isfinite
from typing import Any, NamedTuple

INT_MAX = 2**31 - 1
SHORT_MAX = 2**15 - 1
LONG_MAX = 2**63 - 1


class ConfigError(ValueError):
    """A setting that cannot be: unknown, unreadable, out of range, or at odds with another. The caller's fault.

    `setting` is the name at fault. `each` has one error for each mistake, where several were found.
    """

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting
        self.each: tuple[ConfigError, ...] = (self,)

    @classmethod
    def of(cls, errors: Sequence[ConfigError]) -> ConfigError:
        """All of these as one, a line for each."""
        together = cls(errors[0].setting, "\n".join(map(str, errors)))
        together.each = tuple(errors)
        return together


class ConfigType(IntEnum):
    """Type of a setting: DescribeConfigs' ConfigType."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


JAVA_BLANKS = "".join(map(chr, range(33)))
"""What Java's String.trim removes at both ends: no other blanks."""

LIMITS = {
    ConfigType.INT: (-(2**31), INT_MAX),
    ConfigType.SHORT: (-(2**15), SHORT_MAX),
    ConfigType.LONG: (-(2**63), LONG_MAX),
}


class Endpoint(NamedTuple):
    """A listener: its name ("CLIENT") and the address where it listens, or that it advertises to clients."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{_bracketed(self.host)}:{self.port}"


class NodeAddress(NamedTuple):
    """Represents the address of a node."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.node_id}@{_bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class Setting:
    """Describes one setting. `low` and `high` are inclusive; None where the type's own limits are the only ones."""

    name: str
    kind: ConfigType
    default: Any = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    item: Callable[[str], Any] | None = None
    """For lists: reads one item; ValueError says what it should be."""
    required: bool = False

    def parse(self, text: str) -> Any:
        """The value that `text` stands for. ConfigError names the setting, the text and what is allowed."""
        text = text.strip(JAVA_BLANKS)
        try:
            value = self._read(text)
        except ValueError as fault:
            raise ConfigError(self.name, f"{self.name}={text}: {fault}") from None
        return value

    def _read(self, text: str) -> Any:
        if self.kind is ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ValueError("should be true or false")
            return text.lower() == "true"
        if self.kind is ConfigType.STRING:
            return self._chosen(text)
        if self.kind is ConfigType.LIST:
            items = [self._chosen(part.strip()) for part in text.split(",") if part.strip()]
            return tuple(self.item(part) for part in items) if self.item else tuple(items)
        return self._number(text)

    def _number(self, text: str) -> float:
        number = read_double(text) if self.kind is ConfigType.DOUBLE else read_whole(text)
        smallest, largest = LIMITS.get(self.kind, (None, None))
        low = self.low if self.low is not None else smallest
        high = self.high if self.high is not None else largest
        if (low is not None and not number >= low) or (high is not None and not number <= high):
            raise ValueError(f"should be {_range(low, high)}")
        return number

    def _chosen(self, text: str) -> str:
        if self.choices and text not in self.choices:
            raise ValueError(f"should be one of {', '.join(self.choices)}")
        return text

    def render(self, value: Any) -> str | None:
        """The text that `parse` reads as `value`; None for a setting without a value."""
        if value is None:
            return None
        if self.kind is ConfigType.BOOLEAN:
            return "true" if value else "false"
        if self.kind is ConfigType.LIST:
            return ",".join(str(item) for item in value)
        return _as_java(value) if self.kind is ConfigType.DOUBLE else str(value)


_WHOLE = re.compile(r"[+-]?[0-9]{1,1000}")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]{1,1000}\.?[0-9]{0,1000}|\.[0-9]{1,1000})(?:[eE][+-]?[0-9]{1,1000})?[fFdD]?")


def read_whole(text: str) -> int:
    """A whole number as Java's Long.parseLong reads it: a sign or none, and digits. Python's int() takes more, such as
    "1_000". ValueError where it is none. (Java takes the digits of other scripts, too.)
    """
    if _WHOLE.fullmatch(text) is None:
        raise ValueError("should be a whole number")
    return int(text)


def read_double(text: str) -> float:
    """A decimal number as Java's Double.parseDouble reads it, with "d" or "f" behind it or not. ValueError where it is
    none, or not finite. (Java reads "NaN", "Infinity" and hexadecimal ones, too.)
    """
    if _DOUBLE.fullmatch(text) is None or not isfinite(number := float(text.rstrip("fFdD"))):
        raise ValueError("should be a number")
    return number


def _as_java(value: float) -> str:
    """As Java writes a double: with an exponent from 10^7 on and below 10^-3."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    mantissa, _, exponent = f"{Decimal(repr(float(value))).normalize():E}".partition("E")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return f"at least {low}"
    return f"from {low} to {high}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_digits(text: str) -> bool:
    return text.isdecimal() and text.isascii()


def _host_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not _is_digits(port) or int(port) > 65535:
        raise ValueError(f"{text!r} should end in a host and a port, such as 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def read_endpoint(text: str) -> Endpoint:
    """`NAME://host:port`. ValueError where it is not."""
    name, separator, address = text.partition("://")
    if not separator or not name.replace("_", "").isalnum():
        raise ValueError(f"{text!r} should look like CLIENT://127.0.0.1:9092")
    return Endpoint(name.upper(), *_host_port(address))


def read_server(text: str) -> str:
    """`host:port`, as it is written. ValueError where it is not."""
    _host_port(text)
    return text


def read_node_address(text: str) -> NodeAddress:
    """`id@host:port`. ValueError where it is not."""
    node_id, at, address = text.partition("@")
    if not at or not _is_digits(node_id):
        raise ValueError(f"{text!r} should look like 1@127.0.0.1:9093")
    return NodeAddress(int(node_id), *_host_port(address))


FEATURE_LEVELS = {
    "eligible.leader.replicas.version": (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "metadata.version": (29, 30),
}
"""Features whose level may be chosen for a new cluster, with the lowest and the highest one."""


class FeatureLevel(NamedTuple):
    """A feature and the level that it is to have."""

    name: str
    level: int

    def __str__(self) -> str:
        return f"{self.name}={self.level}"


def read_feature(text: str) -> FeatureLevel:
    """`name=level`. ValueError where it is not, or names what there is not."""
    name, _, level = text.partition("=")
    low, high = FEATURE_LEVELS.get(name, (1, 0))
    if not (level.isdecimal() and level.isascii() and low <= int(level) <= high):
        allowed = ", ".join(f"{known}={least}..{most}" for known, (least, most) in FEATURE_LEVELS.items())
        raise ValueError(f"{text!r} should be one of {allowed}")
    return FeatureLevel(name, int(level))


def unknown(what: str, name: str, names: Iterable[str]) -> ConfigError:
    """The error for a name that is none of the known ones, with the nearest of them where one is near."""
    near = nearest(name, names)
    return ConfigError(name, f"unknown {what} {name}" + (f": did you mean {near}?" if near else ""))


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The known name that an unknown one was most likely meant to be: it shares the most pairs of neighbouring letters
    (Dice's coefficient). None where even that shares few. A request may hold thousands of unknown names, so this is
    quick.
    """
    pairs = _pairs(name[:LONGEST_COMPARED])
    best, most = None, LEAST_SHARED
    for known in names:
        theirs = _known_pairs(known)
        share = len(pairs & theirs) / (len(pairs) + len(theirs))
        if share > most:
            best, most = known, share
    return best


LEAST_SHARED = 0.18
"""Of the pairs of both names. Two that are alike have 0.5."""
LONGEST_COMPARED = 60
"""Characters of an unknown name that are looked at: as many as the longest known names have."""


def _pairs(name: str) -> frozenset[str]:
    framed = f" {name} "
    return frozenset(map("".join, pairwise(framed)))


_known_pairs = cache(_pairs)


class Properties(NamedTuple):
    """A properties text that was read. lines: the number of each name's line. errors: of lines without a setting."""

    values: dict[str, str]
    lines: dict[str, int]
    errors: list[ConfigError]

    def line_of(self, error: ConfigError) -> int | None:
        """The number of the line that an error is about; None where it is about no line.

        An error of two settings may be filed under the one that was not given.
        """
        if error.setting in self.lines:
            return self.lines[error.setting]
        about = (line for name, line in self.lines.items() if re.search(rf"(?<![\w.]){re.escape(name)}=", str(error)))
        return min(about, default=None)


BYTE_ORDER_MARK = "\ufeff"


def read_properties(text: str) -> Properties:
    """A Java-style properties text: `name=value` or `name: value` lines, `#` and `!` comments, `\\` continues a line.

    A name given twice is an error: one of the two would be silently lost.
    """
    found = Properties({}, {}, [])
    if text.startswith(BYTE_ORDER_MARK):
        text = text.removeprefix(BYTE_ORDER_MARK)
        found.errors.append(ConfigError("", "line 1: the file begins with a byte order mark: save it without one"))
    for number, line in _logical_lines(text):
        cut = min((at for at in (line.find("="), line.find(":")) if at >= 0), default=-1)
        name = line[:cut].strip()
        if cut <= 0:
            found.errors.append(ConfigError("", f"line {number}: {line!r} should look like name=value"))
        elif name in found.values:
            found.errors.append(ConfigError(name, f"line {number}: {name} is given twice"))
        else:
            found.values[name], found.lines[name] = line[cut + 1 :].strip(), number
    return found


def parse_properties(text: str) -> dict[str, str]:
    """The values of a properties text. ConfigError for its errors."""
    found = read_properties(text)
    if found.errors:
        raise ConfigError.of(found.errors)
    return found.values


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    held, began = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not held and (not line or line[0] in "#!"):
            continue
        began = began if held else number
        if line.endswith("\\"):
            held += line[:-1]
            continue
        yield began, held + line
        held = ""
    if held:
        yield began, held


# How the fields of a configuration class are declared. The name follows from the attribute: `node_id` is `node.id`.


def _declare(kind: ConfigType, default: Any, **traits: Any) -> Any:
    required = default is ...
    metadata = {"kind": kind, "required": required, **traits}
    return field(metadata=metadata) if required else field(default=default, metadata=metadata)


def integer(default: Any, low: int | None = None, high: int | None = None) -> Any:
    """A 32-bit number; `...` for one that must be given."""
    return _declare(ConfigType.INT, default, low=low, high=high)


def short(default: Any, low: int | None = None, high: int | None = None) -> Any:
    """A 16-bit number."""
    return _declare(ConfigType.SHORT, default, low=low, high=high)


def long(default: Any, low: int | None = None, high: int | None = None) -> Any:
    """A 64-bit number."""
    return _declare(ConfigType.LONG, default, low=low, high=high)


def ratio(default: float, low: float = 0.0, high: float | None = 1.0) -> Any:
    """A floating-point number."""
    return _declare(ConfigType.DOUBLE, default, low=low, high=high)


def flag(default: bool) -> Any:
    """true or false."""
    return _declare(ConfigType.BOOLEAN, default)


def text(default: str | None, *choices: str) -> Any:
    """A string, one of `choices` where there are any."""
    return _declare(ConfigType.STRING, default, choices=choices)


def listing(default: tuple[Any, ...], *choices: str, item: Callable[[str], Any] | None = None) -> Any:
    """Comma-separated items."""
    return _declare(ConfigType.LIST, default, choices=choices, item=item)


def declared(fields: Iterable[Any]) -> Mapping[str, Setting]:
    """The settings of a configuration class by name, from its dataclass fields."""
    settings = {}
    for each in fields:
        if "kind" in each.metadata:
            name = each.name.replace("_", ".")
            default = None if each.metadata["required"] else each.default
            settings[name] = Setting(name=name, default=default, **each.metadata)
    return settings
