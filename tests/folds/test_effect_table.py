"""Tables of measured and predicted effects: what is read, converted, refused, labelled and handed out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import false_discovery_control, norm

from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import (
    Effects,
    FoldMaker,
    FoldSpec,
    check_fold,
    label_rule,
    load_data,
    make_fold,
    open_fold,
    read_effect_table,
    read_predictions,
)

OPTIONS = {"context_value": "K562", "mechanism": "CRISPRa"}
MEASURED = {**OPTIONS, "effect": "lfc", "standard_error": "se", "unit": "log2", "statistic": "log_mean"}


@pytest.fixture
def rows() -> pd.DataFrame:
    """Twelve perturbations, one of them a combination, on eight genes of which one is never measured in the last."""
    rng = np.random.default_rng(0)
    names = [f"P{number}" for number in range(11)] + ["P1+P0"]
    table = pd.DataFrame([(name, f"G{gene}") for name in names for gene in range(8)], columns=["perturbation", "gene"])
    table["lfc"] = np.where(rng.random(len(table)) < 0.5, rng.normal(0, 1.0, len(table)), 0.02)
    table["se"] = 0.1
    table["guess"] = table["lfc"] + rng.normal(0, 0.2, len(table))
    table["regime"] = ["seen" if name in names[:8] else "new" for name in table["perturbation"]]
    table["cells"] = 100
    return table.iloc[:-1]


@pytest.fixture
def file(rows: pd.DataFrame, tmp_path):  # type: ignore[no-untyped-def]
    def write(table: pd.DataFrame = rows, suffix: str = ".csv"):  # type: ignore[no-untyped-def]
        path = tmp_path / f"mine{suffix}"
        if suffix == ".parquet":
            table.to_parquet(path)
        else:
            table.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
        return path

    return write


def test_log2_becomes_natural_log_and_so_do_standard_errors(file) -> None:  # type: ignore[no-untyped-def]
    table = pd.DataFrame({"perturbation": ["A"], "gene": ["X"], "lfc": [1.0], "se": [0.5]})
    read = read_effect_table(file(table), **MEASURED).table.iloc[0]
    assert read["effect"] == pytest.approx(np.log(2), abs=1e-15)
    assert read["standard_error"] == pytest.approx(0.5 * np.log(2), abs=1e-15)
    # The ratio, and with it the p-value, has no unit.
    assert read["p_value"] == pytest.approx(2 * norm.sf(2.0), rel=1e-12)
    tenfold = read_predictions(file(table), **OPTIONS, effect="lfc", unit="log10")
    assert tenfold.values[0, 0] == pytest.approx(np.log(10))
    assert read_predictions(file(table), **OPTIONS, effect="lfc").values[0, 0] == 1.0


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_every_form_of_file_is_the_same_data_set(rows, file, suffix) -> None:  # type: ignore[no-untyped-def]
    expected = read_effect_table(file(rows), name="mine", **MEASURED)
    assert read_effect_table(file(rows.sample(frac=1, random_state=1), suffix), **MEASURED).hash == expected.hash


def test_a_gene_may_be_called_NA(file) -> None:  # type: ignore[no-untyped-def]
    table = pd.DataFrame({"perturbation": ["A"], "gene": ["NA"], "lfc": [1.0], "se": [0.5]})
    assert list(read_effect_table(file(table), **MEASURED).genes) == ["NA"]


def test_adjusted_p_values_are_within_condition_where_they_are_not_given(rows, file) -> None:  # type: ignore[no-untyped-def]
    table = read_effect_table(file(), **MEASURED).table
    for _, part in table.groupby("perturbation"):
        np.testing.assert_allclose(part["p_adjusted"], false_discovery_control(part["p_value"]))


def test_labels_follow_the_rule(file) -> None:  # type: ignore[no-untyped-def]
    fold = make_fold(read_effect_table(file(), **MEASURED, regime="regime", train_regimes="seen"), kind="published")
    asked = fold.questions
    called = (asked["p_adjusted"] < 0.05) & (asked["effect"].abs() > 0.25)
    assert (asked["outcome"].isin(["up", "down"]) == called).all()
    assert (asked.loc[called, "outcome"] == np.where(asked.loc[called, "effect"] > 0, "up", "down")).all()
    assert (asked.loc[~called & (asked["p_value"] > 0.1), "outcome"] == "no_change").all()
    between = ~called & (asked["p_value"] <= 0.1)
    assert (asked.loc[between, "regime"] == "ambiguous").all()


def test_the_rule_takes_over_the_tables_statistic_and_no_other(file) -> None:  # type: ignore[no-untyped-def]
    table = read_effect_table(file(), **MEASURED, regime="regime", train_regimes="seen")
    assert make_fold(table, kind="published").spec.rule.statistic == "log_mean"
    with pytest.raises(UnsupportedError, match="mean_log"):
        FoldMaker(table).make(FoldSpec(kind="published"))


@pytest.mark.parametrize(("rule", "lacking"), [("pertmind", "mean counts"), ("equivalence", "standard errors")])
def test_a_rule_that_needs_more_than_the_table_has_is_refused(rows, file, rule, lacking) -> None:  # type: ignore[no-untyped-def]
    options = {key: value for key, value in MEASURED.items() if key != "standard_error"}
    path = file(rows.assign(p=0.5))
    table = read_effect_table(path, **options, p_value="p", regime="regime", train_regimes="seen")
    with pytest.raises(UnsupportedError, match=lacking):
        make_fold(table, kind="published", rule=label_rule(rule))


def test_the_shipped_split_and_regimes_are_the_folds(file, tmp_path) -> None:  # type: ignore[no-untyped-def]
    fold = make_fold(read_effect_table(file(), **MEASURED, regime="regime", train_regimes="seen"), kind="published")
    folder = fold.write(tmp_path / "fold")
    assert check_fold(folder).ok
    again = open_fold(folder)
    test = again.conditions.loc[again.conditions["split"] == "test"]
    assert sorted(test["perturbation"]) == ["CRISPRa:P0+P1", "CRISPRa:P10", "CRISPRa:P8", "CRISPRa:P9"]
    assert set(again.truth.questions["regime"]) <= {"new", "ambiguous"}
    # No regime, published or not, reaches a model.
    for table in (again.training.conditions, again.inputs("test").conditions, again.inputs("test").questions):
        assert not [name for name in table.columns if "regime" in name or name == "published"]
    assert "effect" not in again.inputs("test").questions
    assert again.training.effects is None


def test_the_readout_that_is_the_target_is_not_asked(file) -> None:  # type: ignore[no-untyped-def]
    table = pd.DataFrame(
        [(name, gene, 1.0, 0.1) for name in ("A", "B", "C+D") for gene in ("A", "C", "X")],
        columns=["perturbation", "gene", "lfc", "se"],
    ).assign(split=["train"] * 3 + ["train"] * 3 + ["test"] * 3)
    more = table.assign(perturbation=table["perturbation"].map({"A": "E", "B": "F", "C+D": "G"}))
    fold = make_fold(read_effect_table(file(pd.concat([table, more])), **MEASURED, split="split"), kind="published")
    asked = set(zip(fold.questions["perturbation"], fold.questions["gene"], strict=True))
    assert ("CRISPRa:A", "A") not in asked
    assert ("CRISPRa:C+D", "C") not in asked
    assert ("CRISPRa:B", "A") in asked


def test_conditions_with_too_few_cells_have_no_questions(rows, file) -> None:  # type: ignore[no-untyped-def]
    few = rows.assign(cells=np.where(rows["perturbation"] == "P8", 24, 25))
    table = read_effect_table(file(few), **MEASURED, n_cells="cells", regime="regime", train_regimes="seen")
    fold = make_fold(table, kind="published")
    assert "CRISPRa:P8" not in set(fold.questions["perturbation"])
    assert fold.conditions.set_index("perturbation").loc["CRISPRa:P8", "reason"] == "24 cells, fewer than 25"


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (lambda t: t.drop(columns="lfc"), {}, "unknown column"),
        (lambda t: pd.concat([t, t.iloc[:1]]), {}, "given twice"),
        (lambda t: t.assign(lfc="much"), {}, "not numbers"),
        (lambda t: t.assign(lfc=np.where(t.index == 3, np.nan, t["lfc"])), {}, "no valid value"),
        (lambda t: t.assign(perturbation=""), {}, "empty values"),
        (lambda t: t.assign(perturbation="ctrl"), {}, "names no perturbation"),
        (lambda t: t, {"unit": "ln"}, "unit"),
        (lambda t: t, {"mechanism": "CRISPRx"}, "mechanism"),
        (lambda t: t, {"context_value": None}, "context"),
        (lambda t: t, {"standard_error": None}, "significance"),
        (lambda t: t, {"regime": "regime", "train_regimes": "sen"}, "did you mean 'seen'"),
        (lambda t: t.assign(regime=t["gene"]), {"regime": "regime"}, "two values of regime"),
        (lambda t: t.assign(s="half"), {"split": "s"}, "unknown split"),
        (lambda t: t, {"standard_eror": "se"}, "did you mean 'standard_error'"),
        (lambda t: t.assign(p=1.5), {"p_value": "p"}, "no valid value"),
    ],
)
def test_a_bad_table_is_refused_with_what_is_wrong(rows, file, change, options, said) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=f"(?i){said}"):
        read_effect_table(file(change(rows)), **{**MEASURED, **options})


def test_absent_predictions_are_not_known_and_are_asked_for_in_vain(rows, file, tmp_path) -> None:  # type: ignore[no-untyped-def]
    holed = rows.assign(guess=np.where(rows.index == 5, np.nan, rows["guess"]))
    effects = read_predictions(file(holed), **OPTIONS, effect="guess", unit="log2", statistic="log_mean")
    assert effects.known is not None
    assert int((~effects.known).sum()) == 2  # the empty value, and the row that is not there
    effects.write(tmp_path / "effects.h5ad")
    again = Effects.read(tmp_path / "effects.h5ad")
    np.testing.assert_array_equal(again.known, effects.known)
    asked = pd.DataFrame(
        {"context": "K562", "perturbation": ["CRISPRa:P0", "CRISPRa:P0", "CRISPRa:P0+P1"], "gene": ["G5", "G4", "G7"]}
    )
    values, status = again.at(asked)
    assert list(status) == ["unsupported", "ok", "unsupported"]
    assert np.isnan(values).tolist() == [True, False, True]
    assert np.isnan(again.frame().loc[("K562", "CRISPRa:P0"), "G5"])
    one = again.select(pd.DataFrame({"context": ["K562"], "perturbation": ["CRISPRa:P0"]}))
    assert one.known is not None
    assert int((~one.known).sum()) == 1


def test_a_part_called_control_is_left_out_as_in_gears_conditions(file) -> None:  # type: ignore[no-untyped-def]
    table = pd.DataFrame({"perturbation": ["A+ctrl", "ctrl+B", "B+A"], "gene": "X", "guess": 0.5})
    effects = read_predictions(file(table), **OPTIONS, effect="guess")
    assert sorted(effects.conditions["perturbation"]) == ["CRISPRa:A", "CRISPRa:A+B", "CRISPRa:B"]


def test_gears_published_predictions_are_a_data_set_with_their_own_split(real_data, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("PERTBASE_DATA", str(real_data))
    table = load_data("gears_norman")
    fold = make_fold(table, kind="published")
    regimes = table.conditions.groupby("published")["published_regime"].unique()
    assert sorted(regimes["train"]) == ["combo_in_train", "single_seen"]
    assert sorted(regimes["test"]) == ["combo_seen0", "combo_seen1", "single_unseen"]
    assert len(fold.truth.questions) == 1186
    assert fold.certificate["ranks_baselines"]


def test_columns_called_context_and_mechanism_need_not_be_named(file, rows) -> None:  # type: ignore[no-untyped-def]
    table = rows.assign(context="K562", mechanism="CRISPRa", effect=rows["guess"])
    told = read_predictions(file(table), context="context", mechanism="mechanism", effect="guess")
    found = read_predictions(file(table))
    pd.testing.assert_frame_equal(found.conditions, told.conditions)
    np.testing.assert_array_equal(found.values, told.values)
    # What is said wins over what a column is called.
    assert set(read_predictions(file(table), context_value="RPE1").conditions["context"]) == {"RPE1"}
    with pytest.raises(InputError, match="either context=COLUMN or context_value=NAME"):
        read_predictions(file(table), context="context", context_value="K562")
    with pytest.raises(InputError, match=r"mine\.csv: context: says which context"):
        read_predictions(file(table.drop(columns="context")))
    with pytest.raises(InputError, match=r"mine\.csv: mechanism: is not said"):
        read_predictions(file(table.drop(columns="mechanism")))


@pytest.mark.parametrize(
    "name", ["CRISPRi:A", "CRISPRa:A+B", "drug:trametinib@0.5", "drug:b@home", "CRISPRi:A+drug:b", "ligand:IFNB@10"]
)
def test_names_in_the_spelling_of_questions_are_taken_as_they_are(file, name) -> None:  # type: ignore[no-untyped-def]
    table = pd.DataFrame({"context": "K562", "perturbation": [name], "gene": ["X"], "effect": [1.0]})
    assert list(read_predictions(file(table)).conditions["perturbation"]) == [name]


@pytest.mark.parametrize("cells", [12.5, -3, float("inf"), 1e300])
def test_a_number_of_cells_is_whole_or_refused(rows, file, cells) -> None:  # type: ignore[no-untyped-def]
    wrong = rows.assign(cells=[100.0] * (len(rows) - 1) + [cells])
    with pytest.raises(InputError, match=r"cells: is no number of cells .*leave it empty"):
        read_effect_table(file(wrong), **MEASURED, n_cells="cells")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_number_of_cells_that_is_not_known_does_not_lower_the_condition_s(rows, file, suffix) -> None:  # type: ignore[no-untyped-def]
    holed = rows.assign(cells=[np.nan, *[100.0] * (len(rows) - 1)])
    read = read_effect_table(file(holed, suffix), **MEASURED, n_cells="cells")
    assert (read.conditions["n_cells"] == 100).all()
    assert (read.table["n_cells"] == 0).sum() == 1
