"""Too much, too slow, too many, and the end: each has its status."""

from __future__ import annotations

import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from matchattention.errors import InputError
from matchattention.serve.settings import Settings, is_loopback, require_token
from tests.serve.conftest import Network, answer, pair, running
from tests.serve.test_depth import file_of


def _post(address: str, seed: int = 0, **size: int) -> httpx.Response:
    left, right = pair(seed, **size)
    files = {"left": file_of(left), "right": file_of(right)}
    return httpx.post(f"http://{address}/depth", files=files, data={"check": "false", "format": "npy"}, timeout=30)


def _until(condition) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it never came")


def test_too_many_bytes(address: str, network: Network) -> None:
    url = f"http://{address}/v2/models/rt/infer"
    told = httpx.post(url, content=b"x" * 600_000)
    assert told.status_code == 413
    chunked = httpx.post(url, content=(b"x" * 60_000 for _ in range(10)))
    assert chunked.status_code == 413
    assert "0.5 MB" in chunked.json()["error"]
    assert network.batches == []


def test_a_full_queue_answers_503_and_the_rest_is_right(network: Network) -> None:
    network.go.clear()
    with running(network, Settings(queue=4, largest_batch=2)) as address, ThreadPoolExecutor(10) as clients:
        replies = [clients.submit(_post, address, seed) for seed in range(10)]
        _until(lambda: sum(reply.done() for reply in replies) == 6)
        network.go.set()
        statuses = [reply.result().status_code for reply in replies]
        assert sorted(statuses) == [200] * 4 + [503] * 6
        for seed, reply in enumerate(reply.result() for reply in replies):
            if reply.status_code == 503:
                assert reply.headers["retry-after"] == "1"
            else:
                expected = answer(*pair(seed)).disparity
                assert np.array_equal(np.load(_file(reply)), expected)
        assert _post(address).status_code == 200  # and there is room again


def _file(reply: httpx.Response):
    import io

    return io.BytesIO(reply.content)


def test_equal_sizes_are_matched_together(network: Network) -> None:
    network.go.clear()
    with running(network, Settings(largest_batch=4)) as address, ThreadPoolExecutor(8) as clients:
        first = clients.submit(_post, address)
        _until(lambda: network.batches == [1])
        replies = [clients.submit(_post, address, seed, height=32 + 16 * (seed % 2)) for seed in range(7)]
        _until(lambda: "matchattention_pairs_waiting 7.0" in httpx.get(f"http://{address}/metrics").text)
        network.go.set()
        assert first.result().status_code == 200
        for seed, reply in enumerate(replies):
            expected = answer(*pair(seed, height=32 + 16 * (seed % 2))).disparity
            assert np.array_equal(np.load(_file(reply.result())), expected)
        assert sorted(network.batches[1:]) == [3, 4]


def test_a_late_answer_is_a_504_and_costs_nothing(network: Network) -> None:
    network.go.clear()
    with running(network, Settings(timeout_s=0.3, largest_batch=1)) as address, ThreadPoolExecutor(3) as clients:
        late = [clients.submit(_post, address, seed) for seed in range(3)]
        assert [reply.result().status_code for reply in late] == [504] * 3
        network.go.set()
        _until(lambda: "matchattention_pairs_waiting 0.0" in httpx.get(f"http://{address}/metrics").text)
        assert _post(address).status_code == 200
        assert network.batches == [1, 1]  # the two that still waited were never matched


def test_a_body_that_never_ends_is_a_408(network: Network) -> None:
    with running(network, Settings(timeout_s=0.3)) as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(
                b"POST /v2/models/rt/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nabc"
            )
            assert b" 408 " in connection.recv(1000)


def test_a_failing_network_is_a_500_and_only_for_its_pair(network: Network) -> None:
    with running(network) as address:
        network.error = RuntimeError("no memory at all")
        failed = _post(address)
        assert failed.status_code == 500
        assert "no memory" not in failed.text
        network.error = None
        assert _post(address).status_code == 200


def test_metrics_count_every_answer(address: str) -> None:
    _post(address)
    _post(address, height=200, width=200)
    httpx.get(f"http://{address}/nowhere/{'x' * 50}")
    text = httpx.get(f"http://{address}/metrics").text
    assert 'matchattention_requests_total{endpoint="/depth",status="200"} 1.0' in text
    assert 'matchattention_requests_total{endpoint="/depth",status="413"} 1.0' in text
    assert 'endpoint="unknown",status="404"' in text
    assert "x" * 50 not in text
    assert re.search(r"matchattention_batch_pairs_count 1.0", text)


def test_the_end_waits_for_answers(network: Network) -> None:
    network.go.clear()
    with ThreadPoolExecutor(1) as client:
        with running(network) as address:
            reply = client.submit(_post, address, 5)
            _until(lambda: network.batches == [1])
            threading.Timer(0.3, network.go.set).start()
        assert reply.result().status_code == 200  # the block has ended, and the server with it
        with pytest.raises(httpx.ConnectError):
            _post(address)


def test_a_foreign_name_is_not_answered(address: str) -> None:
    for name in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost@evil.example", ""):
        refused = httpx.get(f"http://{address}/v2", headers={"Host": name})
        assert refused.status_code == 400, name
        assert "127.0.0.1 or localhost" in refused.json()["error"]
    for name in ("localhost", "localhost:9", "[::1]", "[::1]:9"):
        assert httpx.get(f"http://{address}/v2", headers={"Host": name}).status_code == 200, name


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org"])
def test_no_open_door_without_a_token(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(InputError, match="MATCHATTENTION_TOKEN"):
        require_token(host, None)
    with pytest.raises(InputError, match="16 characters"):
        require_token(host, "short")
    require_token(host, "long enough a token")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.9.1"])
def test_this_machine_needs_none(host: str) -> None:
    require_token(host, None)


def test_sixteen_clients_get_their_own_answers_or_a_clean_503(network: Network) -> None:
    """Hundreds of requests of two sizes; `benchmarks/serve_load.py` is the same with figures."""
    counts = {200: 0, 503: 0}

    def one(seed: int) -> int:
        height = 32 + 16 * (seed % 2)
        reply = _post(address, seed % 20, height=height)
        if reply.status_code == 200:
            assert np.array_equal(np.load(_file(reply)), answer(*pair(seed % 20, height=height)).disparity)
        return reply.status_code

    with running(network, Settings(queue=6)) as address, ThreadPoolExecutor(16) as clients:
        for status in clients.map(one, range(200)):
            counts[status] += 1  # a KeyError is any other answer
    assert sum(network.batches) == counts[200]


def test_every_address_but_the_probes_asks_for_the_token(network: Network) -> None:
    token = "a secret of some length"
    with running(network, token=token) as address, httpx.Client(base_url=f"http://{address}") as client:
        for path in ("/v2/health/live", "/v2/health/ready"):
            assert client.get(path).status_code == 200
        paths = ("/v2", "/v2/models/rt", "/v2/models/rt/ready", "/metrics", "/docs", "/openapi.json", "/nowhere")
        for headers in ({}, {"Authorization": token}, {"Authorization": f"Bearer {token}x"}):
            assert {client.get(path, headers=headers).status_code for path in paths} == {401}
            for path in ("/depth", "/v2/models/rt/infer"):
                assert client.post(path, headers=headers, content=b"{}").status_code == 401
        assert client.get("/v2", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert network.batches == []
