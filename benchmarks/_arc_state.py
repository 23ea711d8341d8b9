"""arc-state in an environment of its own, for the benchmark beside it.

Run by our Python, this module makes that environment and calls it; run by the environment's Python, it is the other
side: it knows arc-state and not pertbase, and both talk through files in a folder. arc-state is for non-commercial use;
it is compared with here, and nothing of it is part of the suite.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

import numpy as np

VERSION = "0.11.1"
DEFAULT_ENVIRONMENT = Path.home() / ".cache" / "pertbase" / "benchmarks" / f"arc-state-{VERSION}"
GENES, PERTURBATIONS, BATCHES, LATENT = 60, 7, 3, 20
SIZES = {
    "128/2/8": {"hidden": 128, "layers": 2, "heads": 8, "encoder": 1, "sets": 8, "cells": 32, "genes": 500},
    "base": {"hidden": 768, "layers": 8, "heads": 12, "encoder": 1, "sets": 4, "cells": 64, "genes": 2000},
}
"""Hidden units, layers, heads, layers of encoders and output; sets and cells in a batch; genes."""
VARIANTS: dict[str, dict[str, Any]] = {
    "one layer": {"encoder": 1},
    "four layers": {"encoder": 4},
    "bottleneck": {"encoder": 1, "output_space": "all"},
    "batches": {"encoder": 2, "batch_encoder": True},
    "embedding": {"encoder": 1, "embed_key": "X_state", "latent": LATENT},
}


def environment(folder: Path) -> Path:
    """Return the interpreter of an environment with arc-state and our version of torch, made where it is not there."""
    import torch

    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    if subprocess.run([python, "-c", "import state"], capture_output=True, check=False).returncode:
        same = re.match(r"[0-9.]+", torch.__version__)
        wanted = (f"arc-state=={VERSION}", f"torch=={same[0]}" if same else "torch")
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
    return python


def ask(python: Path, task: str, folder: Path, **options: Any) -> dict[str, Any]:
    """Run one task of this file in arc-state's environment, in one thread, and return what it says."""
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    # -P: this folder has a file of the same name as their package
    command = [python, "-P", "-W", "ignore", __file__, task, folder, json.dumps(options)]
    ran = subprocess.run(command, env=os.environ | one, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(ran.stderr[-2000:])
    said: dict[str, Any] = json.loads((folder / f"{task}.json").read_text())
    return said


def peak() -> float:
    """Return the largest resident memory of this process so far, in MB (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


# -- the other side -------------------------------------------------------------------------------------------


def model(
    *, hidden: int, layers: int, heads: int, encoder: int, cells: int, genes: int, perturbations: int, **more: Any
) -> Any:
    """Return arc-state's transition model on its bidirectional llama."""
    from state.tx.models.state_transition import StateTransitionPerturbationModel

    latent = more.pop("latent", None)
    width = latent or genes
    if latent:
        widths = [1024, 1024, 512]
        more["decoder_cfg"] = {"latent_dim": latent, "gene_dim": genes, "hidden_dims": widths, "dropout": 0.1}
        more["decoder_cfg"]["residual_decoder"] = False
    backbone = {
        "bidirectional_attention": True,
        "max_position_embeddings": cells,
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": hidden // heads,
        "use_cache": False,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        "layer_norm_eps": 1e-6,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
        "rotary_dim": 0,
        "use_rotary_embeddings": False,
    }
    given = {
        "input_dim": width,
        "hidden_dim": hidden,
        "output_dim": width,
        "pert_dim": perturbations,
        "batch_dim": BATCHES,
        "predict_residual": True,
        "distributional_loss": "energy",
        "transformer_backbone_key": "llama",
        "transformer_backbone_kwargs": backbone,
        "output_space": "gene",
        "gene_dim": genes,
        "cell_set_len": cells,
        "n_encoder_layers": encoder,
        "n_decoder_layers": encoder,
        "lr": 1e-4,
        "embed_key": None,
        "gene_names": [f"g{number}" for number in range(genes)],
        "control_pert": "non-targeting",
        "dropout": 0.1,
    }
    with contextlib.redirect_stdout(io.StringIO()):
        return StateTransitionPerturbationModel(**given | more)


def batch_of(sets: int, cells: int, width: int, perturbations: int, genes: int, seed: int = 0) -> dict[str, Any]:
    """Return a batch as its loader yields it: sets one after another."""
    import torch

    rng = np.random.default_rng(seed)
    n = sets * cells
    told = np.zeros((n, perturbations), dtype=np.float32)
    told[np.arange(n), np.repeat(rng.integers(1, perturbations, sets), cells)] = 1
    batch = np.zeros((n, BATCHES), dtype=np.float32)
    batch[np.arange(n), rng.integers(0, BATCHES, n)] = 1

    def draw(columns: int) -> Any:
        return torch.from_numpy(rng.gamma(1.0, 0.5, (n, columns)).astype(np.float32))

    found = {"ctrl_cell_emb": draw(width), "pert_cell_emb": draw(width), "pert_emb": torch.from_numpy(told)}
    found["batch"] = torch.from_numpy(batch)
    if width != genes:  # its loader hands out counts beside an embedding only
        found |= {"pert_cell_counts": draw(genes), "ctrl_cell_counts": draw(genes)}
    return found


def parity(folder: Path) -> dict[str, Any]:
    """Leave a checkpoint of each variant, what went in, what came out, and the loss."""
    import torch

    for number, (name, options) in enumerate(VARIANTS.items()):
        torch.manual_seed(number)
        made = model(hidden=64, layers=2, heads=4, cells=16, genes=GENES, perturbations=PERTURBATIONS, **options).eval()
        width = options.get("latent", GENES)
        given = batch_of(5, 16, width, PERTURBATIONS, GENES)
        place = folder / name.replace(" ", "_")
        place.mkdir()
        torch.save({"state_dict": made.state_dict(), "hyper_parameters": dict(made.hparams)}, place / "model.ckpt")
        names = ["non-targeting", *(f"P{column}" for column in range(1, PERTURBATIONS))]
        eye = torch.eye(PERTURBATIONS)
        torch.save({key: eye[row] for row, key in enumerate(names)}, place / "pert_onehot_map.pt")
        with torch.no_grad():
            cells = made(given, padded=True)
            found = {"predicted": cells.reshape(-1, width).numpy()}
            if options.get("latent"):
                found["decoded"] = made.gene_decoder(cells.reshape(-1, width)).numpy()
            made.trainer, made.log = None, lambda *args, **kwargs: None
            found["loss"] = np.array(float(made.training_step(given, 0)))
        np.savez(place / "theirs.npz", **{key: item.numpy() for key, item in given.items()}, **found)
    return {"version": VERSION}


def speed(folder: Path, *, size: str, warm: int, steps: int) -> dict[str, Any]:
    """Time training steps on batches at hand; return CPU-seconds a step, memory, and what its checkpoint holds."""
    import torch

    torch.set_num_threads(1)
    about = SIZES[size]
    sets, cells, genes = about["sets"], about["cells"], about["genes"]
    network = {key: about[key] for key in ("hidden", "layers", "heads", "encoder", "cells", "genes")}
    torch.manual_seed(0)
    model(**{**network, "hidden": 16, "layers": 1, "heads": 2}, perturbations=50)  # its imports
    before = peak()
    made = model(**network, perturbations=50).train()
    made.trainer, made.log = None, lambda *args, **kwargs: None
    optimiser = made.configure_optimizers()
    optimiser = optimiser["optimizer"] if isinstance(optimiser, dict) else optimiser
    batches = [batch_of(sets, cells, genes, 50, genes, seed) for seed in range(4)]
    spent = []
    for step in range(warm + steps):
        started = time.process_time()
        optimiser.zero_grad()
        made.training_step(batches[step % 4], step).backward()
        torch.nn.utils.clip_grad_norm_(made.parameters(), 10.0)
        optimiser.step()
        spent.append(time.process_time() - started)
    top = peak()
    path = folder / "theirs.ckpt"
    torch.save({"state_dict": made.state_dict(), "optimizer_states": [optimiser.state_dict()]}, path)
    weights = sum(item.numel() for item in made.parameters())
    return {
        "step_s": float(np.median(spent[warm:])),
        "memory_mb": top - before,
        "checkpoint_mb": path.stat().st_size / 1e6,
        "weights": weights,
    }


def loader(folder: Path, *, kind: str, sets: int, cells: int, batches: int) -> dict[str, Any]:
    """Time some batches of its loader, without workers, on a file that was read before; return cells a CPU-second."""
    import torch
    from cell_load.data_modules import PerturbationDataModule

    torch.set_num_threads(1)
    place = folder / kind
    (place / "split.toml").write_text(
        f'[datasets]\nmade_up = "{place / "made_up"}"\n[training]\nmade_up = "train"\n[zeroshot]\n'
        '"made_up.B" = "test"\n[fewshot]\n'
    )
    module = PerturbationDataModule(
        toml_config_path=str(place / "split.toml"),
        batch_size=sets,
        num_workers=0,
        embed_key=None,
        output_space="gene",
        cell_sentence_len=cells,
        pert_col="gene",
        cell_type_key="cell_type",
        batch_col="gem_group",
        control_pert="non-targeting",
        basal_mapping_strategy="batch",
        should_yield_control_cells=True,
    )
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        module.setup()
    drawn = iter(module.train_dataloader())
    next(drawn)
    started, count = time.process_time(), 0
    for _, batch in zip(range(batches), drawn, strict=False):
        count += len(batch["pert_cell_emb"]) + len(batch["ctrl_cell_emb"])
    return {"cells_per_second": count / (time.process_time() - started)}


def main() -> None:
    """Carry out one task and leave what it says."""
    task, folder, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    said = {"parity": parity, "speed": speed, "loader": loader}[task](folder, **options)
    (folder / f"{task}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()
