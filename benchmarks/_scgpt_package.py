"""The package scgpt in an environment of its own, for the benchmarks beside it.

Run by our Python, this module makes that environment and calls it; run by the environment's Python, it is the other
side: it knows scgpt and not pertbase, and both talk through files in a folder.

scgpt 0.2.4 needs torchtext, whose last release does not load on a current torch, and flash-attn, which needs a GPU.
Two stand-ins take their places: the part of ``torchtext.vocab`` that scgpt calls, and FlashMHA with the names of its
weights and plain attention.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import types
import venv
from pathlib import Path
from typing import Any

import numpy as np

VERSION = "0.2.4"
PACKAGES = ("scanpy>=1.11,<1.12", "pandas<3", "ipython", "datasets", "seaborn", "networkx")
DEFAULT_ENVIRONMENT = Path.home() / ".cache" / "pertbase" / "benchmarks" / f"scgpt-{VERSION}"
STYLES = ("in_proj", "Wqkv", "_impl")
SIZES = {"small": (64, 2, 2, 64), "published": (512, 12, 8, 512)}
N_TOKENS = 60697


def environment(folder: Path) -> Path:
    """Return the interpreter of an environment with scgpt and our version of torch, made where it is not there."""
    import torch

    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    probe = "import importlib.metadata as m; m.version('scgpt'); import datasets, IPython, networkx, scanpy, seaborn"
    if subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode:
        same = re.match(r"[0-9.]+", torch.__version__)
        install = [python, "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, *PACKAGES, f"torch=={same[0]}" if same else "torch"], check=True)
        subprocess.run([*install, "--no-deps", f"scgpt=={VERSION}"], check=True)
    return python


def ask(python: Path, task: str, folder: Path, **options: Any) -> dict[str, Any]:
    """Run one task of this file in that environment, in one thread, and return what it says."""
    import os

    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    # -P: this folder has a file of the same name as their package
    command = [python, "-P", "-W", "ignore", __file__, task, folder, json.dumps(options)]
    subprocess.run(command, check=True, env=os.environ | one, cwd=folder, stdout=subprocess.DEVNULL)
    said: dict[str, Any] = json.loads((folder / f"{task}.json").read_text())
    return said


def made_up(*, genes: int, cells: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return control and perturbed cells, and which genes are perturbed in each, one or two."""
    rng = np.random.default_rng(seed)
    level = rng.normal(-1.0, 1.3, genes)

    def draw() -> np.ndarray:
        return np.log1p(rng.poisson(np.exp(level + rng.normal(0, 0.3, (cells, genes))))).astype(np.float32)

    targets = np.stack([rng.permutation(genes)[:2] for _ in range(cells)])
    targets[::2, 1] = -1
    return {"control": draw(), "perturbed": draw(), "targets": targets}


# -- the other side -------------------------------------------------------------------------------------------


def stand_in_for_torchtext() -> None:
    """Put the part of torchtext.vocab that scgpt calls where it looks for it."""

    class Vocab:
        def __init__(self, vocab: Any) -> None:
            self.vocab = vocab  # token -> row, which several may share
            self.default: int | None = None

        def __contains__(self, token: str) -> bool:
            return token in self.vocab

        def __getitem__(self, token: str) -> int:
            return int(self.vocab[token] if token in self.vocab or self.default is None else self.default)

        def __call__(self, tokens: list[str]) -> list[int]:
            return [self[token] for token in tokens]

        def __len__(self) -> int:
            return len(self.vocab)

        def insert_token(self, token: str, row: int) -> None:
            self.vocab[token] = row

        def set_default_index(self, row: int) -> None:
            self.default = row

        def get_stoi(self) -> dict[str, int]:
            return dict(self.vocab)

    def vocab(ordered: dict[str, int], min_freq: int = 1) -> Vocab:
        return Vocab({token: row for row, token in enumerate(ordered)})

    package, module = types.ModuleType("torchtext"), types.ModuleType("torchtext.vocab")
    module.Vocab, module.vocab = Vocab, vocab  # type: ignore[attr-defined]
    package.vocab = module  # type: ignore[attr-defined]
    sys.modules |= {"torchtext": package, "torchtext.vocab": module}


