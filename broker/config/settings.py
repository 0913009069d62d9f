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
    """Says that a setting is unknown, unreadable, out of range, or at odds with another. It is the caller's fault.

    `setting` names the setting. `each` has one error for each mistake if several were found.
    """

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting
        self.each: tuple[ConfigError, ...] = (self,)

    @classmethod
    def of(cls, errors: Sequence[ConfigError]) -> ConfigError:
        """Return one error for all errors, with a line for each."""
        together = cls(errors[0].setting, "\n".join(map(str, errors)))
        together.each = tuple(errors)
        return together


class ConfigType(IntEnum):
    """Enumerates the types of settings, with the codes of DescribeConfigs' ConfigType."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


JAVA_BLANKS = "".join(map(chr, range(33)))
"""Lists the characters that Java's String.trim removes at both ends."""

LIMITS = {
    ConfigType.INT: (-(2**31), INT_MAX),
    ConfigType.SHORT: (-(2**15), SHORT_MAX),
    ConfigType.LONG: (-(2**63), LONG_MAX),
}


class Endpoint(NamedTuple):
    """Represents a listener: its name ("CLIENT") and the address where it listens, or that it advertises to clients."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{_bracketed(self.host)}:{self.port}"


class NodeAddress(NamedTuple):
    """Represents a node by its id, host and port, such as a voter in controller.quorum.voters."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.node_id}@{_bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class Setting:
    """Describes one setting. `low` and `high` are inclusive, or None if only the limits of the type apply."""

    name: str
    kind: ConfigType
    default: Any = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    item: Callable[[str], Any] | None = None
    """Reads one item of a list. Its ValueError describes a valid item."""
    required: bool = False

    def parse(self, text: str) -> Any:
        """Return the value of `text`. A ConfigError names the setting, the text and the allowed values."""
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
        """Return the text that `parse` reads as `value`, or None for a setting without a value."""
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
    """Return a whole number as Java's Long.parseLong reads it: an optional sign, and digits. Raise ValueError if the
    text is no such number. Python's int() accepts more, such as "1_000". (Java also accepts the digits of other
    scripts.)
    """
    if _WHOLE.fullmatch(text) is None:
        raise ValueError("should be a whole number")
    return int(text)


def read_double(text: str) -> float:
    """Return a decimal number as Java's Double.parseDouble reads it, with or without a final "d" or "f". Raise
    ValueError if the text is no finite number. (Java also reads "NaN", "Infinity" and hexadecimal numbers.)
    """
    if _DOUBLE.fullmatch(text) is None or not isfinite(number := float(text.rstrip("fFdD"))):
        raise ValueError("should be a number")
    return number


def _as_java(value: float) -> str:
    """Return a double as Java writes it: with an exponent from 10^7 on and below 10^-3."""
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
    """Return the endpoint that `NAME://host:port` describes. Raise ValueError for other text."""
    name, separator, address = text.partition("://")
    if not separator or not name.replace("_", "").isalnum():
        raise ValueError(f"{text!r} should look like CLIENT://127.0.0.1:9092")
    return Endpoint(name.upper(), *_host_port(address))


def read_server(text: str) -> str:
    """Return the text if it is `host:port`. Raise ValueError for other text."""
    _host_port(text)
    return text


def read_node_address(text: str) -> NodeAddress:
    """Return the address that `id@host:port` describes. Raise ValueError for other text."""
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
"""Maps the features whose level may be chosen for a new cluster to their lowest and highest level."""


class FeatureLevel(NamedTuple):
    """Holds a feature and the level that it gets in a new cluster."""

    name: str
    level: int

    def __str__(self) -> str:
        return f"{self.name}={self.level}"


def read_feature(text: str) -> FeatureLevel:
    """Return the feature level that `name=level` describes. Raise ValueError for other text, an unknown feature or
    level.
    """
    name, _, level = text.partition("=")
    low, high = FEATURE_LEVELS.get(name, (1, 0))
    if not (level.isdecimal() and level.isascii() and low <= int(level) <= high):
        allowed = ", ".join(f"{known}={least}..{most}" for known, (least, most) in FEATURE_LEVELS.items())
        raise ValueError(f"{text!r} should be one of {allowed}")
    return FeatureLevel(name, int(level))


