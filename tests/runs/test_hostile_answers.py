"""What others hand in, through the program: answers, plug-ins, configurations, and folders that were damaged."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from pertbase.folds import read_questions
from pertbase.runs import find_runs

Pertbase = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def fold_dir(finished: Path) -> Path:
    return find_runs(finished)[0].fold_folder


@pytest.fixture(scope="module")
def answers(fold_dir: Path) -> pd.DataFrame:
    questions = read_questions(fold_dir / "questions.parquet")
    return pd.DataFrame({"id": questions.loc[questions["split"] == "test", "id"], "outcome": "up"})


def _scored(table: pd.DataFrame, **scores: Any) -> pd.DataFrame:
    return table.assign(**{"score_up": 0.5, "score_down": 0.25, "score_no_change": 0.25, **scores})


def _first(table: pd.DataFrame, column: str, value: Any) -> pd.DataFrame:
    table = table.astype({column: object})
    table.iloc[0, table.columns.get_loc(column)] = value
    return table


def _csv(table: pd.DataFrame) -> str:
    return table.to_csv(index=False)


def _lines(table: pd.DataFrame) -> str:
    return table.to_json(orient="records", lines=True)


Made = Callable[[pd.DataFrame], "str | bytes | pd.DataFrame"]
ROW = '{"id": "x", "outcome": '

REFUSED: dict[str, tuple[str, Made, list[str]]] = {
    "an id twice": ("a.csv", lambda t: pd.concat([t, t.head(1)]), ["id: 1 answers repeat an id", "one answer a"]),
    "an id nobody asked": ("a.csv", lambda t: _first(t, "id", "x"), ["id: 1 answers have ids that are not", "'x'"]),
    "another fold's ids": ("a.csv", lambda t: t.assign(id=range(len(t))), ["answers have ids that are not asked"]),
    "no id, csv": ("a.csv", lambda t: _first(t, "id", None), ["id: an answer has no id"]),
    "no id, jsonl": ("a.jsonl", lambda t: _first(t, "id", None), ["id: an answer has no id"]),
    "no id, parquet": ("a.parquet", lambda t: _first(t, "id", None), ["id: an answer has no id"]),
    "no column": ("a.csv", lambda t: t.rename(columns={"outcome": "answer"}), ["outcome: answers lack a column"]),
    "an unknown word": ("a.csv", lambda t: _first(t, "outcome", "rise"), ["outcome: unknown outcome", "'rise'"]),
    "upper case": (
        "a.csv",
        lambda t: _first(t, "outcome", "UP"),
        ["outcome: unknown outcome", "Did you mean 'up'? Use up, down, no_change, or leave it empty."],
    ),
    "a number": ("a.jsonl", lambda t: ROW + "1}", ["outcome: unknown outcome", "got 1"]),
    "a list": ("a.jsonl", lambda t: ROW + '["up"]}', ["outcome: an outcome is one word", "['up']"]),
    "a status that is a list": ("a.jsonl", lambda t: ROW + '"up", "status": ["ok"]}', ["status: a status is one word"]),
    "an unknown status": ("a.csv", lambda t: t.assign(status="fine"), ["status: unknown status", "'fine'", "refusal"]),
    "a refusal that answers": ("a.csv", lambda t: t.assign(status="refusal"), ["status and outcome contradict"]),
    "scores above one": ("a.csv", lambda t: _scored(t, score_up=0.9), ["sum to one", "0.9", "divide by their sum"]),
    "a negative score": ("a.csv", lambda t: _scored(t, score_up=-0.5, score_down=1.25), ["non-negative", "-0.5"]),
    "an infinite score": ("a.csv", lambda t: _scored(t, score_up=np.inf), ["sum to one", "inf"]),
    "half of a row's scores": ("a.csv", lambda t: _scored(t, score_up=np.nan), ["sum to one", "nan"]),
    "two scores of three": ("a.csv", lambda t: _scored(t).drop(columns="score_up"), ["score_up: answers have some"]),
    "a score in words": ("a.csv", lambda t: _scored(t, score_up="high"), ["score_up: a score is not a number", "high"]),
    "a score in words, parquet": ("a.parquet", lambda t: _scored(t, score_up="high"), ["score_up: a score is not"]),
    "a score that is a list": (
        "a.jsonl",
        lambda t: ROW + '"up", "score_up": [1], "score_down": 0, "score_no_change": 0}',
        ["score_up: a score is not a number", "[1]"],
    ),
    "a line cut off": ("a.jsonl", lambda t: _lines(t)[:-10], ["line {n}", "is not valid JSON", "cut off"]),
    "a line that is no object": ("a.jsonl", lambda t: "[1, 2]\n", ["line 1: is not an object"]),
    "brackets without end": ("a.jsonl", lambda t: "[" * 100_000, ["line 1: is not valid JSON"]),
    "a misspelled reason": ("a.jsonl", lambda t: ROW + '"up", "triplet": []}', ["triplet: is no column", "'triplets'"]),
    "a misspelled status": ("a.csv", lambda t: t.assign(statuss="ok"), ["statuss: is no column", "'status'"]),
    "an empty jsonl": ("a.jsonl", lambda t: "", ["id: answers lack a column"]),
    "an empty csv": ("a.csv", lambda t: "", ["cannot be read"]),
    "an empty parquet": ("a.parquet", lambda t: b"", ["cannot be read"]),
    "half a parquet": ("a.parquet", lambda t: b"PAR1" + b"\0" * 50, ["cannot be read"]),
    "semicolons": ("a.csv", lambda t: t.to_csv(index=False, sep=";"), ["answers lack a column", "'id;outcome'"]),
    "utf-16": ("a.csv", lambda t: _csv(t).encode("utf-16"), ["cannot be read", "utf-8"]),
    "ragged lines": ("a.csv", lambda t: _csv(t) + "x,up,1,2\n", ["cannot be read", "Expected 2 fields"]),
    "an open quote": ("a.csv", lambda t: _csv(t) + '"x,up\n', ["cannot be read"]),
    "a spreadsheet": ("a.xlsx", lambda t: b"PK", ["answers are .parquet, .jsonl or .csv", "'.xlsx'"]),
}


def _write(path: Path, made: str | bytes | pd.DataFrame) -> None:
    if isinstance(made, pd.DataFrame):
        if path.suffix == ".parquet":
            made.to_parquet(path, index=False)
            return
        made = _csv(made) if path.suffix == ".csv" else _lines(made)
    path.write_bytes(made if isinstance(made, bytes) else made.encode())


@pytest.mark.parametrize("case", REFUSED)
def test_answers_that_break_the_contract_are_refused_with_file_place_and_remedy(
    case: str, pertbase: Pertbase, answers: pd.DataFrame, fold_dir: Path, tmp_path: Path
) -> None:
    name, make, parts = REFUSED[case]
    _write(tmp_path / name, make(answers))
    code, out, err = pertbase("score", f"answers={tmp_path / name}", f"fold_dir={fold_dir}")
    assert code == 2
    assert "Traceback" not in out + err
    for part in (str(tmp_path / name), *parts):
        assert part.format(n=len(answers)).lower() in err.lower()


FINE: dict[str, tuple[str, Made]] = {
    "byte-order mark, csv": ("a.csv", lambda t: "\ufeff" + _csv(t)),
    "byte-order mark, jsonl": ("a.jsonl", lambda t: "\ufeff" + _lines(t)),
    "Windows' line ends": ("a.csv", lambda t: _csv(t).replace("\n", "\r\n")),
    "blank lines": ("a.jsonl", lambda t: _lines(t).replace("\n", "\n\n")),
    "columns of somebody's own": ("a.csv", lambda t: t.assign(note="é, \n?")),
    "rows in another order": ("a.parquet", lambda t: t.sample(frac=1, random_state=0)),
    "empty scores": ("a.csv", lambda t: _scored(t, score_up=None, score_down=None, score_no_change=None)),
    "scores as text": ("a.jsonl", lambda t: _scored(t).astype({"score_up": str})),
}


@pytest.mark.parametrize("case", FINE)
def test_answers_that_are_only_written_oddly_score_the_same(
    case: str, pertbase: Pertbase, answers: pd.DataFrame, fold_dir: Path, tmp_path: Path
) -> None:
    name, make = FINE[case]
    found = []
    for made, path in ((answers, tmp_path / "plain.csv"), (make(answers), tmp_path / name)):
        _write(path, made)
        output = tmp_path / f"{path.stem}.json"
        code, _, err = pertbase("score", f"answers={path}", f"fold_dir={fold_dir}", f"output={output}")
        assert code == 0, err
        found.append(json.loads(output.read_text()))
    assert found[0]["confusion"] == found[1]["confusion"]
    assert found[0]["balanced_accuracy"] == found[1]["balanced_accuracy"]


def test_missing_answers_count_as_wrong_and_are_told(
    pertbase: Pertbase, answers: pd.DataFrame, fold_dir: Path, tmp_path: Path
) -> None:
    for table in (answers.head(3), answers.head(0)):
        _csv_path = tmp_path / "few.csv"
        _write(_csv_path, table)
        code, out, _ = pertbase("score", f"answers={_csv_path}", f"fold_dir={fold_dir}")
        assert code == 0
        assert "they count as wrong" in out


# -- damaged folders -----------------------------------------------------------------------------------------


def _edit(key: str, value: Any = None, *, drop: bool = False) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        about = yaml.safe_load((folder / "fold.yaml").read_text())
        if drop:
            del about[key]
        else:
            about[key] = value
        (folder / "fold.yaml").write_text(yaml.safe_dump(about))

    return change


def _cut(name: str, share: float) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * share)])

    return change


def _other_columns(name: str) -> Callable[[Path], None]:
    return lambda folder: pd.DataFrame({"a": [1]}).to_parquet(folder / name)


FILES = ("questions.parquet", "conditions.parquet", "controls.parquet", "perturbations.parquet")
DAMAGED_FOLDS: dict[str, tuple[Callable[[Path], Any], str]] = {
    **{f"{name} cut": (_cut(name, 0.5), name) for name in (*FILES, "effects.h5ad")},
    **{f"{name} empty": (_cut(name, 0), name) for name in (*FILES, "effects.h5ad", "fold.yaml")},
    **{f"{name} gone": (lambda folder, name=name: (folder / name).unlink(), name) for name in FILES},
    **{f"{name} with other columns": (_other_columns(name), name) for name in FILES},
    **{
        f"fold.yaml without {key}": (_edit(key, drop=True), key)
        for key in ("format", "name", "data", "hash", "data_hash", "simulated", "spec", "notes", "certificate")
    },
    **{f"fold.yaml cut to {share:.0%}": (_cut("fold.yaml", share), "fold.yaml") for share in (0.2, 0.5, 0.8, 0.9)},
    "fold.yaml without a kind": (_edit("spec", {}), "fold.kind"),
    "fold.yaml without a spec": (_edit("spec"), "a fold is a mapping"),
}


@pytest.mark.parametrize("case", DAMAGED_FOLDS)
def test_damaged_fold_is_refused_by_every_command_with_the_file(
    case: str, pertbase: Pertbase, fold_dir: Path, small_screen: Path, runs: Path
) -> None:
    damage, part = DAMAGED_FOLDS[case]
    folder = runs / "_folds" / fold_dir.name
    damage(folder)
    code, out, err = pertbase("folds", "show", f"fold_dir={folder}")
    assert code == 2
    assert part in err
    code, out, err = pertbase("folds", "check", f"fold_dir={folder}")
    assert code in (1, 2)
    assert part in out + err
    code, out, err = pertbase(
        "run", "data=h5ad", f"data.path={small_screen}", "data.name=small", "fold=combinatorial",
        "baseline=perturbed_mean", f"runs={runs}",
    )  # fmt: skip
    assert (code, "0 done, 1 failed" in out) == (1, True)
    assert part in out
    assert pertbase("report", f"runs={runs}")[0] in (0, 2)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"{", b"null", b"\xff"])
@pytest.mark.parametrize("name", ["config.yaml", "status.json", "scores.json"])
def test_damaged_run_is_named_or_run_again(
    name: str, content: bytes, pertbase: Pertbase, small_screen: Path, runs: Path
) -> None:
    path = runs / "small" / "combinatorial" / "no_change" / "seed0" / name
    path.write_bytes(content)
    told = name == "config.yaml" and content == b"{}"
    for command in (("status",), ("report",), ("report", "format=html")):
        code, _, err = pertbase(*command, f"runs={runs}")
        assert code in (0, 2)
        assert code == 0 or name in err
    code, out, _ = pertbase(
        "run", "data=h5ad", f"data.path={small_screen}", "data.name=small", "fold=combinatorial",
        "baseline=no_change", f"runs={runs}",
    )  # fmt: skip
    assert code in (0, 1)
    assert code == 0 or name in out or told


# -- plug-ins ------------------------------------------------------------------------------------------------

PLUGINS = '''
import numpy as np, pandas as pd, pertbase as pb
from pertbase.folds import Answers


class Plain(pb.ExpressionBaseline):
    def fit(self, training):
        self.genes = training.genes

    def effects(self, inputs, *, conditions=None, genes=None, values=None, statistic=None):
        conditions = inputs.conditions if conditions is None else conditions
        genes = self.genes if genes is None else genes
        if values is None:
            values = np.tile(np.arange(len(genes)) / len(genes) - 0.5, (len(conditions), 1))
        return pb.Effects(values, conditions, genes, statistic or inputs.statistic)

    def predict(self, inputs):
        return self.effects(inputs)


class Reversed(Plain):
    """The same effects, genes and conditions in another order, and conditions that nobody asked about."""

    def predict(self, inputs):
        said = super().predict(inputs)
        more = pd.concat([inputs.conditions[::-1], inputs.conditions.iloc[:1].assign(context="elsewhere")])
        values = np.concatenate([said.values[::-1, ::-1], said.values[:1]])
        return self.effects(inputs, conditions=more, genes=self.genes[::-1], values=values)


class Missing(Plain):
    def predict(self, inputs):
        return self.effects(inputs, conditions=inputs.conditions.iloc[:0])


class NanEffects(Plain):
    def predict(self, inputs):
        return self.effects(inputs, values=np.full((len(inputs.conditions), len(self.genes)), np.nan))


class Twice(Plain):
    def predict(self, inputs):
        return self.effects(inputs, conditions=pd.concat([inputs.conditions, inputs.conditions]))


class OtherStatistic(Plain):
    def predict(self, inputs):
        return self.effects(inputs, statistic={"mean_log": "log_mean", "log_mean": "mean_log"}[inputs.statistic])


class OtherShape(Plain):
    def predict(self, inputs):
        return self.effects(inputs, values=np.zeros((1, 1)))


class Words(Plain):
    def predict(self, inputs):
        return self.effects(inputs, values=np.full((len(inputs.conditions), len(self.genes)), "x", dtype=object))


class Exits(Plain):
    def fit(self, training):
        raise SystemExit(3)


class Recursive(Plain):
    def fit(self, training):
        self.fit(training)


class Refuses(Plain):
    def refuses(self, training):
        raise ZeroDivisionError("while refusing")


class ReadsAFile(Plain):
    def fit(self, training):
        open("/nowhere/weights.bin")


class OtherIds(pb.AnswerBaseline):
    def fit(self, training):
        pass

    def answer(self, inputs):
        return Answers(pd.DataFrame({"id": ["x"], "outcome": ["up"]}))


class TrainingIds(OtherIds):
    def fit(self, training):
        self.ids = list(training.questions["id"])

    def answer(self, inputs):
        return Answers(pd.DataFrame({"id": [*inputs.questions["id"], *self.ids], "outcome": "up"}))


class Writes(Plain):
    """Writes into everything that it is given."""

    def fit(self, training):
        self.genes = pd.Index(list(training.genes))
        training.questions["outcome"] = "up"
        training.questions.drop(training.questions.index[5:], inplace=True)
        training.conditions.drop(training.conditions.index[1:], inplace=True)
        training.perturbations.clear()
        training.basal.iloc[:] = 0
        training.cells.obs["split"] = "train"
        for perturbation in training.perturbations.values():
            perturbation.signs.clear()
        self.spoil(training)

    def predict(self, inputs):
        said = self.effects(inputs)
        inputs.questions["gene"] = "GONE"
        inputs.questions.drop(inputs.questions.index[3:], inplace=True)
        inputs.conditions.drop(inputs.conditions.index, inplace=True)
        inputs.basal.iloc[:] = 0
        self.spoil(inputs)
        return said

    def spoil(self, given):
        for index in (given.genes, *(cells.genes for cells in (getattr(given, "cells", None),
                      getattr(given, "controls", None)) if cells is not None)):
            array = index.to_numpy()
            array.flags.writeable = True
            array[:] = "GONE"
'''


@pytest.fixture
def runs(finished: Path, tmp_path: Path) -> Path:
    """Finished runs to add to: their fold is there already."""
    return Path(shutil.copytree(finished, tmp_path / "runs"))


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder with a plug-in for each class of PLUGINS, in a module of its own name."""
    module = f"plugins_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(PLUGINS)
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "conf" / "baseline"
    folder.mkdir(parents=True)
    for line in PLUGINS.splitlines():
        if line.startswith("class "):
            name = line.removeprefix("class ").partition("(")[0]
            (folder / f"{name.lower()}.yaml").write_text(f"_target_: {module}.{name}\n")
    return folder.parent