def stand_in_for_flash(style: str) -> None:
    """Put an attention with FlashMHA's weights, named in a style, where scgpt looks for it."""
    import torch
    from torch import nn

    class Plain(nn.Module):
        def __init__(self, embed_dim: int, num_heads: int) -> None:
            super().__init__()
            self.num_heads = num_heads
            self.Wqkv = nn.Linear(embed_dim, 3 * embed_dim)
            self.out_proj = nn.Linear(embed_dim, embed_dim)

        def forward(self, x: torch.Tensor, key_padding_mask: torch.Tensor | None = None) -> Any:
            n, genes, width = x.shape
            q, k, v = self.Wqkv(x).view(n, genes, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-1, -2) / (width // self.num_heads) ** 0.5
            if key_padding_mask is not None:
                scores = scores.masked_fill(~key_padding_mask[:, None, None, :], float("-inf"))
            return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, genes, width)), None

    class FlashMHA(nn.Module):
        def __init__(self, embed_dim: int, num_heads: int, **_: Any) -> None:
            super().__init__()
            self._impl = Plain(embed_dim, num_heads)

        def forward(self, x: torch.Tensor, key_padding_mask: torch.Tensor | None = None, **_: Any) -> Any:
            return self._impl(x, key_padding_mask)

    class Direct(Plain):
        def __init__(self, embed_dim: int, num_heads: int, **_: Any) -> None:
            super().__init__(embed_dim, num_heads)

    package, module = types.ModuleType("flash_attn"), types.ModuleType("flash_attn.flash_attention")
    module.FlashMHA = FlashMHA if style == "_impl" else Direct  # type: ignore[attr-defined]
    sys.modules |= {"flash_attn": package, "flash_attn.flash_attention": module}


def generator(vocabulary: Any, size: tuple[int, int, int, int], *, style: str, absence: int, dropout: float = 0) -> Any:
    """Return their model for perturbations; ``absence`` is the tutorial's ``pert_pad_id``."""
    stand_in_for_torchtext()
    if style != "in_proj":
        stand_in_for_flash(style)
    from scgpt.model import TransformerGenerator

    if style != "in_proj":
        # imported before it is asked whether there is one
        import scgpt.model.model as theirs

        theirs.FlashMHA = sys.modules["flash_attn.flash_attention"].FlashMHA
    width, layers, heads, hidden = size
    return TransformerGenerator(
        len(vocabulary), width, heads, hidden, layers, 3, 1, vocabulary, dropout=dropout, pad_token="<pad>",
        pad_value=0, pert_pad_id=absence, use_fast_transformer=style != "in_proj", fast_transformer_backend="flash",
    )  # fmt: skip


def write_checkpoint(model: Any, vocabulary: dict[str, int], size: tuple[int, int, int, int], folder: Path) -> None:
    """Write a checkpoint as their scripts do."""
    import torch

    folder.mkdir()
    torch.save(model.state_dict(), folder / "best_model.pt")
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    width, layers, heads, hidden = size
    about = {"embsize": width, "nheads": heads, "d_hid": hidden, "nlayers": layers, "n_layers_cls": 3}
    (folder / "args.json").write_text(json.dumps(about))


class Perturbed:
    """A batch as their predictor takes it: expression and mark of every gene of every cell, in two columns."""

    def __init__(self, control: Any, flags: Any) -> None:
        import torch

        self.x = torch.stack([control.reshape(-1), flags.reshape(-1).to(control.dtype)], dim=1)
        self.pert = ["p"] * len(control)

    def to(self, device: Any) -> None:
        self.x = self.x.to(device)


def given(data: Any, device: str = "cpu") -> tuple[Any, Any, Any]:
    """Return control, perturbed and flags, shape (n_cells, n_genes)."""
    import torch

    control, perturbed = torch.from_numpy(data["control"]), torch.from_numpy(data["perturbed"])
    flags = torch.zeros(control.shape, dtype=torch.int64)
    for row, targets in enumerate(data["targets"]):
        flags[row, targets[targets >= 0]] = 1
    return control.to(device), perturbed.to(device), flags.to(device)


def step(model: Any, optimiser: Any, ids: Any, batch: tuple[Any, Any, Any], *, bf16: bool = False) -> float:
    """Train on a batch as their tutorial does, and return the loss."""
    import torch
    from scgpt.loss import masked_mse_loss

    control, perturbed, flags = batch
    nowhere = torch.zeros_like(control, dtype=torch.bool)
    with torch.autocast(control.device.type, dtype=torch.bfloat16, enabled=bf16):
        found = model(ids.expand(len(control), -1), control, flags, src_key_padding_mask=nowhere)["mlm_output"]
        loss = masked_mse_loss(found, perturbed, torch.ones_like(control, dtype=torch.bool))
    model.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=False)
    optimiser.step()
    return float(loss.detach())


