"""How long rendering and parsing take: 100,000 questions with paths to prompts, and as many replies read.

    python benchmarks/language.py

Prints a Markdown table of CPU-seconds, medians of three, and the peak memory of the process.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from pertbase.baselines.llm import Encoder, Record, parse, read_template
from pertbase.baselines.llm._prompts import option_orders, reply_of
from pertbase.folds import OUTCOMES, FoldMaker, FoldSpec, Inputs, PathSpec
from pertbase.knowledge import Triplet
from pertbase.simulate import simulate_screen

N = 100_000


def asked() -> Inputs:
    """Return 100,000 questions of the simulated screen with their candidate paths, repeated under ids of their own."""
    maker = FoldMaker(simulate_screen(seed=0).screen)
    spec = FoldSpec(kind="unseen_perturbation_genetic", paths=PathSpec())
    fold = maker.draw(spec)
    inputs = replace(fold, paths=maker._lay(fold, spec.paths)).inputs("test", cells=False)
    rows = np.resize(np.arange(len(inputs.questions)), N)
    questions = inputs.questions.iloc[rows].reset_index(drop=True)
    return replace(inputs, questions=questions.assign(id=[f"q{number}" for number in range(N)]))


def messy(records: list[Record]) -> list[str]:
    """Return replies of the kinds that models write, one a record, in turn."""
    rng = np.random.default_rng(0)
    said = [OUTCOMES[code] for code in rng.integers(0, 3, len(records))]
    texts = []
    for number, (record, outcome) in enumerate(zip(records, said, strict=True)):
        reason = [Triplet(gene, "activates", record.gene) for gene, _ in record.targets]
        form = number % 6
        plain = reply_of(reason, outcome)
        thought = "First, what is known of the gene. " * 20
        texts.append(
            (
                plain,
                f"```json\n{plain}\n```",
                f"<think>{thought}</think>\n{plain}",
                plain.replace("]]", "],] // as shown\n"),
                f"{thought}\n\n**Final answer:** {record.gene} is not {outcome.replace('_', ' ')}regulated",
                f"<think>{thought}",
            )[form]
        )
    return texts


def timed(work: Callable[[], object]) -> float:
    """Return the median of three, CPU-seconds."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def main() -> None:
    """Print the table."""
    inputs = asked()
    template, encoder = read_template(None, "cell_path"), Encoder(preset="cell_path")
    records = encoder.records(inputs)
    texts = messy(records)
    orders = option_orders(3)
    rows = {
        "records": timed(lambda: encoder.records(inputs)),
        "prompts that ask for a reply": timed(lambda: [template.reply(record) for record in records]),
        "prompts that ask for a letter, 3 orders": timed(
            lambda: [template.options(record, order) for record in records for order in orders]
        ),
        "replies read": timed(
            lambda: [parse(text, names=(record.gene,)) for text, record in zip(texts, records, strict=True)]
        ),
    }
    rows["records, replies' prompts and replies read"] = sum(rows[name] for name in (*rows,) if "letter" not in name)
    table = pd.Series(rows).round(1)
    print(f"| 100,000 questions, {sum(bool(record.paths) for record in records):,} with paths | CPU-s |\n| --- | --- |")
    for name, value in table.items():
        print(f"| {name} | {value:.1f} |")
    print(f"\npeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
