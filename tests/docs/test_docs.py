"""The documentation's own text: a page for every baseline, and commands and code that are understood."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml

from pertbase.cli import _COMMANDS, _config_dirs, _options, main
from pertbase.runs import Names
from pertbase.runs._commands._help import options_of
from pertbase.runs._compose import defaults, expand
from pertbase.runs._experiment import read_experiment
from pertbase.runs._options import class_of
from pertbase.runs._plan import plan_of
from pertbase.runs._reports._reproduction import reproduce

DOCS = Path(__file__).resolve().parents[2] / "docs"
GUIDES = sorted(DOCS.glob("guides/*.md"))
PAGES = {
    str(path.relative_to(DOCS / "baselines").with_suffix("")): path
    for path in sorted((DOCS / "baselines").rglob("*.md"))
    if path.stem != "index"
}
BASELINES = sorted(Names().options("baseline"))


def _blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_every_baseline_has_its_page_and_every_page_its_baseline() -> None:
    assert sorted(PAGES) == BASELINES
    index = (DOCS / "baselines" / "index.md").read_text(encoding="utf-8")
    listed = [line for block in re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL) for line in block.split("\n")]
    assert sorted(line for line in listed if line and not line.startswith(":")) == BASELINES


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_says_what_a_baseline_computes_where_it_comes_from_and_what_it_cannot(name: str) -> None:
    text = PAGES[name].read_text(encoding="utf-8")
    heads = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    assert heads[0] == name
    assert heads[1] in ("Equation", "Equations")
    assert heads[-3:-1] in (["Source", "Known limits"], ["Presets", "Known limits"])
    assert heads[-1] == "Options"
    assert "$$" in text or name == "sft_reasoned"
    owner = class_of("baseline", defaults("baseline", name, Names()))
    module, _, last = re.findall(r"Class: \{py:class\}`([\w.]+)`", text)[0].rpartition(".")
    assert getattr(__import__(module, fromlist=[last]), last) is owner
    assert f"```{{options}} baseline {name}\n" in text
    if "preset" in defaults("baseline", name, Names()):
        # A preset that the page does not name is one nobody finds.
        told = set(re.findall(r"^`(\w+)`", text.partition("## Presets")[2], flags=re.MULTILINE))
        assert told in ({"corrected", "upstream"}, {"no_path", "global_path", "cell_path"}) or "finetuned" in module


def test_every_name_that_a_page_refers_to_is_public() -> None:
    referred = {
        name
        for path in [*GUIDES, *PAGES.values()]
        for name in re.findall(r"\{py:\w+\}`~?([\w.]+)`", path.read_text(encoding="utf-8"))
    }
    assert len(referred) > 20
    for name in referred:
        module, rest = re.fullmatch(r"([a-z_.]+)\.([A-Z][\w.]*)", name).groups()  # type: ignore[union-attr]
        item = __import__(module, fromlist=["__all__"])
        assert rest.split(".")[0] in item.__all__, name
        for part in rest.split("."):
            item = getattr(item, part)


def test_no_guide_tells_a_reader_to_use_what_is_private() -> None:
    for path in [*GUIDES, *PAGES.values()]:
        assert not re.search(r"pertbase(\.\w+)*\._\w+", path.read_text(encoding="utf-8")), path


@pytest.fixture(scope="module")
def extension() -> ModuleType:
    """What Sphinx is told of pertbase."""
    pytest.importorskip("sphinx")
    spec = importlib.util.spec_from_file_location("pertbase_docs", DOCS / "_ext" / "pertbase_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_attribute_of_a_public_class_has_an_entry_of_its_own(extension: ModuleType) -> None:
    # Sphinx takes an entry of several for one strange name: none of them can be linked, or it warns of them all.
    seen = 0
    for room in extension.ROOMS:
        module = importlib.import_module(room)
        for item in (getattr(module, name) for name in module.__all__):
            text = inspect.cleandoc(item.__doc__ or "") if inspect.isclass(item) else ""
            section = re.search(r"^Attributes\n-+\n(.*?)(?=^\S[^\n]*\n-{3,}\n|\Z)", text, re.MULTILINE | re.DOTALL)
            entries = re.findall(r"^\S.*$", section[1], re.MULTILINE) if section else []
            assert not [entry for entry in entries if "," in entry], item
            seen += len(entries)
    assert seen > 5


def test_a_kernel_of_the_notebooks_says_nothing_of_how_it_is_spoken_to(
    extension: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "mine"))
    extension.quiet_kernels(SimpleNamespace(doctreedir=tmp_path), None)
    begin = "from ipykernel.kernelapp import IPKernelApp as App; App.instance().initialize([])"
    ask = f"{begin}; App.instance().log.warning('loud')"
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "loud" not in told.stderr
    assert "encryption" not in told.stderr


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and no real data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERTBASE_DATA", raising=False)
    for path in GUIDES:
        for block in _blocks(path, "yaml"):
            file = Path(block.splitlines()[0].removeprefix("# "))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("path", [*GUIDES, DOCS / "index.md"], ids=lambda path: path.stem)
def test_every_command_of_a_guide_is_understood(path: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for block in _blocks(path, "bash") for line in block.strip().splitlines()]
    assert lines
    for line in lines:
        program, name, *arguments = shlex.split(line)
        assert program == "pertbase"
        assert name in _COMMANDS
        _understood(name, arguments, capsys)


def _understood(name: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    rest, folders = _config_dirs(arguments)
    names = Names(tuple(folders))
    makes = name == "folds" and rest[0] == "make"
    if name == "run" or makes:
        own = [text for text in rest if text not in ("-m", "make") and not text.startswith(("output=", "dry_run="))]
        jobs = expand(own, names, multirun="-m" in rest or makes)
        assert jobs
        for job in jobs[:5]:
            plan_of(job, names, {})
    elif name == "report":
        options = _options(rest, options_of("report"))
        if "experiment" in options:
            assert read_experiment(options["experiment"], names).table is not None
    else:
        capsys.readouterr()
        code = main([name, *arguments])
        told = capsys.readouterr().err
        # What fails here lacks the files it names, and nothing else.
        assert code == 0 or re.search(r"no such (file|folder)|is not here|[Ss]et PERTBASE_DATA", told), told
        assert not re.search(r"unknown|Did you mean|not of the form|is missing", told), told


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in GUIDES if _blocks(path, "python")], ids=lambda path: path.stem)
def test_every_python_cell_of_a_guide_runs(path: Path, place: Path) -> None:
    for block in _blocks(path, "python"):
        exec(compile(block, str(path), "exec"), {})


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_every_record_that_a_guide_shows_is_json(path: Path) -> None:
    for block in _blocks(path, "json"):
        for line in block.strip().splitlines():
            assert isinstance(json.loads(line), dict)


def test_the_experiment_that_a_guide_shows_is_one(place: Path) -> None:
    names = Names((Path("my_conf"),))
    (place / "runs").mkdir()
    found = reproduce(read_experiment("mine", names), place / "runs", names)
    assert [row.label for row in found.rows] == ["their additive", "no_change"]
    assert found.rows[0].published == {"BA": 0.85}


def test_the_label_rules_of_the_guide_are_those_there_are() -> None:
    from pertbase.folds import RULES

    text = (DOCS / "guides" / "labels.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)`", text, flags=re.MULTILINE)) == set(RULES)


def test_the_adapters_of_the_guide_are_those_there_are() -> None:
    text = (DOCS / "guides" / "adapters.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^`(\w+)`$", text, flags=re.MULTILINE)) == set(Names().options("adapter"))


def test_published_figures_are_read_and_say_where_they_stand() -> None:
    folder = DOCS.parent / "conf" / "published"
    assert sorted(path.stem for path in folder.glob("*.yaml")) == ["norman", "pertreasonqa", "perturbqa"]
    for path in folder.glob("*.yaml"):
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["source"]
