"""A training small enough to fine-tune on in seconds, in a file of its own: runs that are killed are processes.

Two contexts, a chain of genes G0 -> G1 -> ... with alternating signs; what happens to a gene is what the path from the
target says within three edges, and nothing beyond them or against the chain's direction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from pertbase.baselines.finetuned import SFT
from pertbase.folds import Effects, Inputs, Perturbation, Training
from pertbase.knowledge import SignedGraph

N_GENES = 14
HOPS = 3
TINY = {"hidden_size": 32, "layers": 2, "heads": 2, "vocabulary": 400, "positions": 512}
SMALL = {
    "start": "tiny", "tiny": TINY, "template": "short", "max_length": 256, "pack": 256, "batch_size": 16,
    "learning_rate": 0.003, "max_epochs": 2, "max_tokens": 64,
}  # fmt: skip
CPU = {"accelerator": "cpu", "progress": False}
FAIL_AT = None  # a step at which training breaks
FAILURE: type[BaseException] = RuntimeError


class Stopped(SFT):
    """SFT that breaks where it is told to."""

    def build(self, training):
        module = super().build(training)
        step = module.training_step

        def stopping(batch):
            if module.global_step == FAIL_AT:
                raise FAILURE("the toy was told to fail")
            return step(batch)

        module.training_step = stopping
        return module


@dataclass(frozen=True)
class Toy:
    training: Training
    inputs: Inputs
    truth: pd.DataFrame


def make_toy(*, val: bool = True, missing: str | None = None, paths: bool = True) -> Toy:
    """Return a fold; ``missing`` is an outcome that train does not have."""
    genes = [f"G{number}" for number in range(N_GENES)]
    signs = np.resize([1, -1, -1, 1, -1], N_GENES - 1)
    items = [Perturbation.genetic([gene], "CRISPRi" if number % 3 else "CRISPRa") for number, gene in enumerate(genes)]
    splits = np.resize(["train", "train", "train", "train", "test"], N_GENES)
    splits[3::7] = "val" if val else "train"
    rows = []
    for context in ("A", "B"):
        for number, (item, split) in enumerate(zip(items, splits, strict=True)):
            start = item.signs[genes[number]]
            for place, gene in enumerate(genes):
                if place == number:
                    continue
                reached = number < place <= number + HOPS
                sign = start * int(np.prod(signs[number:place])) if reached else 0
                path = [
                    (genes[step], "activates" if signs[step] > 0 else "inhibits", genes[step + 1])
                    for step in range(number, place)
                ]
                outcome = {1: "up", -1: "down", 0: "no_change"}[sign]
                found = [path] if reached else []
                name = item.name
                text = f"{name}: so {gene} goes {outcome}." if reached else ""
                rows.append((context, name, split, gene, outcome, found, found, text, item.split_key, item.mechanism))
    names = ["context", "perturbation", "split", "gene", "outcome", "candidate_paths", "reference_paths"]
    table = pd.DataFrame(rows, columns=[*names, "reference_text", "target_set", "mechanism"])
    if missing is not None:
        table = table.loc[(table["split"] != "train") | (table["outcome"] != missing)].reset_index(drop=True)
    if not paths:
        table = table.drop(columns=["candidate_paths", "reference_paths", "reference_text"])
    table = table.assign(
        id=table["context"] + "|" + table["perturbation"] + "|" + table["gene"], fold="toy", regime="",
        targets=table["perturbation"].str.split(" ").str[0], n_cells=50,
    )  # fmt: skip
    conditions = table[["context", "perturbation", "split", "mechanism", "targets", "target_set"]].drop_duplicates()
    conditions = conditions.assign(modality="genetic", n_parts=1, n_cells=50).reset_index(drop=True)
    known = conditions.loc[conditions["split"] != "test"].reset_index(drop=True)
    test = conditions.loc[conditions["split"] == "test"].reset_index(drop=True)
    perturbations = {item.name: item for item in items}
    basal = pd.DataFrame(np.linspace(0.2, 2, 2 * N_GENES).reshape(2, -1), index=["A", "B"], columns=genes)
    net = SignedGraph.from_edges(pd.DataFrame({"source": genes[:-1], "target": genes[1:], "sign": signs}), name="chain")
    shared = {"genes": pd.Index(genes), "statistic": "mean_log", "basal": basal, "graph": net}
    values = np.zeros((len(known), N_GENES))
    asked = table.loc[table["split"] == "test"].reset_index(drop=True)
    training = Training(
        fold="toy", kind="unseen_perturbation_genetic", data="toy", seed=0,
        questions=table.loc[table["split"] != "test"].reset_index(drop=True), conditions=known,
        perturbations={name: perturbations[name] for name in known["perturbation"]},
        effects=Effects(values, known, pd.Index(genes), "mean_log"), **shared,
    )  # fmt: skip
    hidden = ["outcome", "regime", "n_cells", "reference_paths", "reference_text"]
    inputs = Inputs(
        split="test", questions=asked.drop(columns=[name for name in hidden if name in asked]),
        conditions=test.drop(columns="n_cells"),
        perturbations={name: perturbations[name] for name in test["perturbation"]}, **shared,
    )  # fmt: skip
    return Toy(training, inputs, asked)


def fitted(training: Training, folder: Path | None = None, trainer=None, *, cls=SFT, **options):  # type: ignore[no-untyped-def]
    """Return a model taught on a training, in a folder of a run where one is given."""
    model = cls(**{**SMALL, **options})
    if folder is not None:
        model.workspace(folder / "toy" / "fold" / "sft" / "seed0", trainer or CPU, {})
    return model.fit(training)


def exported_to(folder: Path) -> Path:
    return folder / "toy" / "fold" / "sft" / "seed0" / "model"


def balanced(answers, truth: pd.DataFrame) -> float:  # type: ignore[no-untyped-def]
    said = answers.table.set_index("id").loc[truth["id"], "outcome"].to_numpy()
    right = truth["outcome"].to_numpy()
    return float(np.mean([(said[right == one] == one).mean() for one in ("up", "down", "no_change")]))


def seeded(training: Training, seed: int) -> Training:
    return replace(training, seed=seed)
