"""A table of effects, labelled: the rule of a screen on somebody else's tests."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pertbase._random import generator
from pertbase.errors import UnsupportedError
from pertbase.folds._answers import OUTCOMES
from pertbase.folds._effect_table import EffectTable
from pertbase.folds._labels import Equivalence, Evidence, LabelRule, PertMind

__all__ = ["effect_conditions", "effect_questions"]


def effect_conditions(table: EffectTable, rule: LabelRule) -> pd.DataFrame:
    """Return the table's conditions, and why some have no questions: fewer cells than the rule asks for.

    Raises
    ------
    UnsupportedError
        Where the effects are of another statistic than the rule's, or lack what it decides on.
    """
    if rule.statistic != table.statistic:
        raise UnsupportedError(
            f"the effects of {table.name} are {table.statistic}, and the rule {rule.name} is on {rule.statistic}",
            remedy=f"set the rule's statistic to {table.statistic}",
        )
    if isinstance(rule, PertMind):
        raise UnsupportedError(f"the rule {rule.name} needs mean counts, which {table.name} does not have")
    if isinstance(rule, Equivalence) and table.table["standard_error"].isna().any():
        raise UnsupportedError(f"the rule {rule.name} needs standard errors, which {table.name} does not have")
    conditions = table.conditions.assign(power=np.nan)
    # 0 is not known, and no reason to leave a condition out.
    few = conditions["n_cells"].between(1, rule.min_cells - 1)
    told = conditions["n_cells"].astype(str) + f" cells, fewer than {rule.min_cells}"
    return conditions.assign(reason=told.where(few, ""))


def effect_questions(table: EffectTable, rule: LabelRule, conditions: pd.DataFrame, *, seed: int) -> pd.DataFrame:
    """Return the questions of the conditions that have any, labelled, readouts that are the target left out."""
    from pertbase.folds._labelled import question_ids

    rows = table.table
    about = conditions.set_index(["context", "perturbation"])
    placed = about.reindex(pd.MultiIndex.from_frame(rows[["context", "perturbation"]])).reset_index(drop=True)
    own = np.fromiter(
        (
            gene in table.perturbations[name].targets
            for gene, name in zip(rows["gene"], rows["perturbation"], strict=True)
        ),
        dtype=bool,
        count=len(rows),
    )
    asked = ~own & (placed["reason"] == "").to_numpy()
    rows, placed = rows.loc[asked].reset_index(drop=True), placed.loc[asked].reset_index(drop=True)
    value = {name: rows[name].to_numpy() for name in ("effect", "p_value", "p_adjusted", "standard_error")}
    codes = rule.codes(Evidence(**value, base_mean=np.full(len(rows), np.nan)))
    rng = generator(seed, "sampled questions")
    kept = np.zeros(len(rows), dtype=bool)
    ids: list[str] = []
    for (context, name), members in rows.groupby(["context", "perturbation"], sort=True).indices.items():
        kept[members] = rule.keep(codes[None, members], rng=rng)[0]
        ids += question_ids(table.name, rule, context, name, rows["gene"].to_numpy()[members])
    questions = pd.DataFrame(
        {
            "id": ids,
            **{name: rows[name].to_numpy(dtype=object) for name in ("context", "perturbation")},
            **{name: placed[name].to_numpy(dtype=object) for name in ("mechanism", "targets", "target_set")},
            "gene": rows["gene"].to_numpy(dtype=object),
            "outcome": np.array([*OUTCOMES, None], dtype=object)[codes],
            **{name: value[name] for name in ("effect", "p_value", "p_adjusted")},
            "n_cells": rows["n_cells"].to_numpy(),
        }
    )
    return questions.loc[kept].reset_index(drop=True)
