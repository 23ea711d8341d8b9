"""GRPO on the toy fold, in a file of its own: runs that are killed are processes."""

from __future__ import annotations

from pathlib import Path

from pertbase.baselines.finetuned import GRPO
from pertbase.baselines.finetuned._rollouts import REPLIES, STEPS
from pertbase.folds import Training

POLICY = {
    "template": "short", "preset": "cell_path", "max_length": 256, "max_tokens": 48, "steps": 4, "questions": 3,
    "generations": 4, "learning_rate": 1e-3, "patience": 50,
}  # fmt: skip


def policy(start: Path | str, **how) -> GRPO:  # type: ignore[no-untyped-def]
    return GRPO(**{"start": str(start), **POLICY, **how})


def fitted(start: Path, training: Training, folder: Path, **how) -> GRPO:  # type: ignore[no-untyped-def]
    model = policy(start, **how)
    model.workspace(folder, {"checkpoint_every": 2}, {})
    return model.fit(training)


def kept(folder: Path) -> dict[str, bytes]:
    """Return the files of replies and steps."""
    (home,) = (folder / "training").iterdir()
    return {name: (home / name).read_bytes() for name in (STEPS, REPLIES)}


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()
