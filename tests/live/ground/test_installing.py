"""`pip install .` into an empty environment: it is small, needs no Java, has recipes and plans, and says what is
missing.
"""

from __future__ import annotations

import pytest

import squall.fixture
from squall.chaos.toolchain.places import commit
from tests.support.installed import ROOT, Installed

MEGABYTE = 1 << 20
LIMIT_MB = 200


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"), "")


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
        (["verify", "runs/latest"], "spark"),
        (["report", "--nightly", "nights/one"], "spark"),
        (["cluster", "up", "-n", "1"], "run"),
        (["images"], "run"),
        (["query", "runs/latest"], "query"),
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
    packed = installed.squall("export")
    assert packed.returncode == 0, packed.stderr
    assert "no report: " in packed.stdout
    assert "squall[figures]" in packed.stdout
    runs = sorted(each.name for each in (installed.home / "runs").iterdir() if each.name.endswith(("-seed1", "-seed2")))
    for words in (["runs"], ["runs", *runs[-2:]]):
        done = installed.squall(*words)
        assert done.returncode == 0, done.stderr


@pytest.mark.night("makes environments with pip: minutes")
@pytest.mark.parametrize("command", ["bench", "test"])
def test_what_needs_a_checkout_says_so(installed: Installed, command: str) -> None:
    done = installed.squall(command)
    assert (done.returncode, f"squall {command} needs a checkout" in done.stderr) == (3, True), done.stderr


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
    asks = "import sys, squall.fixture as f; print('pytest' in sys.modules, f.cluster.__module__, *f.__all__)"
    told = installed.python("-c", asks).stdout.split()
    assert told == ["False", "squall.chaos.fixture.handle", *squall.fixture.__all__]
    lacks = installed.python("-c", "import squall.spark").stderr
    assert "pip install 'squall[spark]'" in lacks, lacks


def test_it_knows_its_commit_and_says_what_is_not_here(installed: Installed) -> None:
    said = installed.squall("--version").stdout
    assert f"commit     {commit() or 'unknown'}\n" in said
    assert "Spark      not here\n" in said


def test_pytest_finds_the_fixture_by_itself(installed: Installed) -> None:
    asks = "from importlib.metadata import entry_points as found; print(found(group='pytest11')['squall'].value)"
    assert installed.python("-c", asks).stdout.strip() == "squall.fixture"
    asks = "import sys, squall.fixture; print('trio' in sys.modules)"
    assert installed.python("-c", asks).stdout.strip() == "False", "a session that does not use it pays nothing"
