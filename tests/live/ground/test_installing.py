"""`pip install .` into an empty environment: small, without Java, with recipes and plans; it says what it lacks."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest

from squall.chaos.toolchain.cache import cache_folder
from squall.chaos.toolchain.places import commit
from tests.support.lacks import skip_without

ROOT = Path(__file__).resolve().parents[3]
MEGABYTE = 1 << 20
LIMIT_MB = 200


class Installed:
    """An environment with nothing but Squall's core."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder / "venv", folder / "home"
        self.home.mkdir()
        venv.create(self.folder, with_pip=True, symlinks=True)
        self.pip(str(ROOT))

    def python(self, *arguments: str, path: bool = False) -> subprocess.CompletedProcess[str]:
        """The environment's Python. path: with what is on PATH here; else there is no Java, for there is nothing."""
        environment = {**os.environ} if path else {"PATH": str(self.folder / "bin")}
        environment |= {"HOME": str(self.home), "COLUMNS": "200"}
        return subprocess.run(
            [self.folder / "bin/python", *arguments], capture_output=True, text=True, env=environment, cwd=self.home
        )

    def squall(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The program that pip has installed."""
        return self.python(str(self.folder / "bin/squall"), *arguments)

    def packages(self) -> Path:
        """Where it is installed."""
        return Path(self.python("-c", "import squall; print(squall.__path__[0])").stdout.strip()).parent

    def pip(self, *words: str) -> None:
        """Install something. Skips the test where no index is reached."""
        done = self.python("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words, path=True)
        if "No matching distribution" in done.stderr or "Failed to establish a new connection" in done.stderr:
            skip_without("a package index", "a network that pip reaches")
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"))


def test_it_is_small_and_simulates_without_java_and_judges(installed: Installed) -> None:
    size = sum(path.lstat().st_size for path in installed.folder.rglob("*") if path.is_file())
    assert size < LIMIT_MB * MEGABYTE
    done = installed.squall("sim", "--seed", "7")
    assert done.returncode == 0, done.stderr
    assert "VALID" in done.stdout
    assert "squall report" in done.stdout, "which says what draws the page"
    lossy = installed.squall("sim", "--seed", "1", "--acks", "1", "--min-isr", "1", "--faults", "kill,partition",
                             "--expect", "safe")  # fmt: skip
    assert lossy.returncode == 1, lossy.stdout + lossy.stderr
    assert "lost-write" in lossy.stdout
    assert "pip install 'squall[figures]'" in lossy.stdout, "whose page could not be drawn"
    again = installed.squall("verify", "runs/latest", "--engine", "reference", "--expect", "safe")
    assert again.returncode == 1, again.stdout + again.stderr
    assert "The reference engine searched the history." in again.stdout
    assert "repeat: squall sim --plan" in lossy.stdout
    assert installed.squall("sim", "--seeds", "0..3", "--jobs", "1").returncode == 0


@pytest.mark.night("makes environments with pip: minutes")
@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["run", "--seed", "7"], "spark"),
        (["run", "--engine", "reference", "--seed", "7"], "run"),
        (["run", "--runtime", "docker", "--seed", "7"], "run"),
        (["nightly"], "run"),
        (["report", "runs/latest"], "figures"),
    ],
)
def test_what_a_command_lacks_is_told_by_its_extra(installed: Installed, words: list[str], extra: str) -> None:
    installed.squall("sim", "--seed", "7")
    done = installed.squall(*words)
    assert f"squall[{extra}]" in done.stdout + done.stderr
    assert done.returncode == 3


def test_stories_lists_and_comparisons_of_runs_need_no_extra(installed: Installed) -> None:
    for seed in ("1", "2"):
        words = ("--acks", "1", "--min-isr", "1", "--faults", "kill,partition", "--expect", "safe")
        installed.squall("sim", "--seed", seed, *words)
    told = installed.squall("explain", "runs/latest")
    assert told.returncode == 0, told.stderr
    runs = sorted(each.name for each in (installed.home / "runs").iterdir() if each.name.endswith(("-seed1", "-seed2")))
    for words in (["runs"], ["runs", *runs[-2:]]):
        done = installed.squall(*words)
        assert done.returncode == 0, done.stderr


@pytest.mark.night("makes environments with pip: minutes")
def test_client_libraries_are_installed_by_the_command_that_a_run_without_them_names(installed: Installed) -> None:
    refused = installed.squall("run", "--client", "confluent", "--seed", "7")
    assert (refused.returncode, "squall setup --clients" in refused.stderr) == (3, True), refused.stderr
    # pip needs its settings and a network.
    done = installed.python(str(installed.folder / "bin/squall"), "setup", "--clients", path=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("clients: confluent-kafka ")
    assert "needs the package" not in installed.squall("run", "--client", "confluent", "--seed", "7").stderr


def test_recipes_and_plans_came_with_it_and_tests_did_not(installed: Installed) -> None:
    shared = installed.packages() / "squall/chaos/shared"
    recipes = {path.relative_to(shared / "compose") for path in (shared / "compose").rglob("*") if path.is_file()}
    recipes = {path for path in recipes if "__pycache__" not in path.parts}  # pip compiles what is Python
    ours = {path.relative_to(ROOT / "compose") for path in (ROOT / "compose").rglob("*") if path.is_file()}
    assert recipes == {path for path in ours if "__pycache__" not in path.parts}
    assert (shared / "plans/nightly.toml").read_bytes() == (ROOT / "plans/nightly.toml").read_bytes()
    assert not (installed.packages() / "squall/tests").exists()


def test_it_is_one_package_and_its_interface_is_that_of_a_checkout(installed: Installed) -> None:
    asks = "from importlib.metadata import files; print(*{str(path).partition('/')[0] for path in files('squall')})"
    assert set(installed.python("-c", asks).stdout.split()) == {"..", "squall", "squall-0.1.0.dist-info"}
    assert len(list((installed.packages() / "squall").glob("*.py"))) == 3, "__init__, fixture, spark"
    asks = "import sys, squall.fixture as f; print(f.cluster.__module__, 'pytest' in sys.modules)"
    assert installed.python("-c", asks).stdout.split() == ["squall.chaos.fixture.handle", "False"]
    lacks = installed.python("-c", "import squall.spark").stderr
    assert "No module named 'pyarrow'" in lacks or not lacks, lacks


def test_it_knows_its_commit_and_says_what_is_not_here(installed: Installed) -> None:
    said = installed.squall("--version").stdout
    assert f"commit     {commit() or 'unknown'}\n" in said
    assert "Spark      not here\n" in said


def test_pytest_finds_the_fixture_by_itself(installed: Installed) -> None:
    asks = "from importlib.metadata import entry_points as found; print(found(group='pytest11')['squall'].value)"
    assert installed.python("-c", asks).stdout.strip() == "squall.fixture"
    asks = "import sys, squall.fixture; print('trio' in sys.modules)"
    assert installed.python("-c", asks).stdout.strip() == "False", "a session that does not use it pays nothing"


THEIRS = ("chaos", "broker", "reports", "tests/chaos")
"""Folders of a project, each with a module of its own."""
TEST = """
import os, sys
import broker.mine, chaos.mine, reports.mine
import pytest

def test_their_own_modules_are_theirs():
    assert (broker.mine.WHOSE, chaos.mine.WHOSE, reports.mine.WHOSE) == ("broker", "chaos", "reports")

@pytest.mark.squall_cluster(nodes=1)
def test_our_fixture_is_there(squall_cluster):
    squall_cluster.create_topic("orders", replication_factor=1, min_insync_replicas="1")
    assert squall_cluster.leader("orders") == 1
    import squall.broker.env
    assert squall.broker.env.__file__ != broker.mine.__file__

def test_no_file_has_two_names():
    files = [os.path.realpath(each.__file__) for name, each in sys.modules.items()
             if "/site-packages/squall/" in (getattr(each, "__file__", None) or "")]
    assert files and len(files) == len(set(files))
"""


@pytest.mark.night("makes an environment with pip: minutes")
@pytest.mark.parametrize("words", [(), ("-n", "1"), ("-p", "no:squall", "-k", "not fixture and not two_names")])
def test_a_project_with_folders_of_the_same_names_runs_its_tests_beside_ours(
    installed: Installed, words: tuple[str, ...], tmp_path: Path
) -> None:
    installed.pip(f"{ROOT}[run]", "pytest-xdist", "pytest-asyncio", "pytest-trio")
    for folder in THEIRS:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
        (tmp_path / folder / "mine.py").write_text(f"WHOSE = {folder!r}\n")
    (tmp_path / "tests/__init__.py").touch()
    (tmp_path / "tests/chaos/test_theirs.py").write_text("def test_it():\n    assert True\n")
    (tmp_path / "tests/test_theirs.py").write_text(TEST)
    command = [installed.folder / "bin/python", "-m", "pytest", "-q", "-W", "error::pytest.PytestAssertRewriteWarning"]
    environment = {**os.environ, "SQUALL_CACHE": str(cache_folder())}
    done = subprocess.run([*command, *words], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
