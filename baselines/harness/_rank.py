"""One rank of several: ``python -m pertbase.baselines.harness._rank FOLDER RANK``, started by rank 0."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

__all__ = ["main"]


def main(folder: Path, rank: int) -> None:
    """Train as a rank of what a folder describes."""
    import torch.distributed as dist
    from hydra.utils import instantiate

    from pertbase._io import read_yaml
    from pertbase.baselines.harness._ranks import join, read_training
    from pertbase.baselines.harness._settings import TrainerSettings
    from pertbase.baselines.harness._train import train_rank

    config = read_yaml(folder / "config.yaml")
    settings = TrainerSettings.from_config({**config["trainer"], "progress": False})
    baseline = instantiate(config["baseline"], _convert_="all")
    training = read_training(folder)
    place = join(rank, int(config["world"]), int(config["port"]), settings)
    try:
        train_rank(baseline, training, Path(config["folder"]), settings, place)
    finally:
        dist.destroy_process_group()


def _end_with_parent() -> None:
    """End this process when rank 0 is gone: nothing is written to its input, which then closes."""
    # not through sys.stdin: its lock, held by a thread, would break this process's own end
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main(Path(sys.argv[1]), int(sys.argv[2]))
