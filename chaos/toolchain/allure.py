"""Fetches Allure 3 once by npm into the cache, and makes a page of a nightly run's Allure results with it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.toolchain.cache import Say, cache_folder, installed

VERSION = "3.18.0"
FOLDER = f"allure-{VERSION}"
"""Names the folder of Allure in the cache."""
FETCH_S, MAKE_S = 300, 300
PAGE = "index.html"
WITHOUT = "the Allure page is made where Node is: npm was not found on PATH (Debian: apt-get install npm)"

_COUNTER = re.compile(
    r'<script async src="https://www\.googletagmanager\.com/[^>]*></script>\s*<script>\s*window\.dataLayer.*?</script>',
    flags=re.S,
)


def make_page(results: Path, folder: Path, name: str, say: Say) -> Path:
    """Make one HTML file, with the title `name`, from the Allure results in the folder `results`. Write it into
    `folder` and return its path. The page opens without network.

    Raise PreconditionError if npm or Node.js is missing; HarnessError if Allure cannot be fetched or fails.
    """
    npm = npm_here()
    if npm is None:
        raise PreconditionError(WITHOUT)
    there = installed(FOLDER, lambda into: _fetch(npm, into, say))
    program = str(there / "node_modules/.bin/allure")
    words = ["awesome", "--single-file", "--output", str(folder), "--report-name", name]
    words += ["--group-by", "parentSuite,suite,subSuite", str(results)]
    _call([program, *words], MAKE_S, "Allure made no page")
    page = folder / PAGE
    if not page.exists():
        raise HarnessError(f"Allure made no page: {page} is not there")
    page.write_text(without_counter(page.read_text()))
    return page


def npm_here() -> str | None:
    """Return the path of npm; None if npm or Node.js is not on PATH."""
    return shutil.which("npm") if shutil.which("node") else None


def allure_here() -> bool:
    """Return whether Allure was fetched."""
    return (cache_folder() / FOLDER).is_dir()


def without_counter(page: str) -> str:
    """Return Allure's page without its counter of visitors, which would use the network."""
    return _COUNTER.sub("", page)


def _fetch(npm: str, folder: Path, say: Say) -> None:
    say(f"fetching Allure {VERSION} with npm, once ...")
    words = ["install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    _call([npm, *words, f"allure@{VERSION}"], FETCH_S, f"npm could not fetch Allure {VERSION}")


def _call(command: list[str], limit_s: float, trouble: str) -> None:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HarnessError(f"{trouble}: {error}") from None
    if done.returncode:
        words = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise HarnessError(f"{trouble}: {words[-1] if words else f'exit code {done.returncode}'}")
