"""Errors say what to do: the name that was meant, and what to call in place of what cannot be."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import pertbase as pb
from pertbase.errors import InputError, UnsupportedError, unknown_name
from pertbase.folds import KINDS, FoldSpec


@pytest.fixture(scope="module")
def fold(maker):  # type: ignore[no-untyped-def]
    return maker.make(FoldSpec(kind="combinatorial"))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("combinatorail", "Did you mean 'combinatorial'?"),
        ("unseen_context", "Did you mean 'unseen_context_genetic'?"),
        ("unseen", "Did you mean 'unseen_both_chemical' or 'unseen_both_genetic' or 'unseen_context_chemical' or"),
        ("chemical", "Did you mean 'genetic_to_chemical'"),
        ("Combi", "Did you mean 'combinatorial'?"),
        ("zzzz", "Known: combinatorial"),
        ("un", "Known: combinatorial"),
    ],
)
def test_a_name_cut_short_is_answered_with_those_it_begins(given: str, meant: str) -> None:
    assert meant in str(unknown_name("fold", given, KINDS))


def test_a_fold_kind_cut_short_is_answered_with_the_whole_names(simulated) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match="unseen_context_genetic"):
        pb.make_fold(simulated, kind="unseen")


def test_an_answer_baseline_says_that_it_answers(fold) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UnsupportedError, match=r"GenePrior answers questions itself.*Call answer\(inputs\)"):
        pb.baselines.GenePrior().predict(fold.inputs("test", cells=False))
    with pytest.raises(InputError, match=r"GenePrior is not fitted.*Call fit\(training\) first"):
        pb.baselines.GenePrior().answer(fold.inputs("test", cells=False))


def test_an_expression_baseline_says_that_adapters_answer(fold) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UnsupportedError, match=r"BilinearRidge predicts effects.*Call predict\(inputs\).*adapter"):
        pb.baselines.BilinearRidge().answer(fold.inputs("test", cells=False))


def test_what_is_scored_in_place_of_answers_says_how_to_make_them(fold) -> None:  # type: ignore[no-untyped-def]
    table = pd.DataFrame({"id": fold.truth.questions["id"], "outcome": "no_change"})
    with pytest.raises(InputError, match=r"are not Answers \(got 'DataFrame'\).*pertbase\.Answers\(table\)"):
        pb.scorers.outcome(table, fold.truth)
    with pytest.raises(InputError, match=r"are not Answers \(got 'Effects'\).*adapters"):
        pb.scorers.outcome(fold.truth.effects, fold.truth)
    with pytest.raises(InputError, match=r"is not a Truth \(got 'Fold'\)\. Give fold\.truth"):
        pb.scorers.outcome(pb.Answers(table), fold)
    assert pb.scorers.outcome(pb.Answers(table), fold.truth).balanced_accuracy.value == pytest.approx(1 / 3)


def test_a_certificate_shows_itself(fold) -> None:  # type: ignore[no-untyped-def]
    certificate = fold.certificate
    assert repr(certificate).startswith("certificate: can rank baselines\n  disjoint: True\n")
    page = certificate._repr_html_()
    assert f"<td>{certificate['verdict']}</td>" in page
    assert page.count("<tr>") == len(certificate.rows()) == len(repr(certificate).splitlines())
    assert certificate == dict(certificate)


def test_a_certificate_does_not_show_what_rests_on_a_handful_of_calls(fold) -> None:  # type: ignore[no-untyped-def]
    about = {**fold.certificate, "ranks_baselines": False, "verdict": "cannot rank <baselines>"}
    few = type(fold.certificate)(about)
    rows = dict(few.rows())
    assert rows["ceiling"] == rows["balanced accuracy of the priors"] == "not given"
    assert "cannot rank &lt;baselines&gt;" in few._repr_html_()
    assert repr(type(few)({})) == "no certificate"


def test_a_baseline_is_fitted_to_a_training_and_to_nothing_that_holds_more(fold, simulated) -> None:  # type: ignore[no-untyped-def]
    model = pb.baselines.BilinearRidge()
    with pytest.raises(InputError, match=r"is not a Training \(got 'Screen'\)\. Give fold\.training, of a fold = "):
        model.fit(simulated)
    # A fold has effects of its own, test's among them: it would fit, and nobody would know.
    with pytest.raises(InputError, match=r"is not a Training \(got 'Fold'\)\. Give fold\.training\.$"):
        model.fit(fold)
    assert model.fit(fold.training) is model


@pytest.mark.parametrize(
    ("module", "name", "meant"),
    [
        (pb, "prepaer", "did you mean 'prepare'?"),
        (pb.baselines, "BilinearRidgee", "did you mean 'BilinearRidge'?"),
        (pb.baselines, "ScGPTT", "did you mean 'ScGPT'?"),
        (pb.knowledge, "signed_grph", "did you mean 'signed_graph'?"),
        (pb.runs, "reed_run", "did you mean 'read_run'?"),
        (pb.runs, "zzzzzz", "has no attribute 'zzzzzz'"),
    ],
)
def test_a_public_name_that_is_misspelt_is_answered_with_the_nearest(module: Any, name: str, meant: str) -> None:
    assert not hasattr(module, name)
    with pytest.raises(AttributeError) as raised:
        getattr(module, name)
    assert str(raised.value).endswith(meant)


def test_a_question_ends_with_its_mark_and_a_sentence_with_its_stop() -> None:
    assert str(InputError("is unknown", remedy="did you mean this?")) == "is unknown. Did you mean this?"
    assert str(InputError("is unknown", remedy="say this")) == "is unknown. Say this."
