"""The examples in the documentation, the README and the docstrings run and show what they say."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest

import succinct
import succinct_gpu

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FLAGS = doctest.NORMALIZE_WHITESPACE


def modules() -> list[str]:
    names = ["succinct", "succinct_gpu"]
    for package in (succinct, succinct_gpu):
        found = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
        names += [module.name for module in found if not module.name.endswith("__main__")]
    return names


def run(test: doctest.DocTest) -> None:
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=FLAGS)
    runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    # Only fenced Python is left, on the lines where it was.
    code, inside = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            line = ""
        code.append(line if inside else "")
    run(doctest.DocTestParser().get_doctest("\n".join(code), {}, page.name, str(page), 0))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    # Compiled functions are not found by doctest's own search, so classes are gone through here.
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = {test.name: test for test in finder.find(module)}
    parser, names = doctest.DocTestParser(), vars(module)
    for name, value in list(names.items()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        holders = {name: value}
        if isinstance(value, type):
            holders |= {f"{name}.{key}": member for key, member in vars(value).items()}
        for path, holder in holders.items():
            full = f"{module.__name__}.{path}"
            text = getattr(holder, "__doc__", None)
            if full not in tests and isinstance(text, str) and ">>>" in text:
                tests[full] = parser.get_doctest(text, dict(names), full, None, 0)
    return [test for test in tests.values() if test.examples]


@pytest.mark.parametrize("name", modules())
def test_docstrings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith("succinct_gpu"):
        pytest.importorskip("numba.cuda.core", reason="numba-cuda is not installed")
    monkeypatch.chdir(tmp_path)
    for test in examples_of(importlib.import_module(name)):
        run(test)
