"""Dense correspondence with MatchAttention: stereo depth and optical flow."""

__version__ = "0.1.0"
