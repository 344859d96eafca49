"""Networks: configs, the registry, checkpoints."""

from matchattention.models.config import NetworkConfig
from matchattention.models.network import Matches, MatchNetwork, Step
from matchattention.models.registry import create_model, list_models

__all__ = ["MatchNetwork", "Matches", "NetworkConfig", "Step", "create_model", "list_models"]
