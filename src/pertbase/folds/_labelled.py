"""A data set with its controls divided and its questions labelled: what every fold of it starts from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pertbase._io import canonical_json
from pertbase._random import generator
from pertbase.errors import UnsupportedError
from pertbase.folds._answers import OUTCOMES, outcome_codes
from pertbase.folds._condition_tests import ConditionTests, condition_tests
from pertbase.folds._effect_table import EffectTable
from pertbase.folds._effects import Effects
from pertbase.folds._labelled_effects import effect_conditions, effect_questions
from pertbase.folds._labels import LabelRule, power
from pertbase.folds._outcome_table import OutcomeTable
from pertbase.folds._perturbation import Perturbation
from pertbase.folds._screen import Screen

__all__ = ["Labelled", "count_outcomes", "divide_controls", "label", "question_ids"]

INPUT, TRUTH = "input", "truth"


@dataclass(frozen=True, eq=False, repr=False)
class Labelled:
    """A data set labelled by one rule, before any split.

    Parameters
    ----------
    name, hash, simulated
        The data set's.
    conditions
        ``context``, ``perturbation``, ``modality``, ``mechanism``, ``targets``, ``target_set``, ``n_parts``,
        ``n_cells``, ``n_up``, ``n_down``, ``n_no_change``, ``n_ambiguous``, ``power``, ``reason`` (empty, or why the
        condition has no questions) and, where the data set ships one, ``published``.
    questions
        All labelled (condition, readout gene) pairs, against truth controls: what test asks.
    seen_questions, seen_effects
        The same against input controls: what train and val hold. One set of controls for both would put its sampling
        error into what is learnt and into what is asked, and averaging it would count as skill: with 50 controls a
        context it is worth .04 to .07 of balanced accuracy. Those of a table are the same as ``questions``.
    perturbations
        Name -> perturbation.
    genes
        Measured genes, or the readout genes of an outcome table.
    effects
        Measured effects of every labelled condition against truth controls, or None.
    controls
        ``cell``, ``context``, ``batch``, ``role`` (input or truth); empty for tables.
    total
        The normalisation's total, or None.
    tests
        The tests the labels were read off, or None.
    """

    name: str
    hash: str
    simulated: bool
    conditions: pd.DataFrame
    questions: pd.DataFrame
    perturbations: Mapping[str, Perturbation]
    genes: pd.Index
    effects: Effects | None
    controls: pd.DataFrame
    total: float | None
    tests: ConditionTests | None
    seen_questions: pd.DataFrame
    seen_effects: Effects | None


def divide_controls(obs: pd.DataFrame, *, input_share: float, seed: int) -> pd.Series:
    """Return ``input`` or ``truth`` for every control cell, indexed by cell.

    Drawn within each context and batch, so that both sides hold every batch in the same share, to within one
    cell. It depends on the cells and the seed alone, not on the fold's kind.
    """
    controls = obs.loc[obs["is_control"], ["context", "batch"]]
    role = pd.Series(TRUTH, index=controls.index, dtype=object, name="role")
    for (context, batch), cells in controls.groupby(["context", "batch"], observed=True, sort=True).groups.items():
        rng = generator(seed, "controls", str(context), str(batch))
        # Sorted first: the draw then does not depend on the order of the file's rows.
        drawn = rng.permutation(np.sort(np.asarray(cells, dtype=str)))
        role.loc[drawn[: round(len(drawn) * input_share)]] = INPUT
    return role


def question_ids(data: str, rule: LabelRule, context: str, perturbation: str, genes: np.ndarray) -> list[str]:
    """Return the ids of one condition's questions: a hash of data set, rule, context, perturbation and gene."""
    head = hashlib.blake2b(digest_size=10)
    head.update("\x1f".join((data, canonical_json(rule.to_dict()), context, perturbation, "")).encode())
    ids = []
    for gene in genes:
        one = head.copy()
        one.update(str(gene).encode())
        ids.append(one.hexdigest())
    return ids


def label(
    data: Screen | OutcomeTable | EffectTable, rule: LabelRule, *, seed: int, input_share: float, min_controls: int
) -> Labelled:
    """Divide the controls, test every condition against the truth controls and label its questions."""
    if isinstance(data, OutcomeTable):
        return _label_table(data, rule)
    if isinstance(data, EffectTable):
        return _label_effects(data, rule, seed=seed)
    return _label_screen(data, rule, seed=seed, input_share=input_share, min_controls=min_controls)


