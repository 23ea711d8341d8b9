"""What was said in training and what it earned, kept as it comes: one line a reply, one line a step.

Both files can be cut back to a step: a training that goes on from a checkpoint holds no step twice, and lacks none.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pertbase._io import plain, write_text
from pertbase.baselines.finetuned._rewards import SHARES, Reward
from pertbase.baselines.llm import Parsed
from pertbase.errors import InputError, PertbaseError

__all__ = ["REPLIES", "STEPS", "Reply", "Rollouts", "read_steps"]

STEPS, REPLIES = "steps.jsonl", "replies.jsonl"
_CEILING = 1 - 1e-9


@dataclass(frozen=True)
class Reply:
    """One reply that was drawn in training.

    Parameters
    ----------
    question, sample
        Which question, and which of the replies to it.
    text, finish, tokens
        As it was drawn; ``stop``, or ``length`` where it was cut off; its length.
    parsed
        What it says.
    reward
        What it earned.
    """

    question: str
    sample: int
    text: str
    finish: str
    tokens: int
    parsed: Parsed
    reward: Reward

    def line(self, step: int) -> dict[str, Any]:
        """Return what is kept of it."""
        said = {"outcome": self.parsed.outcome, "status": self.parsed.status}
        about = {"question": self.question, "sample": self.sample, "finish": self.finish, "tokens": self.tokens}
        return {"step": step, **about, "text": self.text, **said, "reward": asdict(self.reward)}


class Rollouts:
    """The replies and steps of one training, in a folder.

    Parameters
    ----------
    folder
        Where they are kept; made where it is not there.
    patience
        Steps in a row that may teach nothing.
    """

    def __init__(self, folder: Path, *, patience: int) -> None:
        self.folder = folder
        self.patience = patience
        self.steps: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None

    @property
    def silent(self) -> int:
        """Steps in a row, up to the last, in which all replies to a question earned the same, or nothing at all."""
        count = 0
        for step in reversed(self.steps):
            if step["within"]:
                break
            count += 1
        return count

    @property
    def converged(self) -> bool:
        """Whether the last step taught nothing because every reply earned all there is."""
        last = self.steps[-1] if self.steps else None
        return last is not None and not last["within"] and (last["reward"] or 0.0) >= _CEILING

    @property
    def done(self) -> bool:
        """Whether there has been nothing left to earn for as many steps as are allowed."""
        return self.converged and self.silent >= self.patience

    def rewind(self, step: int) -> None:
        """Forget what came after a step, and half a line that a killed process left.

        Raises
        ------
        InputError
            Where a step up to this one is not in both files, naming the file: before anything of them is changed.
        """
        self._refuse_gaps(step)
        for name in (STEPS, REPLIES):
            path = self.folder / name
            lines = [text for text, row in _lines(path) if row["step"] <= step] if path.exists() else []
            write_text(path, "".join(lines))
        self.steps = read_steps(self.folder)
        self._open = None

    def _refuse_gaps(self, step: int) -> None:
        for name in (STEPS, REPLIES):
            path = self.folder / name
            there = {int(row["step"]) for _, row in _lines(path)} if path.exists() else set()
            if missing := sorted({*range(1, step + 1)} - there):
                raise InputError(
                    f"lacks {len(missing)} of the {step} steps that the checkpoint is of", file=path, key="step",
                    value=missing[0], remedy=f"remove {self.folder}; the same command then trains anew",
                )  # fmt: skip

    def add(self, step: int, replies: Sequence[Reply]) -> None:
        """Keep the replies of a step; those to one question stand together.

        Raises
        ------
        PertbaseError
            Where the disk is full, or nothing has been learnt for as many steps as are allowed, saying why.
        """
        _append(self.folder / REPLIES, [reply.line(step) for reply in replies])
        self._open = {"step": step, **_summary(replies)}
        self.steps.append(self._open)
        if self.silent >= self.patience and not self.converged:
            raise _nothing_learnt(self.silent, self._open)

    def close(self, **logged: float | None) -> None:
        """Keep the line of the step that ``add`` began, with what the update logged; nothing where there is none."""
        if self._open is not None:
            self._open.update(logged)
            _append(self.folder / STEPS, [self._open])
            self._open = None


def read_steps(folder: Path) -> list[dict[str, Any]]:
    """Return the steps that a folder holds, in order; empty where there are none."""
    path = folder / STEPS
    return [row for _, row in _lines(path)] if path.exists() else []


def _summary(replies: Sequence[Reply]) -> dict[str, Any]:
    """Return the mean of each share, over the replies that have it, and how replies to one question differ."""
    totals = _column([reply.reward.total for reply in replies])
    questions = np.array([reply.question for reply in replies])
    groups = [totals[questions == one] for one in dict.fromkeys(questions.tolist())]
    within = [_deviation(group[~np.isnan(group)]) for group in groups]
    shares = {name: _mean([getattr(reply.reward, name) for reply in replies]) for name in SHARES}
    statuses = Counter(reply.parsed.status for reply in replies)
    return {
        "n": len(replies),
        "reward": _mean(totals.tolist()),
        **shares,
        "referred": _mean([reply.reward.triplets is not None for reply in replies]),
        "within": float(np.mean(within)),
        "alike": float(np.mean(np.array(within) == 0)),
        "tokens": _mean([reply.tokens for reply in replies]),
        "statuses": dict(sorted(statuses.items())),
    }


def _deviation(values: np.ndarray) -> float:
    """Return the standard deviation, exactly 0 for equal values."""
    return float(np.std(values)) if len(values) and np.ptp(values) else 0.0


def _column(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None and value == value]
    return float(np.mean(known)) if known else None


def _nothing_learnt(count: int, last: Mapping[str, Any]) -> PertbaseError:
    """Return an error that says why replies could not be told from each other."""
    statuses = ", ".join(f"{number:,} {name}" for name, number in last["statuses"].items())
    if last["reward"] is None:
        return PertbaseError(
            f"no reply of the last {count} steps could be rewarded: what is rewarded is the reason alone, and none of "
            "their questions has a reference",
            key="rewards",
            remedy="lay paths over the fold (paths=own, paths=human), or give rewards.outcome a weight",
        )
    remedy = "start from a model that answers at times right and at times wrong, or raise temperature"
    if last["statuses"].get("ok", 0) == 0:
        remedy = "start from a model that knows the form, such as baseline.start=run:sft_reasoned"
        if last["statuses"].get("truncated", 0) == last["n"]:
            remedy += ", or raise baseline.max_tokens: all were cut off"
    return PertbaseError(
        f"in each of the last {count} steps, all replies to a question earned the same ({last['reward']:.3f} in the "
        f"last one; of its {last['n']} replies: {statuses}), so there is nothing to learn from",
        key="rewards",
        remedy=remedy,
    )


# -- lines ----------------------------------------------------------------------------------------------------


def _append(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(plain(row), ensure_ascii=False) + "\n" for row in rows)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise PertbaseError(
            f"what training says cannot be kept ({error.strerror or error})", file=path,
            remedy="make room; the same command goes on from the last checkpoint",
        ) from error  # fmt: skip


def _lines(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return each line with what it says; one that a killed process left unended is left out."""
    found = []
    for place, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            row = json.loads(line)
            int(row["step"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"line {place} cannot be read ({error})", file=path, key=f"line {place}",
                remedy="remove the folder it lies in; training then begins anew",
            ) from error  # fmt: skip
        found.append((line.decode() + "\n", row))
    return found