def _run(
    pertbase: Pertbase, small_screen: Path, runs: Path, baselines: str, *more: str, conf: Path | None = None
) -> tuple[int, str]:
    dirs = [] if conf is None else ["--config-dir", str(conf)]
    code, out, err = pertbase(
        "run", "-m", *dirs, "data=h5ad", f"data.path={small_screen}", "data.name=small", "fold=combinatorial",
        f"baseline={baselines}", f"runs={runs}", *more,
    )  # fmt: skip
    assert "Traceback" not in out + err
    return code, out + err


def _scores(runs: Path, name: str) -> Any:
    return json.loads((runs / "small" / "combinatorial" / name / "seed0" / "scores.json").read_text())["adapters"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("naneffects", "an effect is NaN or infinite"),
        ("twice", "a condition has two rows of effects"),
        ("otherstatistic", "of another statistic than the fold's"),
        ("othershape", "effects do not fit their conditions and genes"),
        ("words", "could not convert string to float: 'x' (see error.txt)"),
        ("exits", "SystemExit: 3 (see error.txt)"),
        ("recursive", "RecursionError"),
        ("refuses", "ZeroDivisionError: while refusing"),
        ("readsafile", "No such file or directory: '/nowhere/weights.bin' (see error.txt)"),
        ("otherids", "1 answers have ids that are not asked (got 'x')"),
        ("trainingids", "answers have ids that are not asked"),
    ],
)
def test_plug_in_that_breaks_the_contract_fails_alone_with_the_reason(
    name: str, said: str, pertbase: Pertbase, small_screen: Path, plugins: Path, runs: Path
) -> None:
    code, out = _run(pertbase, small_screen, runs, f"{name},gene_prior", conf=plugins)
    assert code == 1
    assert "1 done, 1 failed" in out
    assert said in out
    failed = [run for run in find_runs(runs) if run.status["state"] == "failed"]
    if name != "refuses":
        assert "see error.txt" not in out or "Traceback" in (failed[0].folder / "error.txt").read_text()
        assert failed[0].reason


