"""Reads `accepted.toml`, the list of findings that are accepted until a given day. Until then they fail no night. Each
entry names its finding by the fingerprint that nights and the durability report show.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from squall.chaos.plans.lines import in_order, with_line
from squall.chaos.plans.words import in_plain_words

FILE = "accepted.toml"
_PLACE = re.compile(r"\baccepted\.\d+\.")
"""Matches the beginning of a path such as `accepted.0.until`: entry 0, field `until`. Error messages leave it out,
because their line number already shows the entry.
"""

Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class AcceptedFileError(ValueError):
    """Is raised if the file of accepted findings cannot be used; the message lists all mistakes, one in each line."""


class AcceptedFinding(BaseModel):
    """Describes a finding that fails no night up to and including the day `until`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    fingerprint: Annotated[str, StringConstraints(pattern="^[0-9a-f]{12}$")]
    owner: Words
    """Names the person in charge of the finding."""
    until: date
    """Is the last day on which the finding is accepted, in UTC."""
    why: Words

    def expired(self, today: date) -> bool:
        """Return whether `today` is later than the last day on which the finding is accepted."""
        return today > self.until


class _AcceptedFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    accepted: tuple[AcceptedFinding, ...] = Field(default=())


def read_accepted(path: Path) -> dict[str, AcceptedFinding]:
    """Return the entries of a file by fingerprint, including expired ones. Raise AcceptedFileError if the file is
    invalid.
    """
    try:
        text = path.read_text()
        entries = _AcceptedFile.model_validate(tomllib.loads(text)).accepted
    except ValidationError as error:
        wrong = in_order(with_line(text, _told(each)) for each in error.errors())
        raise AcceptedFileError("\n".join(f"{path}: {_PLACE.sub('', line)}" for line in wrong)) from None
    except tomllib.TOMLDecodeError as error:
        raise AcceptedFileError(f"{path}: not TOML: {error}") from None
    except OSError as error:
        raise AcceptedFileError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise AcceptedFileError(f"{path}: not TOML: {error}") from None
    found: dict[str, AcceptedFinding] = {}
    for number, each in enumerate(entries):
        if each.fingerprint in found:
            line = with_line(text, f"accepted.{number}.fingerprint: {each.fingerprint} is accepted twice")
            raise AcceptedFileError(f"{path}: {_PLACE.sub('', line)}")
        found[each.fingerprint] = each
    return found


def _told(error: Mapping[str, Any]) -> str:
    where = ".".join(map(str, error["loc"]))
    fields = ", ".join(AcceptedFinding.model_fields)
    words = {
        "date_type": "a date is needed, without quotes: 2026-12-31",
        "extra_forbidden": f"there are: {fields}" if len(error["loc"]) > 1 else "there is only [[accepted]]",
        "string_pattern_mismatch": "12 hexadecimal digits are needed, as a night prints them",
        "string_too_short": "it must not be empty",
    }
    return f"{where}: {words.get(error['type']) or in_plain_words(error) or error['msg']}"
