"""The package's description (README.md in wheel and sdist) renders as in a package index, without dead links."""

from __future__ import annotations

import email
import json
import re
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.browser import Browser
from tests.support.installed import ROOT, Installed

pytestmark = pytest.mark.night("makes an environment with pip: minutes")
LEADS = re.compile(r'<(?:a|img)\b[^>]*?\b(?:href|src)="([^"]*)"')
ADDRESS = "https://example.org/squall/blob/main/"
RENDER = """
import json, runpy, sys
from readme_renderer.markdown import render
described = runpy.run_path(sys.argv[1])["described"]
text = open(sys.argv[2], encoding="utf-8").read()
print(json.dumps([render(text), render(described(open(sys.argv[3], encoding="utf-8").read(), sys.argv[4]))]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"), "", "hatchling", "readme-renderer[md]")


@pytest.fixture(scope="module")
def built(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an sdist, a wheel, and in `again/` a wheel that pip built from the sdist."""
    folder = tmp_path_factory.mktemp("built")
    made = installed.python("-m", "hatchling", "build", "-d", str(folder), path=True, where=ROOT)
    assert made.returncode == 0, made.stderr
    (sdist,) = folder.glob("*.tar.gz")
    words = ("wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder / "again"), str(sdist))
    made = installed.python("-m", "pip", *words, path=True)
    assert made.returncode == 0, made.stderr
    return folder


def of_wheel(folder: Path) -> str:
    """Return the description in the metadata of the folder's wheel."""
    (wheel,) = folder.glob("*.whl")
    with ZipFile(wheel) as packed:
        (name,) = (each for each in packed.namelist() if each.endswith(".dist-info/METADATA"))
        return description(packed.read(name))


def description(metadata: bytes) -> str:
    parsed = email.message_from_bytes(metadata)
    assert parsed["Description-Content-Type"] == "text/markdown"
    text = parsed.get_payload(decode=True)
    assert isinstance(text, bytes)
    return text.decode()


def test_wheel_and_sdist_have_one_description_and_its_links_work(
    installed: Installed, built: Path, tmp_path: Path
) -> None:
    text = of_wheel(built)
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        top = sdist.name.removesuffix(".tar.gz")
        info = packed.extractfile(f"{top}/PKG-INFO")
        assert info is not None
        assert description(info.read()) == text == of_wheel(built / "again")
        names = {each.removeprefix(f"{top}/") for each in packed.getnames()}
    (tmp_path / "text.md").write_text(text)
    words = (str(ROOT / "hatch_build.py"), str(tmp_path / "text.md"), str(ROOT / "README.md"), ADDRESS)
    done = installed.python("-c", RENDER, *words)
    assert done.returncode == 0, done.stderr
    page, with_address = json.loads(done.stdout)
    assert [each for each in LEADS.findall(page) if not each.startswith(("#", "https://"))] == []
    named = set(re.findall(r"`((?:docs/)?[\w/-]+\.md)`", text))
    assert "docs/tutorial.md" in named
    assert named <= names, "it says that they are in the source distribution"
    leads = [each for each in LEADS.findall(with_address) if not each.startswith("#")]
    files = [each.removeprefix(ADDRESS).removesuffix("?raw=true").partition("#")[0] for each in leads]
    assert len(files) > 40
    assert [each for each in files if not (ROOT / each).is_file()] == []
    (tmp_path / "page.html").write_text(f'<meta charset="utf-8">{page}')
    with Browser() as browser:
        shown = browser.open(tmp_path / "page.html")
        assert shown.troubles() == []
        assert shown.evaluate("document.querySelector('h1').innerText") == "Squall"
        assert shown.evaluate("document.querySelectorAll('table').length") == page.count("<table") > 5
        assert "](" not in shown.evaluate("document.body.innerText")
