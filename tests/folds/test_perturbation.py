"""What makes two perturbations the same, and what a split keeps together."""

from __future__ import annotations

import itertools
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertbase.errors import InputError
from pertbase.folds import MECHANISMS, Part, Perturbation
from pertbase.folds._perturbation import perturbation_table, perturbations_from_table

A, B = Part.genetic("A", "CRISPRi"), Part.genetic("B", "CRISPRi")
DRUG = Part("drug", (("MYC", -1),), "drug, b/β", 0.5)

symbols = st.text(st.characters(whitelist_categories=("L", "N")), min_size=1, max_size=5)
genetic = st.builds(
    Part.genetic, symbols, st.sampled_from([name for name, (kind, _) in MECHANISMS.items() if kind == "genetic"])
)
chemical = st.builds(
    Part,
    st.sampled_from(["drug", "ligand"]),
    st.dictionaries(symbols, st.sampled_from([-1, 0, 1]), max_size=3).map(lambda signs: tuple(signs.items())),
    st.text(min_size=1, max_size=8),
    st.none() | st.floats(1e-6, 1e6),
)
perturbations = st.lists(genetic | chemical, min_size=1, max_size=3, unique=True).map(
    lambda parts: Perturbation(tuple(parts))
)


@given(perturbations)
def test_order_of_parts_never_matters(perturbation: Perturbation) -> None:
    for parts in itertools.permutations(perturbation.parts):
        same = Perturbation(parts)
        assert same == perturbation
        assert hash(same) == hash(perturbation)
        assert (same.name, same.split_key) == (perturbation.name, perturbation.split_key)


@given(st.lists(perturbations, min_size=1, max_size=4, unique=True))
def test_table_gives_back_what_it_was_made_of(items: list[Perturbation]) -> None:
    named = {f"p{number}": item for number, item in enumerate(items)}
    assert perturbations_from_table(perturbation_table(named)) == named


def test_names_say_mechanism_parts_and_dose() -> None:
    assert Perturbation((B, A)).name == "CRISPRi:A+B"
    assert Perturbation((DRUG,)).name == "drug:drug, b/β@0.5"
    assert Perturbation((DRUG, A)).name == "CRISPRi:A+drug:drug, b/β@0.5"
    assert str(Perturbation((A,))) == "CRISPRi:A"


def test_mechanism_and_dose_are_part_of_the_identity_but_not_of_the_split_key() -> None:
    lower, higher = Perturbation.genetic(["A"], "CRISPRi"), Perturbation.genetic(["A"], "CRISPRa")
    assert lower != higher
    assert lower.split_key == higher.split_key == "gene:A"
    weak, strong = (Perturbation((Part("drug", (), "a", dose),)) for dose in (0.1, 10.0))
    assert weak != strong
    assert weak.split_key == strong.split_key == "compound:a"


def test_gene_and_compound_of_one_name_are_not_one_unit() -> None:
    assert Perturbation.genetic(["IL2"], "CRISPRi").split_key != Perturbation((Part("ligand", (), "IL2"),)).split_key


def test_signs_follow_the_mechanism_and_are_unknown_where_parts_disagree() -> None:
    assert Perturbation.genetic(["A"], "CRISPRa").signs == {"A": 1}
    assert Perturbation.genetic(["A"], "CRISPR-KO").signs == {"A": -1}
    both = Perturbation((A, Part("drug", (("A", 1), ("C", 1)), "x")))
    assert both.signs == {"A": 0, "C": 1}
    assert both.targets == ("A", "C")
    assert both.modality == "mixed"
    assert both.mechanism == "CRISPRi+drug"
    assert both.compounds == ("x",)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Part("TALEN", (("A", 1),)), r"mechanism: unknown mechanism \(got 'TALEN'\)"),
        (lambda: Part.genetic("A", "crispri"), r"unknown mechanism \(got 'crispri'\)"),
        (lambda: Part("CRISPRi", (("A", -1), ("B", -1))), "exactly one target"),
        (lambda: Part("CRISPRi", (("A", -1),), dose=1.0), "no dose"),
        (lambda: Part.genetic("", "CRISPRi"), "no name"),
        (lambda: Part("drug", (("A", 2),), "x"), "-1, 0 or"),
        (lambda: Part("drug", (("A", 1), ("A", -1)), "x"), "two signs"),
        (lambda: Part("drug"), "needs a compound"),
        (lambda: Part("drug", (), "x", 0.0), "positive number"),
        (lambda: Part("drug", (), "x", float("nan")), "positive number"),
        (lambda: Perturbation(()), "at least one part"),
        (lambda: Perturbation((A, A)), "given twice"),
    ],
)
def test_what_cannot_be_done_to_a_cell_is_refused(make: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        make()


def test_two_names_for_one_perturbation_are_refused() -> None:
    table = perturbation_table({"one": Perturbation((A, B)), "two": Perturbation((B, A))})
    with pytest.raises(InputError, match=r"'one' and 'two' mean the same"):
        perturbations_from_table(table)


def test_table_without_a_column_is_refused_by_name() -> None:
    table = perturbation_table({"one": Perturbation((A,))}).drop(columns="sign")
    with pytest.raises(InputError, match=r"f\.h5ad: .*lacks columns \(got \['sign'\]\)"):
        perturbations_from_table(pd.DataFrame(table), file="f.h5ad")
