"""What files that options name hold is part of what identifies a training and a request; where they lie is not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from pertbase.baselines import ExpressionBaseline
from pertbase.baselines._files import folder_hash, named_files
from pertbase.baselines.llm import Request, Sampling, TransformersClient


@dataclass(frozen=True)
class Client:
    model: str


def written(path: Path, text: str = "one") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("template", lambda file: {"template": file}),
        ("graph.path", lambda file: {"graph": {"path": file, "head": "source"}}),
        ("graph.1", lambda file: {"graph": ["human", file]}),
        ("rewards.names", lambda file: {"rewards": {"names": file, "outcome": 1.0}}),
        ("client.model", lambda file: {"client": Client(str(Path(file).parent))}),
        ("checkpoint", lambda file: {"checkpoint": str(Path(file).parent)}),
    ],
)
def test_a_file_is_known_by_what_it_holds_wherever_an_option_names_it(key, options, tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "folder" / "named.txt"
    first = named_files(options(written(file)))
    assert list(first) == [key]
    assert named_files(options(written(tmp_path / "moved" / "named.txt"))) == first
    assert named_files(options(written(file, "two")))[key] != first[key]
    file.unlink()
    assert first != named_files(options(str(file)))


@pytest.mark.parametrize(
    "value",
    ["human", "no_path", "", ".", "~nobody-of-this-name/x", "a\0b", "two\nlines", "x" * 5000, "y" * 300, 3, None],
)
def test_what_names_no_file_identifies_nothing(value, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    # A folder is read where an option says so alone: others are written to, or happen to have the name.
    for name in ("human", "no_path"):
        written(tmp_path / name / "a.txt")
    assert named_files({"graph": value, "_target_": str(tmp_path / "human" / "a.txt")}) == {}


def test_notes_and_hidden_files_of_a_folder_do_not_count(tmp_path) -> None:  # type: ignore[no-untyped-def]
    written(tmp_path / "model.safetensors")
    before = folder_hash(tmp_path)
    for name in ("README.md", ".part", "below/other.txt"):
        written(tmp_path / name)
    assert folder_hash(tmp_path) == before
    written(tmp_path / "tokenizer.json")
    assert folder_hash(tmp_path) != before


class Base(ExpressionBaseline):
    def __init__(self, *, table: str | None = None, weight: float = 1.0) -> None:
        self.table, self.weight = table, weight

    def fit(self, training):  # type: ignore[no-untyped-def]
        return self

    def predict(self, inputs):  # type: ignore[no-untyped-def]
        raise NotImplementedError


class Derived(Base):
    def __init__(self, *, width: int = 2, **options) -> None:  # type: ignore[no-untyped-def]
        super().__init__(**options)
        self.width = width


def test_a_plug_in_need_say_nothing_of_its_files_passed_on_options_among_them(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = written(tmp_path / "table.csv")
    for model in (Base(table=file), Derived(table=file)):
        assert model.file_hashes() == named_files({"table": file})
        assert set(model.file_hashes()) == {"table"}
    assert Derived().file_hashes() == {}
    assert Derived(table=file).parameters() == {"width": 2, "table": file, "weight": 1.0}


def test_other_weights_in_a_folder_are_another_model_to_whoever_keeps_responses(tmp_path) -> None:  # type: ignore[no-untyped-def]
    request = Request("reply", ((("user", "up?"),),), "q")

    def key() -> str:
        return request.key(TransformersClient(model=str(tmp_path)).identity, Sampling())

    written(tmp_path / "model.safetensors", "weights")
    first = key()
    assert key() == first
    written(tmp_path / "model.safetensors", "WEIGHTS")
    assert key() != first
    # A name on the hub is known by its revision, as it was.
    assert "files" not in TransformersClient(model="nobody/has-this").identity


PLUG_IN = """
from pathlib import Path

from pertbase.baselines.simple import NoChange
from pertbase.errors import InputError


class Tabled(NoChange):
    def __init__(self, *, table: str) -> None:
        self.table = table


class Begun(NoChange):
    def __init__(self, *, start: str) -> None:
        self.start = start

    def file_hashes(self):
        return {}

    def workspace(self, folder, trainer):
        if not Path(self.start).exists():
            raise InputError("is gone", key="start", value=self.start)
        return {"start": Path(self.start).read_text()}
"""


@pytest.fixture
def command(tmp_path, monkeypatch):  # type: ignore[no-untyped-def]
    """Return what runs a baseline of a plug-in, and says how that ended."""
    from pertbase.cli import main

    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "tabled.py").write_text(PLUG_IN)
    (tmp_path / "conf" / "baseline").mkdir(parents=True)
    for name, key in (("Tabled", "table"), ("Begun", "start")):
        about = f"_target_: tabled.{name}\n{key}: ???\n"
        (tmp_path / "conf" / "baseline" / f"{name.lower()}.yaml").write_text(about)
    shared = ["--config-dir", str(tmp_path / "conf"), "data=simulated", "fold=unseen_perturbation_genetic"]
    return lambda *how: main(["run", *shared, "fold.per_outcome=3", f"runs={tmp_path / 'runs'}", *how])


EDGES = {"source": ["G1", "G2"], "target": ["G2", "G3"]}


def test_a_run_whose_file_changed_is_another_run_and_one_whose_file_went_is_complete(  # type: ignore[no-untyped-def]
    tmp_path, command, capsys
) -> None:
    """By the command line, for a baseline of a plug-in that only keeps what it was given."""
    table = tmp_path / "table.csv"
    pd.DataFrame(EDGES).to_csv(table, index=False)
    how = ["baseline=tabled", f"baseline.table={table}"]
    assert command(*how) == 0
    assert command(*how) == 0
    assert "already" in capsys.readouterr().out
    table.write_text(table.read_text().replace("G3", "G4"))
    assert command(*how) != 0
    told = capsys.readouterr()
    assert "another configuration: files.table is" in told.out + told.err
    table.unlink()
    assert command(*how) == 0
    assert "already" in capsys.readouterr().out
    (config,) = (tmp_path / "runs").glob("*/*/tabled/seed0/config.yaml")
    assert "files:\n  table: " in config.read_text()


def test_a_finished_run_wants_no_start_and_one_that_is_not_says_what_is_gone(tmp_path, command, capsys) -> None:  # type: ignore[no-untyped-def]
    start = tmp_path / "start.txt"
    start.write_text("weights")
    how = ["baseline=begun", f"baseline.start={start}"]
    assert command(*how) == 0
    start.unlink()
    assert command(*how) == 0
    assert "already" in capsys.readouterr().out
    assert command(*how, "adapters.fixed.threshold=3") != 0  # another run, by the same name
    assert command(*how, "name=other") != 0
    told = capsys.readouterr()
    assert (told.out + told.err).count("start: is gone") == 2
    assert not list((tmp_path / "runs").glob("*/*/other/*"))