def _label_screen(screen: Screen, rule: LabelRule, *, seed: int, input_share: float, min_controls: int) -> Labelled:
    role = divide_controls(screen.obs, input_share=input_share, seed=seed)
    position = pd.Series(np.arange(len(screen.obs)), index=screen.obs.index)
    context_of = screen.obs.loc[role.index, "context"]
    sides = {
        side: {
            context: position[role.index[((context_of == context) & (role == side)).to_numpy()]].to_numpy()
            for context in screen.contexts
        }
        for side in (INPUT, TRUTH)
    }
    treated = screen.obs.reset_index(drop=True)
    treated = treated.loc[~treated["is_control"]]
    rows = {
        (str(context), str(name)): np.asarray(cells)
        for (context, name), cells in treated.groupby(["context", "perturbation"], observed=True).groups.items()
    }
    enough = [
        context for context in screen.contexts if min(len(sides[side][context]) for side in sides) >= min_controls
    ]
    tests, seen = (
        condition_tests(
            screen.X,
            controls={context: sides[side][context] for context in enough},
            conditions=rows,
            min_cells=rule.min_cells,
            min_controls=min_controls,
        )
        for side in (TRUTH, INPUT)
    )
    if not len(tests):
        raise UnsupportedError(
            f"no condition of {screen.name} can be labelled: {tests.dropped['reason'].iloc[0]}",
            remedy=f"a condition needs {rule.min_cells} cells and its context {min_controls} controls on each side of "
            "the partition; lower rule.min_cells or fold.min_controls, or add cells",
        )
    conditions = _describe(screen, tests, rule)
    questions = _questions(screen, tests, rule, conditions, seed=seed)
    conditions = count_outcomes(conditions, questions)
    table = pd.DataFrame(
        {
            "cell": role.index,
            "context": context_of.to_numpy(),
            "batch": screen.obs.loc[role.index, "batch"].to_numpy(),
            "role": role.to_numpy(),
        }
    )
    return Labelled(
        name=screen.name,
        hash=screen.hash,
        simulated=screen.simulated,
        conditions=conditions,
        questions=questions,
        perturbations=dict(screen.perturbations),
        genes=screen.genes,
        effects=Effects(tests.effect(rule.statistic), tests.conditions, screen.genes, rule.statistic),
        controls=table,
        total=screen.total,
        tests=tests,
        seen_questions=_questions(screen, seen, rule, conditions, seed=seed),
        seen_effects=Effects(seen.effect(rule.statistic), seen.conditions, screen.genes, rule.statistic),
    )


def _describe(screen: Screen, tests: ConditionTests, rule: LabelRule) -> pd.DataFrame:
    """Return the screen's conditions with their power, and why some have no questions."""
    keys = ["context", "perturbation"]
    strength = tests.conditions[keys].assign(power=power(tests, rule).mean(axis=1))
    conditions = screen.conditions.merge(strength, on=keys, how="left", validate="1:1")
    conditions = conditions.merge(tests.dropped[[*keys, "reason"]], on=keys, how="left", validate="1:1")
    conditions["reason"] = conditions["reason"].fillna("")
    return conditions


def _questions(
    screen: Screen, tests: ConditionTests, rule: LabelRule, conditions: pd.DataFrame, *, seed: int
) -> pd.DataFrame:
    codes = rule.codes(tests.evidence(rule.statistic))
    kept = rule.keep(codes, rng=generator(seed, "sampled questions"))
    effects = tests.effect(rule.statistic)
    about = conditions.set_index(["context", "perturbation"])
    words = np.array([*OUTCOMES, None], dtype=object)
    blocks = []
    for row, (context, name, n_cells) in enumerate(
        zip(tests.conditions["context"], tests.conditions["perturbation"], tests.conditions["n_cells"], strict=True)
    ):
        own = screen.genes.isin(screen.perturbations[name].targets)
        asked = np.flatnonzero(kept[row] & ~own)
        genes = screen.genes.to_numpy()[asked]
        condition = about.loc[(context, name)]
        blocks.append(
            pd.DataFrame(
                {
                    "id": question_ids(screen.name, rule, context, name, genes),
                    "context": context,
                    "perturbation": name,
                    "mechanism": condition["mechanism"],
                    "targets": condition["targets"],
                    "target_set": condition["target_set"],
                    "gene": genes,
                    "outcome": words[codes[row, asked]],
                    "effect": effects[row, asked],
                    "p_value": tests.p_value[row, asked],
                    "p_adjusted": tests.p_adjusted[row, asked],
                    "n_cells": n_cells,
                }
            )
        )
    return pd.concat(blocks, ignore_index=True)


