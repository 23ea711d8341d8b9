"""Fine-tuned language models: the prompts, the parser and the scorers of language baselines, and weights that learn.

A training question becomes an example: the very prompt that is asked at evaluation, and a reply to it. ``SFT`` learns
the replies; ``GRPO`` learns from what its own replies earn. What was learnt is exported to a folder that transformers
and vLLM load, and the answers of a run are those of a :class:`~pertbase.baselines.llm.LanguageModel` asked in it.
"""

from __future__ import annotations

from pertbase.baselines.finetuned._examples import (
    BALANCES,
    Draft,
    Examples,
    TrainingExample,
    draft_examples,
    tokenised,
)
from pertbase.baselines.finetuned._export import ExportedClient, export
from pertbase.baselines.finetuned._finetuned import Finetuned, Material
from pertbase.baselines.finetuned._grpo import GRPO
from pertbase.baselines.finetuned._rewards import Asked, Reward, Rewards, RewardSettings
from pertbase.baselines.finetuned._sft import SFT
from pertbase.baselines.finetuned._start import Start, TinySizes, start_model
from pertbase.baselines.finetuned._synthesis import FileTexts, Synthesis, synthesise, write_texts
from pertbase.baselines.finetuned._texts import OutcomeTexts, RuleTexts, Text, Texts

__all__ = [
    "BALANCES",
    "GRPO",
    "SFT",
    "Asked",
    "Draft",
    "Examples",
    "ExportedClient",
    "FileTexts",
    "Finetuned",
    "Material",
    "OutcomeTexts",
    "Reward",
    "RewardSettings",
    "Rewards",
    "RuleTexts",
    "Start",
    "Synthesis",
    "Text",
    "Texts",
    "TinySizes",
    "TrainingExample",
    "draft_examples",
    "export",
    "start_model",
    "synthesise",
    "tokenised",
    "write_texts",
]
