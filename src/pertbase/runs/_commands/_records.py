"""``pertbase folds records``: a fold's questions, outcomes and paths as question-answer records in JSONL."""

from __future__ import annotations

from pathlib import Path

from pertbase._io import write_aside
from pertbase.errors import InputError, UnsupportedError
from pertbase.folds import open_fold
from pertbase.folds._fold import SPLITS
from pertbase.folds._mini import mini_of
from pertbase.folds._write_records import target_table, write_records
from pertbase.runs._commands._folds import _taken
from pertbase.runs._compose import compose, expand
from pertbase.runs._names import Names

__all__ = ["records"]


def records(arguments: list[str]) -> int:
    """Write ``train.jsonl``, ``val.jsonl`` and ``test.jsonl`` with the fields of a data set's map.

    ``data`` names the data set, ``pertreasonqa`` where not given; ``data.fields.KEY=NAME`` changes a field; ``mini=N``
    writes that many questions of test, drawn in the shares of their strata.
    """
    overrides, own, folders = _taken(arguments, "folds records", ("data",))
    for key in ("fold_dir", "output"):
        if not own.get(key):
            raise InputError("is missing", key=key, remedy=f"add {key}=FOLDER")
    names = Names(tuple(folders))
    named = [text for text in overrides if text.startswith("data=")] or ["data=pertreasonqa"]
    wanted = [*named, *(text for text in overrides if not text.startswith("data="))]
    (job,) = expand(wanted, names, multirun=False)
    data = compose(job, names)["data"]
    if "fields" not in data:
        raise UnsupportedError("is no data set of records", key="data", value=data.get("name"))
    fold = open_fold(own["fold_dir"], paths=own.get("paths"))
    questions = fold.truth_of(*SPLITS).questions
    output = Path(own["output"])
    counts = {}
    for split in SPLITS:
        asked = questions.loc[questions["split"] == split].reset_index(drop=True)
        if split == "test":
            asked = mini_of(asked, own.get("mini"))
        counts[split] = write_records(
            asked,
            output / f"{split}.jsonl",
            data["fields"],
            perturbations=fold.perturbations,
            mechanism=data.get("mechanism"),
            outcomes=data.get("outcomes"),
        )
    targets = target_table(fold.perturbations)
    more = ""
    if len(targets):
        with write_aside(output / "targets.csv") as temporary:
            targets.to_csv(temporary, index=False)
        more = f" data.targets={output / 'targets.csv'}"
    told = ", ".join(f"{count:,} {split}" for split, count in counts.items())
    left = int(questions["outcome"].isna().sum())
    print(f"{told} records written to {output}" + (f"; {left:,} ambiguous questions have none" if left else ""))
    fields = "".join(f" {text}" for text in wanted if text.startswith("data."))
    print(f"to read them: {wanted[0]} data.path={output}{more}{fields} fold=published")
    return 0