def parity(folder: Path, *, size: list[int], absence: int, style: str, steps: int) -> dict[str, Any]:
    """Make a model, save it, predict and train; weights and numbers are left in the folder."""
    import torch

    data = np.load(folder / "data.npz")
    torch.manual_seed(0)
    vocabulary = json.loads((folder / "tokens.json").read_text())
    stand_in_for_torchtext()
    from scgpt.tokenizer.gene_tokenizer import GeneVocab

    theirs = GeneVocab.from_dict(vocabulary)
    width, layers, heads, hidden = size
    model = generator(theirs, (width, layers, heads, hidden), style=style, absence=absence)
    with torch.no_grad():
        for name, item in model.named_parameters():
            # so that a weight that was not carried over, or not in its place, shows; padding stays what it is
            if "norm" in name or name.endswith("bias"):
                item.add_(0.1 * torch.randn_like(item))
    write_checkpoint(model, vocabulary, (width, layers, heads, hidden), folder / "checkpoint")
    ids = torch.tensor([theirs[str(name)] for name in data["genes"]])
    control, perturbed, flags = given(data)
    found: dict[str, Any] = {}
    for mode in ("train", "eval"):
        model.train(mode == "train")
        with torch.no_grad():
            nowhere = torch.zeros_like(control, dtype=torch.bool)
            found[mode] = model(ids.expand(len(control), -1), control, flags, nowhere)["mlm_output"]
            padded = torch.from_numpy(data["padded"])
            found[f"{mode}_padded"] = model(ids.expand(len(control), -1), control, flags, padded)["mlm_output"]
    with torch.no_grad():
        found["pred_perturb"] = model.pred_perturb(Perturbed(control, flags), "all", gene_ids=ids.numpy(), amp=False)
    model.train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
    found["curve"] = torch.tensor([step(model, optimiser, ids, (control, perturbed, flags)) for _ in range(steps)])
    np.savez(folder / "theirs.npz", **{name: value.numpy() for name, value in found.items()})
    return {"version": VERSION, "parameters": sum(item.numel() for item in model.parameters())}


def speed(folder: Path, *, size: str, mode: str, steps: int, device: str, bf16: bool) -> dict[str, Any]:
    """Time training steps or predictions; return cells per second, of the processor or, on a GPU, of the clock."""
    import torch

    torch.set_num_threads(1)
    data = np.load(folder / "data.npz")
    vocabulary = {"<pad>": N_TOKENS - 1} | {f"t{row}": row for row in range(N_TOKENS - 1)}
    model = generator(vocabulary, SIZES[size], style="in_proj", absence=0).to(device)
    ids = torch.arange(data["control"].shape[1], device=device)
    batch = given(data, device)
    before = peak(device)
    if mode == "train":
        model.train()
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
        spent = timed(lambda: step(model, optimiser, ids, batch, bf16=bf16), steps, device)
    else:
        model.eval()

        def predict() -> None:
            with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16, enabled=bf16):
                model.pred_perturb(Perturbed(batch[0], batch[2]), "all", gene_ids=ids.cpu().numpy(), amp=False)

        spent = timed(predict, steps, device)
    return {"seconds": spent, "cells": len(batch[0]), "peak_mb": peak(device), "before_mb": before}


def timed(work: Any, steps: int, device: str) -> float:
    """Return the median time of some steps after one that warms up: of the processor, or on a GPU of the clock."""
    import torch

    clock = time.process_time if device == "cpu" else time.perf_counter
    spent = []
    for _ in range(steps + 1):
        started = clock()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        spent.append(clock() - started)
    return float(np.median(spent[1:]))


def peak(device: str) -> float:
    """Return the largest memory so far, in MB: of this process (Linux), or of the GPU."""
    if device != "cpu":
        import torch

        return torch.cuda.max_memory_allocated() / 2**20
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def main() -> None:
    """Carry out one task and leave what it says."""
    task, folder, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    said = {"parity": parity, "speed": speed}[task](folder, **options)
    (folder / f"{task}.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()
