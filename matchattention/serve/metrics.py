"""Counters for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_PAIRS = (1, 2, 4, 8, 16, 32)


class Metrics:
    """All counters of one server, in a registry of its own.

    Args:
        waiting: tells how many pairs wait for the network.
    """

    def __init__(self, waiting: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "matchattention_requests", "Answered requests", ["endpoint", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "matchattention_request_seconds",
            "From a request's arrival to its answer",
            ["endpoint"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.in_flight = Gauge("matchattention_requests_in_flight", "Requests under way", registry=self._registry)
        self._waiting = Gauge("matchattention_pairs_waiting", "Pairs in the queue", registry=self._registry)
        self._waiting.set_function(waiting)
        self._batch = Histogram(
            "matchattention_batch_pairs", "Pairs matched together", buckets=_PAIRS, registry=self._registry
        )
        self._match = Histogram(
            "matchattention_match_seconds", "One batch in the network", buckets=_SECONDS, registry=self._registry
        )

    def observe_batch(self, pairs: int, seconds: float) -> None:
        """One batch went through the network."""
        self._batch.observe(pairs)
        self._match.observe(seconds)

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)
