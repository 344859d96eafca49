"""A real server on a real socket, in front of a network that knows the answer."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the server needs the extra 'serve'")
pytest.importorskip("prometheus_client", reason="the server needs the extra 'serve'")

from matchattention.inference.prediction import Prediction
from matchattention.serve.application import make_application
from matchattention.serve.server import listen
from matchattention.serve.settings import Settings


def answer(left: np.ndarray, right: np.ndarray) -> Prediction:
    """Blue / 4 is the disparity of each view: whoever gets another client's answer can tell."""
    fields = []
    for sign, view in ((-1, left), (1, right)):
        disparity = view[..., 2].astype(np.float32) / 4
        fields.append(np.stack([sign * disparity, 0 * disparity], -1))
    confidence = left[..., 1].astype(np.float32) / 255
    return Prediction("stereo", fields[0], fields[1], left[..., 0] > 250, confidence)


class Network:
    """Matches at once; remembers its batches; can be held up or made to fail."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.go = threading.Event()
        self.go.set()
        self.error: Exception | None = None

    def __call__(self, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[Prediction]:
        self.batches.append(len(pairs))
        assert len({pair[0].shape for pair in pairs}) == 1
        assert self.go.wait(20)
        if self.error is not None:
            raise self.error
        return [answer(*pair) for pair in pairs]


def pair(seed: int = 0, height: int = 32, width: int = 48) -> tuple[np.ndarray, np.ndarray]:
    images = np.random.default_rng(seed).integers(0, 256, (2, height, width, 3), dtype=np.uint8)
    return images[0], images[1]


@contextlib.contextmanager
def running(
    network: Callable,
    settings: Settings | None = None,
    token: str | None = None,
    model: tuple[str, str] = ("rt", "stereo"),
) -> Iterator[str]:
    """host:port of a server that ends with the block."""
    import uvicorn

    listener = listen("127.0.0.1", 0)
    app = make_application(network, *model, settings or Settings(), token=token)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", log_config=None, timeout_graceful_shutdown=20))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
    assert not thread.is_alive()


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def address(network: Network) -> Iterator[str]:
    with running(network, Settings(megapixels=0.02, megabytes=0.5, queue=8)) as place:
        yield place
