""".ci/release refuses what cannot be released, updates the changelog, and builds the same bytes each time or reports
it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from squall.chaos import __version__
from tests.support.lacks import skip_without

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {
    f"GIT_{who}_{what}": "release@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "squall"
requires-python = ">=3.11"
dynamic = ["version"]
[tool.hatch]
version.path = "chaos/__init__.py"
build.hooks.custom.path = "hatch_build.py"
[tool.hatch.build.targets.wheel]
only-include = ["chaos"]
"""
HOOK = """
import time
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Hook(BuildHookInterface):
    def initialize(self, version, build_data):
        if {differs}:
            with open(self.root + "/chaos/built_at", "w") as file:
                file.write(str(time.time_ns()))
            build_data["artifacts"].append("chaos/built_at")
"""


class Checkout:
    """A small project with Squall's release script, settings of towncrier and pinned tools."""

    def __init__(self, folder: Path, differs: bool = False) -> None:
        if shutil.which("git") is None:
            skip_without("git", "as root: apt-get install -y git")
        self.folder = folder
        (folder / ".ci").mkdir(parents=True)
        for name in (".ci/release", ".ci/release.txt", ".gitignore"):
            shutil.copy(ROOT / name, folder / name)
        towncrier = (ROOT / "pyproject.toml").read_text().partition("[tool.towncrier]")
        self.write("pyproject.toml", PROJECT + "".join(towncrier[1:]))
        self.write("hatch_build.py", HOOK.format(differs=differs))
        self.write("chaos/__init__.py", '__version__ = "0.1.0"\n')
        self.write("CHANGELOG.md", "# Changes\n\n<!-- towncrier release notes start -->\n\n## 0.1.0\n\nThe first.\n")
        self.write("changes/.gitkeep", "")
        self.git("init", "--quiet")
        self.commit()

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    def git(self, *words: str) -> str:
        """Return what git prints."""
        command = ["git", "-C", self.folder, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | ENVIRONMENT).stdout

    def commit(self) -> None:
        """Commit all there is."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "all: change something")

    def release(self, *words: str, code: int = 0) -> str:
        """Run the script, assert its exit code, and return its output."""
        return released(self.folder, *words, code=code)


def released(folder: Path, *words: str, code: int = 0) -> str:
    command = [folder / ".ci/release", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | ENVIRONMENT)
    if "could not install .ci/release.txt" in done.stderr:
        skip_without("a package index", "a network that pip reaches")
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "checkout")


def test_help_has_examples_and_a_wrong_option_is_refused() -> None:
    assert ".ci/release --tag && git push" in released(ROOT, "--help")
    assert "no option --push: .ci/release --help" in released(ROOT, "--push", code=3)


def test_what_is_no_commit_is_not_released(checkout: Checkout) -> None:
    checkout.write("new", "")
    assert "commit them, or put them away (git stash -u):\n?? new" in checkout.release(code=3)
    shutil.rmtree(checkout.folder / ".git")
    assert "is no git checkout" in checkout.release(code=3)


def test_a_version_is_one_commit(checkout: Checkout) -> None:
    checkout.git("tag", "-a", "-m", "x", "v0.1.0")
    assert "the tag v0.1.0 is already here, on this commit" in checkout.release("--tag", code=3)
    checkout.write("new", "")
    checkout.commit()
    assert "v0.1.0 is the tag of another commit" in checkout.release(code=3)
    checkout.write("chaos/__init__.py", '__version__ = "next"\n')
    checkout.commit()
    assert 'has no line __version__ = "X.Y.Z"' in checkout.release(code=3)


def test_a_version_has_one_chapter(checkout: Checkout) -> None:
    checkout.write("changes/41.added.md", "Something is new.\n")
    checkout.commit()
    said = checkout.release(code=3)
    assert "has a chapter '## 0.1.0' already" in said
    assert said.endswith("changes/41.added.md\n")
    checkout.git("rm", "--quiet", "changes/41.added.md")
    checkout.write("chaos/__init__.py", '__version__ = "0.2.0"\n')
    checkout.commit()
    assert "no chapter '## 0.2.0'" in checkout.release(code=3)


@pytest.mark.night("installs towncrier with pip")
def test_fragments_become_a_chapter_which_is_committed_by_hand(checkout: Checkout) -> None:
    checkout.write("changes/41.added.md", "Something is new.\n")
    checkout.write("chaos/__init__.py", '__version__ = "0.2.0"\n')
    checkout.commit()
    before = checkout.git("rev-parse", "HEAD")
    assert "read it, commit both" in checkout.release("--tag", code=3)
    assert (checkout.git("rev-parse", "HEAD"), checkout.git("tag")) == (before, "")
    text = (checkout.folder / "CHANGELOG.md").read_text()
    assert "\n## 0.2.0\n\nAdded\n\n- Something is new. (issue 41)\n" in text.replace("### ", "")
    assert text.index("## 0.2.0") < text.index("## 0.1.0")
    assert not (checkout.folder / "changes/41.added.md").exists()


@pytest.mark.night("installs hatchling with pip, and builds")
def test_a_tag_is_made_when_asked_and_has_the_sums(checkout: Checkout) -> None:
    said = checkout.release("--no-images", "--tag")
    sums = (checkout.folder / "dist/SHA256SUMS").read_text()
    assert sums in said
    assert checkout.git("cat-file", "-t", "v0.1.0") == "tag\n"
    assert sums in checkout.git("tag", "-l", "--format=%(contents)")
    assert sums in checkout.release("--no-images"), "a tagged version is built again, to the same sums"


@pytest.mark.night("installs hatchling with pip, and builds")
def test_a_build_that_differs_is_seen_and_kept(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "checkout", differs=True)
    said = checkout.release("--no-images", "--tag", code=1)
    assert "NOT THE SAME BYTES: squall-0.1.0-py3-none-any.whl built twice" in said
    wheel = "squall-0.1.0-py3-none-any.whl"
    kept = [(checkout.folder / "dist" / each / wheel).read_bytes() for each in ("first", "second")]
    assert kept[0] != kept[1]
    assert checkout.git("tag") == ""


@pytest.mark.night("installs hatchling with pip, and builds Squall three times")
def test_squall_is_the_same_bytes_whoever_builds_it(tmp_path: Path) -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        skip_without("git, and a clone of Squall", "as root: apt-get install -y git")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, clone], check=True)
    changes = [each for each in (clone / "changes").iterdir() if each.name != ".gitkeep"]
    if changes:  # between two releases; what they fold into is another test's
        subprocess.run(["git", "-C", clone, "rm", "--quiet", *changes], check=True)
        command = ["git", "-C", clone, "commit", "--quiet", "--message", "changes: take them away"]
        subprocess.run(command, check=True, env=os.environ | ENVIRONMENT)
    assert "the same bytes each time" in released(clone, "--no-images")
    (wheel,), (sdist,) = (clone / "dist").glob("*.whl"), (clone / "dist").glob("*.tar.gz")
    head = subprocess.run(["git", "-C", clone, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    with zipfile.ZipFile(wheel) as opened:
        assert opened.read("squall/chaos/shared/commit").decode() == head
    with tarfile.open(sdist) as tar:
        names = tar.getnames()
    assert {f"squall-{__version__}/{name}" for name in ("COMMIT", "CHANGELOG.md", "tests/conftest.py")} <= {*names}