def unknown(what: str, name: str, names: Iterable[str]) -> ConfigError:
    """Return the error for an unknown name. It suggests the nearest of the known `names` if one is near. `what` says
    what the name belongs to, for example "topic setting".
    """
    near = nearest(name, names)
    return ConfigError(name, f"unknown {what} {name}" + (f": did you mean {near}?" if near else ""))


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the known name that an unknown name was most likely meant to be: the one that shares the most pairs of
    neighbouring letters (Dice's coefficient). Return None if even that name shares few. A request may hold thousands of
    unknown names, so this must be quick.
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
"""Is the share of common letter pairs above which `nearest` suggests a known name. The share is the number of common
pairs, divided by the number of pairs in both names together, so equal names have 0.5.
"""
LONGEST_COMPARED = 60
"""Limits the characters of an unknown name that are compared: as many as the longest known names have."""


def _pairs(name: str) -> frozenset[str]:
    # With blanks around it, the first and the last letter are in a pair of their own, and so count more.
    framed = f" {name} "
    return frozenset(map("".join, pairwise(framed)))


_known_pairs = cache(_pairs)


class Properties(NamedTuple):
    """Holds a parsed properties text. `lines` maps each name to its line number; `errors` lists the mistakes of lines
    that define no setting.
    """

    values: dict[str, str]
    lines: dict[str, int]
    errors: list[ConfigError]

    def line_of(self, error: ConfigError) -> int | None:
        """Return the number of the line that caused an error, or None if no line did.

        An error about two settings may name the one that the text does not set; then the line of the other is returned.
        """
        if error.setting in self.lines:
            return self.lines[error.setting]
        about = (line for name, line in self.lines.items() if re.search(rf"(?<![\w.]){re.escape(name)}=", str(error)))
        return min(about, default=None)


BYTE_ORDER_MARK = "\ufeff"


def read_properties(text: str) -> Properties:
    """Parse a Java-style properties text: `name=value` or `name: value` lines, `#` and `!` comments, `\\` continues a
    line.

    A name given twice is an error: one of the two values would be silently lost.
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
    """Return the values of a properties text. Raises ConfigError for its errors."""
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
    """Declare a setting that is a 32-bit number. The default `...` means that the setting must be given."""
    return _declare(ConfigType.INT, default, low=low, high=high)


def short(default: Any, low: int | None = None, high: int | None = None) -> Any:
    """Declare a setting that is a 16-bit number."""
    return _declare(ConfigType.SHORT, default, low=low, high=high)


def long(default: Any, low: int | None = None, high: int | None = None) -> Any:
    """Declare a setting that is a 64-bit number."""
    return _declare(ConfigType.LONG, default, low=low, high=high)


def ratio(default: float, low: float = 0.0, high: float | None = 1.0) -> Any:
    """Declare a setting that is a floating-point number."""
    return _declare(ConfigType.DOUBLE, default, low=low, high=high)


def flag(default: bool) -> Any:
    """Declare a setting that is true or false."""
    return _declare(ConfigType.BOOLEAN, default)


def text(default: str | None, *choices: str) -> Any:
    """Declare a setting that is a string, which must be one of `choices` if there are any."""
    return _declare(ConfigType.STRING, default, choices=choices)


def listing(default: tuple[Any, ...], *choices: str, item: Callable[[str], Any] | None = None) -> Any:
    """Declare a setting that is a list of comma-separated items. Each item must be one of `choices` if there are any,
    and is converted by `item` if that is given.
    """
    return _declare(ConfigType.LIST, default, choices=choices, item=item)


def declared(fields: Iterable[Any]) -> Mapping[str, Setting]:
    """Return the settings that the dataclass fields of a configuration class declare, by name."""
    settings = {}
    for each in fields:
        if "kind" in each.metadata:
            name = each.name.replace("_", ".")
            default = None if each.metadata["required"] else each.default
            settings[name] = Setting(name=name, default=default, **each.metadata)
    return settings
