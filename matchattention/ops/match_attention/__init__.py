"""The paper's operator: its one public function, the reference it is defined by, and its backends."""

from matchattention.ops.match_attention.function import match_attention

__all__ = ["match_attention"]