def count_outcomes(conditions: pd.DataFrame, questions: pd.DataFrame) -> pd.DataFrame:
    """Return the conditions with how many of their questions have each outcome."""
    codes = outcome_codes(questions["outcome"])
    keys = pd.MultiIndex.from_frame(conditions[["context", "perturbation"]])
    group = keys.get_indexer(pd.MultiIndex.from_frame(questions[["context", "perturbation"]]))
    counts = np.zeros((len(conditions), 4), dtype=np.int64)
    np.add.at(counts, (group, codes), 1)  # -1, ambiguous, is the last column
    return conditions.assign(n_up=counts[:, 0], n_down=counts[:, 1], n_no_change=counts[:, 2], n_ambiguous=counts[:, 3])


def _label_table(table: OutcomeTable, rule: LabelRule) -> Labelled:
    conditions = table.conditions.assign(power=np.nan, reason="")
    if "split" in table.table.columns:
        shipped = table.table.groupby(["context", "perturbation"], observed=True)["split"].first()
        keys = pd.MultiIndex.from_frame(conditions[["context", "perturbation"]])
        conditions["published"] = shipped.astype(object).reindex(keys).to_numpy()
    rows = table.table.sort_values(["context", "perturbation", "gene"], kind="stable", ignore_index=True)
    number = pd.MultiIndex.from_frame(conditions[["context", "perturbation"]]).get_indexer(
        pd.MultiIndex.from_frame(rows[["context", "perturbation"]].astype(object))
    )
    genes = rows["gene"].astype(object).to_numpy()
    own = {
        (row, gene) for row, name in enumerate(conditions["perturbation"]) for gene in table.perturbations[name].targets
    }
    kept = np.fromiter((key not in own for key in zip(number, genes, strict=True)), dtype=bool, count=len(rows))
    rows, number, genes = rows.loc[kept], number[kept], genes[kept]
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    ids: list[str] = []
    for start, end in zip(starts, [*starts[1:], len(number)], strict=True):
        condition = conditions.iloc[number[start]]
        ids += question_ids(table.name, rule, condition["context"], condition["perturbation"], genes[start:end])
    copied = ("context", "perturbation", "mechanism", "targets", "target_set")
    questions = pd.DataFrame(
        {
            "id": ids,
            **{name: conditions[name].to_numpy(dtype=object)[number] for name in copied},
            "gene": genes,
            "outcome": rows["outcome"].astype(object).to_numpy(),
            **dict.fromkeys(("effect", "p_value", "p_adjusted"), np.nan),
            "n_cells": 0,
        }
    )
    if table.paths is not None:
        asked = pd.MultiIndex.from_frame(questions[["context", "perturbation", "gene"]])
        shipped = table.paths.set_index(["context", "perturbation", "gene"])
        at = shipped.index.get_indexer(asked)
        questions = questions.assign(**{name: shipped[name].to_numpy()[at] for name in shipped})
    return Labelled(
        name=table.name,
        hash=table.hash,
        simulated=False,
        conditions=count_outcomes(conditions, questions),
        questions=questions,
        perturbations=dict(table.perturbations),
        genes=table.genes,
        effects=None,
        controls=_no_controls(),
        total=None,
        tests=None,
        seen_questions=questions,
        seen_effects=None,
    )


def _label_effects(table: EffectTable, rule: LabelRule, *, seed: int) -> Labelled:
    conditions = effect_conditions(table, rule)
    questions = effect_questions(table, rule, conditions, seed=seed)
    return Labelled(
        name=table.name,
        hash=table.hash,
        simulated=table.simulated,
        conditions=count_outcomes(conditions, questions),
        questions=questions,
        perturbations=dict(table.perturbations),
        genes=table.genes,
        # The effects are in the questions. A baseline is not handed them as a matrix: pairs may be missing from it.
        effects=None,
        controls=_no_controls(),
        total=None,
        tests=None,
        seen_questions=questions,
        seen_effects=None,
    )


def _no_controls() -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=object) for name in ("cell", "context", "batch", "role")})