def test_order_of_genes_and_conditions_and_what_nobody_asked_make_no_difference(
    pertbase: Pertbase, small_screen: Path, plugins: Path, runs: Path
) -> None:
    code, out = _run(pertbase, small_screen, runs, "plain,reversed,missing", conf=plugins)
    assert code == 0, out
    assert _scores(runs, "plain") == _scores(runs, "reversed")
    for scores in _scores(runs, "missing").values():
        assert scores["coverage"] == 0
        assert scores["status"] == {"unsupported": scores["n"]}


def test_plug_in_that_writes_into_what_it_is_given_changes_nobodys_numbers(
    pertbase: Pertbase, finished: Path, small_screen: Path, plugins: Path, tmp_path: Path
) -> None:
    code, out = _run(pertbase, small_screen, tmp_path / "runs", "writes,plain,additive,no_change", conf=plugins)
    assert code == 0, out
    for name in ("additive", "no_change"):
        assert _scores(tmp_path / "runs", name) == _scores(finished, name)
    # Nor its own: the adapters are fitted on, and answer, what it was given as it was given.
    assert _scores(tmp_path / "runs", "writes") == _scores(tmp_path / "runs", "plain")


# -- configurations and places -------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["data", "fold", "baseline"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [", "mine.yaml"),
        (b"\ta: 1", "mine.yaml"),
        (b"a: 1\na: 2", "mine.yaml"),
        (b"\xff\xfe\x00", "mine.yaml: cannot be read"),
        (b"- 1", "mine.yaml does not give a mapping"),
        (b"", ""),
        (b"# @package elsewhere\na: 1", "mine.yaml"),
        (b"defaults: [nothing]", "nothing"),
        (b"a: ${nowhere}", "nowhere"),
        (b"a: ???", ".a: needs a value"),
    ],
    ids=["bracket", "tab", "twice", "bytes", "list", "empty", "package", "default", "interpolation", "missing"],
)
def test_broken_configuration_is_refused_by_its_file(
    group: str, content: bytes, said: str, pertbase: Pertbase, small_screen: Path, tmp_path: Path
) -> None:
    (tmp_path / "conf" / group).mkdir(parents=True)
    (tmp_path / "conf" / group / "mine.yaml").write_bytes(content)
    options = {"data": "h5ad", "fold": "combinatorial", "baseline": "no_change"} | {group: "mine"}
    paths = [] if group == "data" else [f"data.path={small_screen}"]
    code, out, err = pertbase(
        "run", "--config-dir", str(tmp_path / "conf"), *(f"{key}={value}" for key, value in options.items()), *paths,
        f"runs={tmp_path / 'runs'}",
    )  # fmt: skip
    assert code in (1, 2)
    assert "Traceback" not in out + err
    assert said in out + err
    assert not list(tmp_path.glob("runs/[!_]*"))


