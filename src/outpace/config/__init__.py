"""How an engine and its drafters are set up."""

from outpace.config.checks import check_integer, check_number, check_type
from outpace.config.drafters import (
    AUTO_DRAFTER,
    BestOfConfig,
    DatastoreConfig,
    DrafterConfig,
    EagleConfig,
    EarlyExitConfig,
    FirstOfConfig,
    GrammarDraftConfig,
    MedusaConfig,
    ModelDraftConfig,
    NgramConfig,
    NoDrafter,
    PredictionConfig,
    SingleConfig,
    SuffixConfig,
)
from outpace.config.engine import EngineConfig
from outpace.config.spelling import DRAFTER_SPELLINGS, parse_drafter, spelled
from outpace.config.words import (
    MAX_SPECULATIVE_TOKENS,
    DraftShape,
    Dtype,
    Quantization,
    TreeAttention,
    Verification,
)

__all__ = [
    "AUTO_DRAFTER",
    "DRAFTER_SPELLINGS",
    "MAX_SPECULATIVE_TOKENS",
    "BestOfConfig",
    "DatastoreConfig",
    "DraftShape",
    "DrafterConfig",
    "Dtype",
    "EagleConfig",
    "EarlyExitConfig",
    "EngineConfig",
    "FirstOfConfig",
    "GrammarDraftConfig",
    "MedusaConfig",
    "ModelDraftConfig",
    "NgramConfig",
    "NoDrafter",
    "PredictionConfig",
    "Quantization",
    "SingleConfig",
    "SuffixConfig",
    "TreeAttention",
    "Verification",
    "check_integer",
    "check_number",
    "check_type",
    "parse_drafter",
    "spelled",
]
