"""What of a pretrained network is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pertbase.errors import InputError

if TYPE_CHECKING:
    from pertbase.baselines.scgpt._net import ScGPTNet

__all__ = ["TUNINGS", "Tuning", "restrict"]

Tuning = Literal["all", "frozen", "last", "lora"]
TUNINGS = ("all", "frozen", "last", "lora")
_ADAPTED = r"layers\.\d+\.(attention\.in_proj|attention\.out_proj|linear1|linear2)"


def restrict(net: ScGPTNet, tuning: Tuning, *, last_layers: int, rank: int, alpha: float) -> ScGPTNet:
    """Leave some of a network to be trained; the mark of perturbed genes and the decoders always are.

    Parameters
    ----------
    net
        Changed in place.
    tuning
        ``all``; ``frozen``: nothing of the encoder; ``last``: its last layers; ``lora``: matrices of low rank that are
        added to those of its layers (Hu et al. 2021), through peft.
    last_layers
        How many, for ``last``.
    rank, alpha
        Of the added matrices, for ``lora``; they are multiplied with ``alpha / rank``.

    Raises
    ------
    InputError
        Where there are fewer layers, or peft is not installed.
    """
    if tuning == "all":
        return net
    if tuning == "lora":
        _inject(net, rank=rank, alpha=alpha)
    for part in net.encoder():
        for name, parameter in part.named_parameters():
            parameter.requires_grad_("lora_" in name)
    for head in (net.coefficient, net.offset):
        head.requires_grad_(True)
    net.perturbed.requires_grad_(True)
    if tuning == "last":
        if not 1 <= last_layers <= len(net.layers):
            raise InputError(f"the model has {len(net.layers)} layers", key="last_layers", value=last_layers)
        for layer in net.layers[-last_layers:]:
            layer.requires_grad_(True)
    return net


def _inject(net: ScGPTNet, *, rank: int, alpha: float) -> None:
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise InputError(
            "needs the package peft", key="tuning", value="lora", remedy="install it with pip install 'pertbase[lora]'"
        ) from error
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=_ADAPTED, lora_dropout=0.0)  # type: ignore[arg-type]
    inject_adapter_in_model(config, net)
