"""Reasons from a baseline's mouth to the report, and from somebody's file to the same table."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from pertbase.folds import Answers, read_truth
from pertbase.runs import find_runs

BASELINE = '''
import numpy as np
import pandas as pd

from pertbase import AnswerBaseline
from pertbase.folds import Answers


class FirstPath(AnswerBaseline):
    """Says up, and gives the first path it was shown as its reason."""

    def fit(self, training):
        return self

    def answer(self, inputs):
        asked = inputs.questions
        triplets = [[list(edge) for edge in paths[0]] if len(paths) else [] for paths in asked["candidate_paths"]]
        table = pd.DataFrame({"id": asked["id"], "outcome": "up"})
        return Answers(table, pd.DataFrame({"id": asked["id"], "triplets": triplets, "text": "as shown"}))
'''


@pytest.fixture(scope="module")
def reasoned(small_screen, simulation, tmp_path_factory):  # type: ignore[no-untyped-def]
    """A finished run whose answers have reasons, beside one without, on a fold with paths."""
    from pertbase.cli import main

    folder = tmp_path_factory.mktemp("reasoned")
    (folder / "conf" / "baseline").mkdir(parents=True)
    (folder / "first_path_baseline.py").write_text(BASELINE)
    (folder / "conf" / "baseline" / "first_path.yaml").write_text("_target_: first_path_baseline.FirstPath\n")
    graph = folder / "graph.csv"
    simulation.graph.assign(evidence=1).to_csv(graph, index=False)
    code = main(
        [
            "run", "-m", "--config-dir", str(folder / "conf"), "data=h5ad", f"data.path={small_screen}",
            "data.name=small", "fold=unseen_perturbation_genetic", "paths=own", f"paths.graph={graph}",
            "baseline=first_path,no_change", f"runs={folder / 'runs'}",
        ]
    )  # fmt: skip
    assert code == 0
    return folder / "runs"


def run_of(runs: Path, name: str):  # type: ignore[no-untyped-def]
    return next(run for run in find_runs(runs) if run.config["name"] == name)


def test_a_run_keeps_its_reasons_once_and_scores_them_with_every_adapter(reasoned) -> None:  # type: ignore[no-untyped-def]
    run = run_of(reasoned, "first_path")
    names = {item.name for item in (run.folder / "answers").iterdir()}
    assert names == {"reasons.parquet", *(f"{name}.parquet" for name in run.adapters)}
    for name in run.adapters:
        assert run.answers(name).reasons is not None
        found = run.scores["adapters"][name]["reasoning"]
        assert found["n"] > 50
        assert found["scores"]["grounded_prompt"]["value"] == pytest.approx(
            found["n_with_reason"] / found["n"], abs=1e-12
        )
        assert {"copied", "both_signs", "invented", "random_path", "reachable", "all_activates"} <= set(
            found["controls"]
        )
        assert found["scores"]["f1"]["labels"] is not None
        assert len(found["knowledge"]["graph_hash"]) == 64
        assert found["knowledge"]["gene_sets"] == "the data set's own"
        # Why each reason is not right is kept question by question.
        records = pd.read_parquet(run.folder / "reasoning" / f"{name}.parquet")
        assert records["f1"].mean() == pytest.approx(found["scores"]["f1"]["value"], abs=1e-12)
        assert records["low_f1"].sum() == found["causes"]["low_f1"]
        assert records["cell"].value_counts().to_dict() == {
            cell: count for cell, count in found["taxonomy"].items() if count
        }
    other = run_of(reasoned, "no_change")
    assert "reasoning" not in other.scores["adapters"]["fixed"]
    assert not (other.folder / "answers" / "reasons.parquet").exists()


def test_the_report_shows_reasons_beside_nulls_and_controls(pertbase, reasoned) -> None:  # type: ignore[no-untyped-def]
    code, out, err = pertbase("report", f"runs={reasoned}", "format=md")
    assert code == 0, err
    assert "unseen_perturbation_genetic: reasons" in out
    table = out.split("unseen_perturbation_genetic: reasons")[1].split("##")[0]
    for told in ("F1 over labels", "F1 over rewired", "F1 over contexts", "control: copied", "control: invented"):
        assert told in table
    assert "| first_path |" in table
    assert "| no_change |" not in table
    # Controls stand in every table of reasons.
    for part in out.split("## ")[1:]:
        if any(
            f"unseen_perturbation_genetic: {told}" in part for told in ("reasons", "answer, reason", "where", "do reas")
        ):
            assert "control: copied" in part.split("\n\n")[1]


def test_the_page_shows_the_same_tables(pertbase, reasoned, tmp_path) -> None:  # type: ignore[no-untyped-def]
    code, _, err = pertbase("report", f"runs={reasoned}", f"output={tmp_path / 'r.html'}", "shortcuts=false")
    assert code == 0, err
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<summary>Reasons</summary>" in page
    assert "control: copied" in page
    assert "By conflict" in page


def test_somebodys_file_has_the_scores_of_the_run(pertbase, reasoned, small_screen, tmp_path) -> None:  # type: ignore[no-untyped-def]
    run = run_of(reasoned, "first_path")
    Answers.read(run.folder / "answers" / "fixed.parquet").write(tmp_path / "mine.jsonl")
    for given in (tmp_path / "mine.jsonl", run.folder / "answers" / "fixed.parquet"):
        code, out, err = pertbase(
            "score", f"answers={given}", f"fold_dir={run.fold_folder}", f"output={tmp_path / 's.json'}",
            f"records={tmp_path / 'r.csv'}", "data=h5ad", f"data.path={small_screen}", "data.name=small",
        )  # fmt: skip
        assert code == 0, err
        assert "control: copied" in out
        found = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))["reasoning"]
        assert found == run.scores["adapters"]["fixed"]["reasoning"]
    records = pd.read_csv(tmp_path / "r.csv")
    assert len(records) == found["n"]
    assert records["f1"].mean() == pytest.approx(found["scores"]["f1"]["value"])
    assert {"low_f1", "unconnected", "ungrounded", "inconsistent", "cell"} <= set(records.columns)


def test_a_mini_is_asked_and_scored_alike(pertbase, reasoned, tmp_path) -> None:  # type: ignore[no-untyped-def]
    run = run_of(reasoned, "first_path")
    code, _, err = pertbase(
        "folds", "questions", f"fold_dir={run.fold_folder}", "mini=200", f"output={tmp_path / 'asked.jsonl'}"
    )
    assert code == 0, err
    asked = [json.loads(line) for line in (tmp_path / "asked.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(asked) == 200
    assert "candidate_paths" in asked[0]
    assert not {"outcome", "reference_paths", "reference_text", "regime"} & set(asked[0])
    code, _, err = pertbase(
        "folds", "questions", f"fold_dir={run.fold_folder}", "mini=200", f"output={tmp_path / 'asked.csv'}"
    )
    assert code == 0, err
    cells = pd.read_csv(tmp_path / "asked.csv")["candidate_paths"]
    assert [json.loads(cell) for cell in cells] == [row["candidate_paths"] for row in asked]
    lines = [{"id": row["id"], "outcome": "up", "triplets": (row["candidate_paths"] or [[]])[0]} for row in asked]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, _, err = pertbase(
        "score", f"answers={tmp_path / 'mine.jsonl'}", f"fold_dir={run.fold_folder}", "mini=200",
        f"output={tmp_path / 's.json'}",
    )  # fmt: skip
    assert code == 0, err
    scores = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert scores["n_missing"] == 0
    truth = read_truth(run.fold_folder).questions.set_index("id")["outcome"]
    assert scores["n"] == truth[[row["id"] for row in asked]].notna().sum()
    # Answers to all of the fold are picked.
    whole = run.folder / "answers" / "fixed.parquet"
    code, _, err = pertbase("score", f"answers={whole}", f"fold_dir={run.fold_folder}", "mini=200")
    assert code == 0, err


@pytest.mark.slow
def test_records_of_a_fold_are_read_back_by_the_field_map(pertbase, reasoned, tmp_path) -> None:  # type: ignore[no-untyped-def]
    fold = run_of(reasoned, "first_path").fold_folder
    code, out, err = pertbase("folds", "records", f"fold_dir={fold}", f"output={tmp_path / 'records'}", "mini=300")
    assert code == 0, err
    assert "data=pertreasonqa" in out
    code, out, err = pertbase(
        "folds", "make", "data=pertreasonqa", f"data.path={tmp_path / 'records'}", "fold=published",
        f"output={tmp_path / 'folds'}",
    )  # fmt: skip
    assert code == 0, err
    (made,) = (tmp_path / "folds").glob("pertreasonqa-*")
    again = read_truth(made).questions
    # Of the 300 that were drawn, the ambiguous have no record.
    assert 200 < len(again) < 300
    assert {"candidate_paths", "reference_paths", "reference_text", "conflict"} <= set(again.columns)
    before = read_truth(fold).questions.set_index(["context", "perturbation", "gene"])
    for row in again.head(40).itertuples():
        kept = before.loc[(row.context, row.perturbation, row.gene)]
        assert row.outcome == kept["outcome"]
        assert row.candidate_paths == [[list(edge) for edge in path] for path in kept["candidate_paths"]]
        assert row.conflict == kept["conflict"]
    # Reasons are scored against what a data set ships, too: there is no graph beside it.
    code, _, err = pertbase(
        "run", "--config-dir", str(reasoned.parent / "conf"), "data=pertreasonqa", f"data.path={tmp_path / 'records'}",
        "fold=published", "baseline=first_path", f"runs={tmp_path / 'runs'}",
    )  # fmt: skip
    assert code == 0, err
    found = run_of(tmp_path / "runs", "first_path").scores["adapters"]["fixed"]["reasoning"]
    assert found["n"] > 0
    assert found["scores"]["f1"]["value"] > 0
    assert found["scores"]["grounded_graph"]["value"] is None


def test_reasons_without_references_are_said_not_to_be_scored(pertbase, finished, tmp_path) -> None:  # type: ignore[no-untyped-def]
    run = next(iter(find_runs(finished)))
    asked = read_truth(run.fold_folder).questions
    reasons = pd.DataFrame({"id": asked["id"], "triplets": [[("A", "activates", "B")]] * len(asked)})
    Answers(asked[["id"]].assign(outcome="up"), reasons).write(tmp_path / "mine.jsonl")
    code, out, err = pertbase("score", f"answers={tmp_path / 'mine.jsonl'}", f"fold_dir={run.fold_folder}")
    assert code == 0, err
    assert "reasons are not scored" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["preset=joind"], "Did you mean 'joined'?"),
        (["mini=few"], "number of questions"),
        (["graph=omnipat"], "graph"),
        (["records=r.xlsx"], ".parquet or .csv"),
        (["paths=ffff"], "paths"),
        (["gene_sets=absent.gmt"], "absent.gmt"),
        (["names=absent.txt"], "absent.txt"),
    ],
)
def test_a_bad_option_for_reasons_says_what_is_wrong(pertbase, reasoned, tmp_path, arguments, said) -> None:  # type: ignore[no-untyped-def]
    run = run_of(reasoned, "first_path")
    answers = run.folder / "answers" / "fixed.parquet"
    code, out, err = pertbase("score", f"answers={answers}", f"fold_dir={run.fold_folder}", *arguments)
    assert code == 2
    assert said in err
    assert "Traceback" not in out + err


def test_few_questions_with_a_reason_to_find_get_counts_and_no_scores(reasoned) -> None:  # type: ignore[no-untyped-def]
    from pertbase.runs._reports._reasons import reason_sections

    run = run_of(reasoned, "first_path")
    scores = dict(run.scores["adapters"]["fixed"]["reasoning"])
    assert len(reason_sections("a fold", {"mine": scores})) > 3
    (section,) = reason_sections("a fold", {"mine": scores | {"n": 9, "n_with_reason": 7}})
    assert section.table.iloc[0].tolist() == ["mine", "9", "7"]
    assert "below 10 questions" in section.notes[0]
    for null in ("labels", "rewired", "contexts"):
        one = scores["scores"]["f1"]
        assert one[f"{null}_low"] is None or -1 <= one[f"{null}_low"] <= one[f"{null}_high"] <= 1


def test_a_note_of_all_answers_is_said_once_and_others_with_whose_they_are(reasoned) -> None:  # type: ignore[no-untyped-def]
    from pertbase.runs._reports._reasons import reason_sections

    scores = dict(run_of(reasoned, "first_path").scores["adapters"]["fixed"]["reasoning"])
    sections = reason_sections("a fold", {"a": scores | {"notes": ["same", "mine"]}, "b": scores | {"notes": ["same"]}})
    assert list(sections[0].notes)[-2:] == ["same", "a: mine"]


def test_a_run_read_in_a_notebook_has_its_paths_its_reasons_and_their_picture(reasoned: Path) -> None:
    pytest.importorskip("matplotlib").use("agg")
    from pertbase import plot, read_runs

    table = read_runs(reasoned)["unseen_perturbation_genetic"]
    run = table["first_path"]
    assert run.fold.paths is not None
    assert run.fold.paths.hash == run.config["paths_hash"]
    assert "candidate_paths" in run.fold.truth.questions
    assert run.reasons is not None
    assert set(run.reasons["id"]) == set(run.answers().table["id"])
    found = run.scores["adapters"][run.main_adapter]["reasoning"]
    ax = plot.reason_axes(found)
    (own,) = [points for points in ax.collections if points.get_label() == "answers"]
    assert own.get_offsets()[3, 0] == pytest.approx(found["scores"]["f1"]["value"])
    assert table["no_change"].reasons is None
