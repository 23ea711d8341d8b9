"""A tiny language model with random weights, made on the spot, and a client that is a rule."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from pertbase.baselines.llm import Client, Response
from pertbase.folds import OUTCOMES, Effects, Inputs, Perturbation, Training
from pertbase.knowledge import SignedGraph

CHAT = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if enable_thinking is defined and not enable_thinking %}"
    "<think></think>{% endif %}{% endif %}"
)
WORDS = ["Cells: A. Perturbation: CRISPR interference lowers G1. Does the expression of G2 go up, down, no_change?"]
_SPECIAL = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]


def make_tiny_model(folder: Path, text: list[str], *, llama: bool = False) -> Path:
    """Write a random-weight Qwen3, or Llama, of two layers, with a BPE tokenizer trained on some text."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        text,
        trainers.BpeTrainer(vocab_size=600, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<|pad|>", eos_token="<|end|>")
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = (LlamaConfig if llama else Qwen3Config)(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=4096, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
        # far from uniform, so that likeliest tokens do not tie
        initializer_range=0.3,
    )  # fmt: skip
    (LlamaForCausalLM if llama else Qwen3ForCausalLM)(config).eval().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny-qwen3", WORDS * 20)


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A family whose replies ``transformers serve`` hands on as they are: Qwen3's it takes apart by a template."""
    pytest.importorskip("transformers")
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny-llama", WORDS * 20, llama=True)


@dataclass(frozen=True, kw_only=True)
class RuleClient(Client):
    """A model that is a rule: it follows the last triplet of the first path it is shown, and says no_change without.

    Everything it was asked is kept in ``heard``.
    """

    name: str = "rule"
    follows: bool = True
    broken: tuple[str, ...] = ()
    heard: list[object] = field(default_factory=list, compare=False)

    @property
    def identity(self):
        return {"client": "rule", "name": self.name}

    @property
    def title(self):
        return self.name

    def __deepcopy__(self, memo):
        return self

    def _says(self, text: str) -> str:
        paths = re.findall(r"^1\. (.*)$", text.rpartition("Cells:")[2], flags=re.MULTILINE)
        if not self.follows or not paths or "none is known" in text.rpartition("Cells:")[2]:
            return "no_change"
        return {1: "up", -1: "down", 0: "no_change"}[self._sign(text.rpartition("Cells:")[2], paths[0])]

    @staticmethod
    def _sign(text: str, path: str) -> int:
        sign = 1 if "activation raises" in text else -1
        for relation in re.findall(r"activates|inhibits", path):
            sign *= 1 if relation == "activates" else -1
        gene = re.search(r"expression of (\S+) go", text)[1]
        return sign if path.split(" ")[-1] == gene else 0

    def ask(self, requests, rows, sampling, done):
        for row in rows:
            request = requests[row]
            self.heard.append(request)
            text = request.prompts[0][-1][1]
            outcome = self._says(text)
            if request.kind == "letters":
                letters = []
                for prompt in request.prompts:
                    listed = dict(re.findall(r"^([ABC])\. (.*)$", prompt[-1][1], flags=re.MULTILINE))
                    words = {"up": "it goes up", "down": "it goes down", "no_change": "no change"}[outcome]
                    letters.append(tuple(np.log(0.8 if listed[letter] == words else 0.1) for letter in "ABC"))
                done([(row, Response(letters=tuple(letters), prompt_tokens=10, served_by=self.name))])
                continue
            finish = "error" if request.question in self.broken else "stop"
            reply = json.dumps({"triplets": [["G0", "activates", "G1"]], "answer": outcome})
            done([(row, Response(text=reply, finish=finish, prompt_tokens=10, reply_tokens=5, served_by=self.name))])


@dataclass(frozen=True, kw_only=True)
class BegunClient(RuleClient):
    """The rule, which goes on with a reply that was begun: what it says is twice as likely as the others together.

    Replies to the questions in ``cut`` end before their answer.
    """

    cut: tuple[str, ...] = ()
    scores_outcomes: ClassVar[bool] = True

    def ask(self, requests, rows, sampling, done):
        for row in rows:
            request = requests[row]
            if request.kind != "outcomes":
                said = []
                super().ask(requests, [row], sampling, said.extend)
                done([self._ended(one, requests) for one in said])
                continue
            self.heard.append(request)
            (*_, (_, asked), (role, begun)) = request.prompts[0]
            assert role == "assistant"
            assert begun.endswith('"answer": "')
            likely = [2 / 3 if outcome == self._says(asked) else 1 / 6 for outcome in OUTCOMES]
            done([(row, Response(letters=(tuple(np.log(likely)),), prompt_tokens=12, served_by=self.name))])

    def _ended(self, one, requests):
        row, response = one
        if requests[row].kind == "reply" and requests[row].question in self.cut:
            response = replace(response, text=response.text[:25], finish="length")
        return row, response


@dataclass(frozen=True)
class PathFold:
    training: Training
    inputs: Inputs
    truth: pd.DataFrame


@pytest.fixture
def path_fold():  # type: ignore[no-untyped-def]
    """A fold of two contexts with basal levels and a graph G0 -> G1 -> ... of alternating signs."""

    def make(seed: int = 0, *, n_genes: int = 12, expression: bool = True, graph: bool = True) -> PathFold:
        rng = np.random.default_rng(seed)
        genes = [f"G{number}" for number in range(n_genes)]
        items = [
            Perturbation.genetic([gene], "CRISPRi" if number % 2 else "CRISPRa") for number, gene in enumerate(genes)
        ]
        splits = ["train"] * (n_genes - 6) + ["val"] * 3 + ["test"] * 3
        rows = [(context, item, split) for context in ("A", "B") for item, split in zip(items, splits, strict=True)]
        conditions = pd.DataFrame(
            {
                "context": [context for context, _, _ in rows],
                "perturbation": [item.name for _, item, _ in rows],
                "split": [split for _, _, split in rows],
                "modality": "genetic",
                "mechanism": [item.mechanism for _, item, _ in rows],
                "targets": ["+".join(item.targets) for _, item, _ in rows],
                "target_set": [item.split_key for _, item, _ in rows],
                "n_parts": 1,
                "n_cells": 50,
            }
        )
        questions = conditions.loc[conditions.index.repeat(n_genes)].reset_index(drop=True)
        gene = np.tile(genes, len(rows))
        questions = questions.assign(
            gene=gene, id=questions["context"] + "|" + questions["perturbation"] + "|" + gene, fold="small", regime="",
            outcome=rng.choice(["up", "down", "no_change"], len(questions)),
        )  # fmt: skip
        questions = questions.loc[questions["gene"] != questions["targets"]].reset_index(drop=True)
        basal = pd.DataFrame(rng.gamma(2.0, 0.5, (2, n_genes)), index=["A", "B"], columns=genes) if expression else None
        edges = pd.DataFrame({"source": genes[:-1], "target": genes[1:], "sign": np.resize([1, -1], n_genes - 1)})
        net = SignedGraph.from_edges(edges, name="chain") if graph else None
        known = conditions.loc[conditions["split"] != "test"].reset_index(drop=True)
        test = conditions.loc[conditions["split"] == "test"].reset_index(drop=True)
        values = rng.normal(size=(len(known), n_genes))
        perturbations = {item.name: item for item in items}
        shared = {"genes": pd.Index(genes), "statistic": "mean_log", "basal": basal, "graph": net}
        training = Training(
            fold="small", kind="unseen_perturbation_genetic", data="small", seed=0,
            questions=questions.loc[questions["split"] != "test"].reset_index(drop=True),
            conditions=known, perturbations={name: perturbations[name] for name in known["perturbation"]},
            effects=Effects(values, known, pd.Index(genes), "mean_log") if expression else None, **shared,
        )  # fmt: skip
        asked = questions.loc[questions["split"] == "test"].reset_index(drop=True)
        inputs = Inputs(
            split="test", questions=asked.drop(columns=["outcome", "regime", "n_cells"]),
            conditions=test.drop(columns="n_cells"),
            perturbations={name: perturbations[name] for name in test["perturbation"]}, **shared,
        )  # fmt: skip
        return PathFold(training, inputs, asked)

    return make


@pytest.fixture
def rule_client():  # type: ignore[no-untyped-def]
    return RuleClient


@pytest.fixture
def begun_client():  # type: ignore[no-untyped-def]
    return BegunClient
