"""Whatever is written is what is read, in every format, whatever things are called."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from pertbase._io import plain
from pertbase.folds import (
    CONTROL,
    OUTCOMES,
    Answers,
    Effects,
    Fold,
    FoldMaker,
    FoldSpec,
    OutcomeTable,
    Part,
    Perturbation,
    Screen,
    open_fold,
    read_answers,
    read_questions,
    read_screen,
    write_questions,
    write_screen,
)

# NUL and lone surrogates are in no file format's text; the other separators are.
CHARACTERS = st.characters(blacklist_characters="\0", blacklist_categories=("Cs",))
ODD = [
    "A/B", "A", "A/C", ".", "..", "/", "_index", "index", "nan", "NaN", "None", "NA", "null", "true", "NO", "1", "01",
    "1e5", "1.0", "-", "1-Mar", "2001-09-01", "a,b", 'a"b', "a'b", "a\nb", "a\r\nb", "a\tb", " a", "a ", "β", "紫杉醇",
    "e\u0301", "\u00e9", "\u202eabc", "😀", "=1+1", "#", "%s", "{x}", "[y]", "x" * 300,
]  # fmt: skip
NAMES = st.one_of(st.sampled_from(ODD), st.text(CHARACTERS, min_size=1, max_size=12))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=64)


def some(elements: st.SearchStrategy[Any], low: int = 1, high: int = 6) -> st.SearchStrategy[list[Any]]:
    return st.lists(elements, min_size=low, max_size=high, unique=True)


quick = settings(max_examples=40, deadline=None)
few = settings(max_examples=12, deadline=None)


@st.composite
def answers(draw: st.DrawFn) -> Answers:
    ids = draw(some(NAMES, high=8))
    rows = []
    for name in ids:
        outcome = draw(st.sampled_from([*OUTCOMES, None]))
        status = draw(st.sampled_from(["ok", "unsupported"] if outcome else ["refusal", "no_answer", "truncated"]))
        weights = draw(st.one_of(st.none(), st.tuples(*[st.floats(0, 1e3)] * 3)))
        total = sum(weights) if weights else 0.0
        scores = [weight / total for weight in weights] if weights and total > 1e-9 else [np.nan] * 3
        rows.append((name, outcome, status, *scores))
    columns = ["id", "outcome", "status", "score_up", "score_down", "score_no_change"]
    return Answers(pd.DataFrame(rows, columns=columns))


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".csv"])
@quick
@given(said=answers())
def test_answers_come_back_to_the_last_digit(suffix: str, said: Answers) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"answers{suffix}"
        said.write(path)
        again = read_answers(path)
    pd.testing.assert_frame_equal(again.table, said.table, check_exact=True)


@st.composite
def questions(draw: st.DrawFn) -> pd.DataFrame:
    ids = draw(some(NAMES, high=8))
    size = len(ids)

    def text(strategy: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(strategy, min_size=size, max_size=size))

    table = pd.DataFrame(
        {
            "id": ids,
            "fold": "combinatorial",
            "split": text(st.sampled_from(["train", "val", "test"])),
            **{
                name: text(NAMES)
                for name in ("regime", "context", "perturbation", "mechanism", "targets", "target_set", "gene")
            },
            "outcome": text(st.sampled_from([*OUTCOMES, None])),
            "effect": text(NUMBERS),
            "p_value": text(st.floats(0, 1)),
            "p_adjusted": text(st.one_of(st.just(np.nan), st.floats(0, 1))),
            "n_cells": text(st.integers(0, 10**6)),
        }
    )
    return table.astype({"outcome": object})


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
@quick
@given(asked=questions())
def test_questions_come_back_to_the_last_digit(suffix: str, asked: pd.DataFrame) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"questions{suffix}"
        write_questions(asked, path)
        again = read_questions(path)
    # JSON has one kind of number: whole columns come back as whole numbers.
    pd.testing.assert_frame_equal(again, asked, check_exact=True, check_dtype=suffix == ".parquet")


@st.composite
def effects(draw: st.DrawFn) -> Effects:
    contexts, perturbations, genes = draw(some(NAMES, high=3)), draw(some(NAMES, high=4)), draw(some(NAMES, high=8))
    keys = [(context, name) for context in contexts for name in perturbations]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (len(keys), len(genes))
    index = pd.Index(genes, name="gene")
    return Effects(
        rng.normal(size=shape),
        pd.DataFrame(keys, columns=["context", "perturbation"]),
        index,
        draw(st.sampled_from(["mean_log", "log_mean"])),
        rng.choice(np.array(["ok", "unsupported"], dtype=object), len(keys)),
        draw(
            st.sampled_from(
                [
                    None,
                    pd.DataFrame(
                        rng.random((len(contexts), len(genes))), pd.Index(contexts, name="context"), columns=index
                    ),
                ]
            )
        ),
        draw(st.sampled_from([None, rng.random(shape) < 0.5])),
    )


@quick
@given(said=effects())
def test_effects_come_back_with_their_basal_expression(said: Effects) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "effects.h5ad"
        said.write(path)
        again = Effects.read(path)
    pd.testing.assert_frame_equal(again.frame(), said.frame(), check_exact=True)
    assert list(again.status) == list(said.status)
    assert again.statistic == said.statistic
    assert (again.basal is None) == (said.basal is None)
    if said.basal is not None and again.basal is not None:
        pd.testing.assert_frame_equal(again.basal, said.basal, check_exact=True)


def test_effects_of_a_whole_transcriptome_are_written_in_a_moment(tmp_path: Path) -> None:
    """Basal expression is one matrix: as a table, each gene would be a dataset of its own (10 s for 9,000)."""
    import h5py

    genes = pd.Index([f"G{i}" for i in range(20_000)], name="gene")
    basal = pd.DataFrame(np.ones((3, len(genes))), pd.Index(list("abc"), name="context"), genes)
    conditions = pd.DataFrame({"context": list("abc"), "perturbation": "p"})
    Effects(np.zeros((3, len(genes))), conditions, genes, basal=basal).write(tmp_path / "e.h5ad")
    names: list[str] = []
    with h5py.File(tmp_path / "e.h5ad") as store:
        store.visit(names.append)
    assert len(names) < 50


@st.composite
def screens(draw: st.DrawFn) -> Screen:
    contexts, genes = draw(some(NAMES, high=3)), draw(some(NAMES, low=2, high=6))
    parts = [
        Part.genetic(draw(NAMES), "CRISPRi"),
        Part("drug", ((draw(NAMES), -1),), draw(NAMES), draw(st.floats(1e-6, 1e6))),
    ]
    made = [Perturbation((parts[0],)), Perturbation((parts[1],)), Perturbation(tuple(parts))]
    known = {item.name: item for item in made}
    names = [CONTROL, *known]
    rows = [(context, name) for context in contexts for name in names]
    obs = pd.DataFrame(rows, columns=["context", "perturbation"])
    obs["is_control"] = obs["perturbation"] == CONTROL
    obs["batch"] = draw(st.lists(NAMES, min_size=len(rows), max_size=len(rows)))
    cells = draw(st.lists(NAMES, min_size=len(rows), max_size=len(rows), unique=True))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    counts = rng.poisson(1.0, (len(rows), len(genes))) + np.eye(len(rows), len(genes))
    counts[counts.sum(axis=1) == 0, 0] = 1
    total = 50.0
    x = np.log1p(counts * (total / counts.sum(axis=1, keepdims=True))).astype(np.float32)
    return Screen(
        name=draw(NAMES),
        X=draw(st.sampled_from([sparse.csr_matrix(x), x])),
        obs=obs.set_axis(pd.Index(cells, name="cell")),
        genes=pd.Index(genes, name="gene"),
        perturbations=known,
        total=total,
        simulated=draw(st.booleans()),
    )


@pytest.mark.filterwarnings("ignore:Writing zarr v2")
@pytest.mark.parametrize("suffix", [".h5ad", ".zarr"])
@few
@given(screen=screens())
def test_screen_comes_back_with_every_name(suffix: str, screen: Screen) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"screen{suffix}"
        write_screen(screen, path)
        again = read_screen(path)
    assert again.hash == screen.hash
    assert again.name == screen.name
    assert again.simulated == screen.simulated
    assert dict(again.perturbations) == dict(screen.perturbations)
    pd.testing.assert_frame_equal(again.obs, screen.obs)


@st.composite
def folds(draw: st.DrawFn) -> Fold:
    """A fold of a table of outcomes with odd names."""
    contexts, genes = draw(some(NAMES, high=2)), draw(some(NAMES, low=2, high=5))
    targets = draw(some(NAMES, low=6, high=8))
    known = {item.name: item for item in (Perturbation.genetic([target], "CRISPRi") for target in targets)}
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = [
        (context, name, gene, rng.choice(OUTCOMES))
        for context in contexts
        for name in known
        for gene in genes
        if gene not in known[name].targets
    ]
    table = pd.DataFrame(rows, columns=["context", "perturbation", "gene", "outcome"])
    data = OutcomeTable(name=draw(NAMES), table=table, perturbations=known)
    return FoldMaker(data).make(FoldSpec(kind="unseen_perturbation_genetic", seed=draw(st.integers(0, 3))))


@few
@given(fold=folds())
def test_fold_folder_comes_back_with_the_content_its_manifest_names(fold: Fold) -> None:
    with tempfile.TemporaryDirectory() as folder:
        again = open_fold(fold.write(Path(folder) / "fold"))
    assert again.manifest() == plain(fold.manifest())  # NaN is null in a file
    assert again.spec == fold.spec
    assert dict(again.perturbations) == dict(fold.perturbations)
    assert list(again.genes) == list(fold.genes)
    pd.testing.assert_frame_equal(again.questions, fold.questions, check_exact=True)
    pd.testing.assert_frame_equal(again.conditions, fold.conditions, check_dtype=False)


@few
@given(name=NAMES, context=NAMES, other=NAMES)
def test_every_fold_has_a_folder_of_its_own_whatever_it_is_called(name: str, context: str, other: str) -> None:
    specs = {FoldSpec(kind="unseen_context_genetic", test_context=item).name for item in (context, other)}
    plain = {item.replace(" ", "-") for item in (context, other)}
    assert len(specs) == len(plain)
    for spec in specs:
        assert len(spec.encode()) < 120
        assert not {"/", "\\", "\0", "\n"} & set(spec)
