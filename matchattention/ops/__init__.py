"""The operator."""

from matchattention.ops.attention import match_attention

__all__ = ["match_attention"]
