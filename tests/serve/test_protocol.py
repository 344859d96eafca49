"""The Open Inference Protocol: spoken by Triton's own client, and broken in every way."""

from __future__ import annotations

import json

import httpx
import numpy as np
import pytest

from tests.serve.conftest import Network, answer, pair, running

triton = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed (extra 'dev')")


def _inputs(pairs: list[tuple[np.ndarray, np.ndarray]], datatype: str, binary: bool) -> list:
    inputs = []
    for name, images in zip(("left", "right"), zip(*pairs)):
        values = np.stack(images).transpose(0, 3, 1, 2)
        values = np.ascontiguousarray(values if datatype == "UINT8" else values.astype(np.float32))
        inputs.append(triton.InferInput(name, values.shape, datatype))
        inputs[-1].set_data_from_numpy(values, binary_data=binary)
    return inputs


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize(("datatype", "binary"), [("UINT8", True), ("UINT8", False), ("FP32", True), ("FP32", False)])
def test_triton_client(address: str, datatype: str, binary: bool, binary_out: bool) -> None:
    pairs = [pair(1), pair(2)]
    client = triton.InferenceServerClient(address)
    outputs = [triton.InferRequestedOutput(name, binary_data=binary_out) for name in ("confidence", "disparity")]
    result = client.infer("rt", _inputs(pairs, datatype, binary), outputs=outputs, request_id="seven")
    assert result.get_response()["id"] == "seven"
    for index, views in enumerate(pairs):
        expected = answer(*views)
        np.testing.assert_array_equal(result.as_numpy("disparity")[index], expected.disparity)
        np.testing.assert_allclose(result.as_numpy("confidence")[index], expected.confidence)
    client.close()


def test_everything_is_answered_when_nothing_is_named(address: str) -> None:
    client = triton.InferenceServerClient(address)
    result = client.infer("rt", _inputs([pair()], "UINT8", True), model_version="1")
    expected = answer(*pair())
    for name in ("disparity", "disparity_right", "occlusion", "confidence"):
        np.testing.assert_array_equal(result.as_numpy(name)[0], getattr(expected, name))
    assert result.as_numpy("occlusion").dtype == np.bool_
    client.close()


def test_information(address: str) -> None:
    client = triton.InferenceServerClient(address)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("rt")
    assert client.is_model_ready("rt", "1")
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    described = client.get_model_metadata("rt")
    assert [entry["name"] for entry in described["inputs"]] == ["left", "right"]
    assert next(entry["name"] for entry in described["outputs"]) == "disparity"
    client.close()


def test_the_token_goes_through_the_client(network: Network) -> None:
    token = "a secret of some length"
    with running(network, token=token) as address:
        client = triton.InferenceServerClient(address)
        assert client.is_server_ready()  # probes carry no token
        with pytest.raises(triton.InferenceServerException, match="token"):
            client.infer("rt", _inputs([pair()], "UINT8", True))
        assert network.batches == []
        headers = {"Authorization": f"Bearer {token}"}
        assert client.infer("rt", _inputs([pair()], "UINT8", True), headers=headers).as_numpy("disparity") is not None
        client.close()


def test_openapi_says_what_is_sent_and_answered(address: str) -> None:
    paths = httpx.get(f"http://{address}/openapi.json").json()["paths"]
    form = paths["/depth"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["required"] == ["left", "right"]
    assert set(form["properties"]) == {
        "left", "right", "fx", "baseline", "cx", "cy", "fy", "doffs", "format", "min_confidence", "check",
    }  # fmt: skip
    assert "image/png" in paths["/depth"]["post"]["responses"]["200"]["content"]
    request = paths["/v2/models/rt/infer"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert request["properties"]["inputs"]["items"]["properties"]["name"]["enum"] == ["left", "right"]
    assert "503" in paths["/v2/models/rt/infer"]["post"]["responses"]
    assert list(paths["/metrics"]["get"]["responses"]["200"]["content"]) == ["text/plain"]


def _request(**changes) -> dict:
    left, right = (image.transpose(2, 0, 1)[None] for image in pair(0, 16, 16))
    inputs = [
        {"name": name, "datatype": "UINT8", "shape": list(image.shape), "data": image.ravel().tolist()}
        for name, image in (("left", left), ("right", right))
    ]
    inputs[0] |= changes.pop("left", {})
    return {"inputs": inputs} | changes


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"inputs": []}, "'left' is missing"),
        ({"inputs": 3}, "list of objects"),
        ({"inputs": [4]}, "list of objects"),
        ([], "JSON object"),
        (_request(left={"name": "middle"}), "no input 'middle'"),
        (_request(left={"datatype": "INT64"}), "datatype INT64"),
        (_request(left={"datatype": ["UINT8"]}), "datatype ['UINT8']"),
        (_request(left={"name": "\ud800"}), "no input '\ud800'"),
        (_request(left={"shape": [1, 4, 16, 16]}), "shape"),
        (_request(left={"shape": [1, 3, 16, True]}), "shape"),
        (_request(left={"shape": [1, 3, -16, 16]}), "shape"),
        (_request(left={"shape": [1, 3, 16, 32]}), "needs 1536"),
        (_request(left={"data": "abc"}), "no 'data'"),
        (_request(left={"data": [[1], [2, 3]]}), "not numbers"),
        (_request(left={"data": [300] * 768}), "must be in"),
        (_request(left={"data": [300.5] * 768}), "must be in"),
        (_request(left={"data": [-1.0] * 768}), "must be in"),
        (_request(left={"datatype": "FP32", "data": [-1.0] * 768}), "must be in"),
        (_request(left={"datatype": "FP32", "data": [float("nan")] * 768}), "must be in"),
        (_request(left={"data": [7] * 768}), "one colour"),
        (_request(left={"shape": [3, 8, 32], "data": list(range(256)) * 3}), "one size"),
        (_request(left={"parameters": {"binary_data_size": 768}}), "768 bytes"),
        (_request(left={"parameters": {"binary_data_size": 768.0}}), "768 bytes"),
        (_request(left={"parameters": 1}), "must be an object"),
        (_request(outputs=[{"name": "nothing"}]), "unknown"),
        (_request(outputs=[{"name": "disparity"}, {"name": "disparity"}]), "twice"),
    ],
)
def test_broken_requests_get_a_sentence(address: str, network: Network, request_, words: str) -> None:
    reply = httpx.post(f"http://{address}/v2/models/rt/infer", content=json.dumps(request_))
    assert reply.status_code == 400, reply.text
    assert words in reply.json()["error"]
    assert network.batches == []


def test_broken_bytes(address: str) -> None:
    url = f"http://{address}/v2/models/rt/infer"
    assert httpx.post(url, content=b"{").status_code == 400
    assert httpx.post(url, content=b"[" * 100_000).status_code == 400
    header = "Inference-Header-Content-Length"
    for length in ("99999", "-1", "x"):
        assert httpx.post(url, content=json.dumps(_request()), headers={header: length}).status_code == 400
    text = json.dumps(_request()).encode()
    trailing = httpx.post(url, content=text + b"more", headers={header: str(len(text))})
    assert "4 bytes follow" in trailing.json()["error"]
    assert httpx.post(url, content=b"", headers={"Content-Encoding": "gzip"}).status_code == 415
    assert httpx.get(url).status_code == 405
    assert httpx.post(f"http://{address}/v2/models/other/infer").status_code == 404
