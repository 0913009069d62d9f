"""Names and sentences that people have to read twice become fewer: `words.toml` has their number in each package.

A count may not grow. If it has shrunk, `pytest tests/architecture/test_words.py --update` writes the lower one.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from functools import partial

import tomli_w

from tests.architecture.source import PACKAGES, ROOT, Source, sources

KEPT = ROOT / "tests/architecture/words.toml"
CODE = (*PACKAGES, "bench")
HEADLESS = re.compile(r"(What|Who|Whose|Whether|Which|How|Where|Of|At|In|Until)\b")
AS = re.compile(r"As `")
WORDS = ("told", "stands", "whoever")
"""`told` had a dozen meanings (answered, reported, logged, sent); the others make sentences that are read twice."""


def docstrings_that_begin_with(form: re.Pattern[str], source: Source) -> int:
    """Return how many docstrings of modules, classes and functions begin so."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in source.nodes if isinstance(node, documented))
    return sum(bool(text and form.match(text)) for text in found)


def times(word: str, source: Source) -> int:
    """Return how often a word occurs in the text, in names too."""
    return len(re.findall(rf"\b{word}\b", source.text, re.IGNORECASE))


FORMS: dict[str, Callable[[Source], int]] = {
    "docstrings without a subject": partial(docstrings_that_begin_with, HEADLESS),
    "docstrings that begin with As": partial(docstrings_that_begin_with, AS),
    **{word: partial(times, word) for word in WORDS},
}


def names_with_two_definitions(*code: Source) -> list[str]:
    """Return the names that more than one class statement defines."""
    classes = Counter(node.name for source in code for node in source.nodes if isinstance(node, ast.ClassDef))
    return sorted(name for name, definitions in classes.items() if definitions > 1)


def test_names_and_sentences_that_are_read_twice_become_fewer(update: bool) -> None:
    found = {
        form: {folder: sum(map(count, sources(folder))) for folder in (*CODE, "tests")}
        for form, count in FORMS.items()
    }  # fmt: skip
    found["class names with two definitions"] = {"code": len(names_with_two_definitions(*sources(*CODE)))}
    kept = tomllib.loads(KEPT.read_text())
    if update:
        kept = {form: {folder: min(n, kept[form][folder]) for folder, n in by.items()} for form, by in found.items()}
        KEPT.write_text(tomli_w.dumps(kept))
    grown = {(form, folder): n for form, by in found.items() for folder, n in by.items() if n > kept[form][folder]}
    assert not grown, "use Kafka's or Jepsen's word, and give each docstring a subject and a verb"
    assert found == kept, "there are fewer now: --update lowers the counts"


def test_each_form_is_counted() -> None:
    text = 'def f():\n    "Whether it is told."\nclass C:\n    "As `B`, told."\nclass C: "Holds."'
    source = Source("a.py", text, ast.parse(text))
    assert [count(source) for count in FORMS.values()] == [1, 1, 2, 0, 0]
    assert names_with_two_definitions(source) == ["C"]