@pytest.mark.parametrize("name", ["nan", "1", "true", "1e5"])
def test_plug_in_may_have_a_name_that_yaml_reads_as_something_else(
    name: str, pertbase: Pertbase, small_screen: Path, plugins: Path, runs: Path
) -> None:
    shutil.copy(plugins / "baseline" / "plain.yaml", plugins / "baseline" / f"{name}.yaml")
    code, out = _run(pertbase, small_screen, runs, name, conf=plugins)
    assert code == 0, out
    assert (runs / "small" / "combinatorial" / name / "seed0" / "scores.json").exists()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("fold.seed=abc", "fold.seed: is a whole number (got 'abc')"),
        ("fold.seed=1.5", "fold.seed: is a whole number (got 1.5)"),
        ("fold.test_share=x", "fold.test_share: a share lies between 0 and 1 (got 'x')"),
        ("fold.min_controls=x", "fold.min_controls: is a whole number"),
        ("fold.rule=3", "a label rule is a name"),
        ("+fold.rule.alpha=x", "ranksum.alpha: must be a positive number (got 'x')"),
        ("fold.kind=null", "unknown fold"),
        ("seed=x", "a seed is a whole number"),
        ("runs=null", "runs: is a folder"),
        ("runs=", "runs: is a folder"),
        ("trainer=null", "unknown trainer"),
        ("data=null", "unknown data"),
        ("name=[a]", "a name is a text"),
        ("~seed", "key=value"),
    ],
)
def test_option_of_the_wrong_type_is_refused_before_anything_is_made(
    option: str, said: str, pertbase: Pertbase, small_screen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = pertbase(
        "run", "data=h5ad", f"data.path={small_screen}", "fold=combinatorial", "baseline=no_change", option
    )
    assert code == 2
    assert said in err
    assert list(tmp_path.iterdir()) == []


def test_runs_is_found_by_any_path_to_it(
    pertbase: Pertbase, finished: Path, small_screen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(finished, tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked screen.h5ad").symlink_to(small_screen)
    monkeypatch.chdir(tmp_path / "elsewhere")
    reports = []
    for runs in (tmp_path / "real", tmp_path / "link", "../real", "../elsewhere/../link", "./../real/"):
        code, out, err = pertbase(
            "run", "data=h5ad", "data.path=../linked screen.h5ad", "data.name=small", "fold=combinatorial",
            "baseline=additive", f"runs={runs}",
        )  # fmt: skip
        assert (code, "1 already complete" in out) == (0, True), out + err
        code, out, _ = pertbase("report", f"runs={runs}", "format=csv")
        assert code == 0
        reports.append(out)
    monkeypatch.chdir(tmp_path / "real")
    reports.append(pertbase("report", "runs=.", "format=csv")[1])
    tables = [pd.read_csv(io.StringIO(text)) for text in reports]
    for table in tables:
        same = [name for name in table.columns if table[name].astype(str).str.contains("seed0").sum() == 0]
        assert len(same) == len(table.columns) - 1  # all but the folder, which is told as it was given
        pd.testing.assert_frame_equal(table[same], tables[0][same])
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("where", ["/nowhere", "a file", ""])
def test_data_folder_that_is_not_there_is_named_with_every_place(
    where: str, pertbase: Pertbase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERTBASE_DATA", str(tmp_path / where) if where == "a file" else where)
    code, out, _ = pertbase("run", "data=h5ad", "data.path=mine.h5ad", "fold=combinatorial", "baseline=no_change")
    assert code == 1
    assert "mine.h5ad: is in none of the places looked at" in out
    assert str(tmp_path / "mine.h5ad") in out
    assert "PERTBASE_DATA" in out
    assert not (tmp_path / "runs").exists()


# -- tables of outcomes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("present", ["no_change", "up"])
def test_outcome_table_of_one_class_runs_to_the_end_and_is_not_ranked(
    present: str, pertbase: Pertbase, tmp_path: Path
) -> None:
    genes = ["1-Mar", "NA", "nan", "007", "NO", *(f"G{i}" for i in range(25))]
    perts = [f"P{i}" for i in range(12)]
    rows = [
        (pert, gene, int(present == "up"), "test" if number % 3 == 0 else "train")
        for number, pert in enumerate(perts)
        for gene in genes
    ]
    called = pd.DataFrame(rows, columns=["pert", "gene", "label", "split"])
    called.to_csv(tmp_path / "k562-de.csv", index=False)
    called.loc[called["label"] == 1].to_csv(tmp_path / "k562-dir.csv", index=False)
    runs = tmp_path / "runs"
    code, out, err = pertbase(
        "run", "-m", "data=perturbqa", f"data.folder={tmp_path}", "data.lines=[K562]",
        "fold=published,unseen_perturbation_genetic", "baseline=no_change,gene_prior_balanced,perturbed_mean",
        f"runs={runs}",
    )  # fmt: skip
    assert code == 0, out + err
    assert "4 done, 2 skipped" in out
    assert "needs expression" in out
    for form in ("terminal", "csv", "html"):
        code, said, err = pertbase("report", f"runs={runs}", f"format={form}")
        assert code == 0, err
        assert form != "terminal" or "Baselines are not ranked: test holds only" in said
    asked = set()
    for folder in (runs / "_folds").iterdir():
        if folder.is_dir():
            asked |= set(read_questions(folder / "questions.parquet")["gene"])
    assert asked == set(genes)


def test_another_runs_folder_is_never_marked_as_failed(pertbase: Pertbase, small_screen: Path, runs: Path) -> None:
    """A run of another configuration, perhaps going on elsewhere, is refused and left as it is."""
    folder = runs / "small" / "combinatorial" / "additive" / "seed0"
    (folder / "status.json").write_text('{"state": "running"}')
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    code, out = _run(pertbase, small_screen, runs, "additive", "adapters.fixed.threshold=0.5")
    assert code == 1
    assert "another configuration" in out
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
