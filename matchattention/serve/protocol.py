"""The Open Inference Protocol v2: tensors in JSON, or as bytes behind it.

A binary request is JSON followed by the raw tensors, little-endian, in the order of the inputs; the header
`Inference-Header-Content-Length` says where the JSON ends. Answers are built the same way.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from matchattention.errors import InputError
from matchattention.inference.prediction import Prediction
from matchattention.serve.errors import Refused, too_many_pixels
from matchattention.serve.settings import Settings

HEADER = "Inference-Header-Content-Length"
VERSION = "1"
_DTYPES = {"UINT8": "u1", "FP32": "<f4", "FP16": "<f2"}
_MOST_PAIRS = 64


class Output(NamedTuple):
    """A field that a network answers with: its name, its type in the protocol, and its shape after the batch's."""

    name: str
    datatype: str
    shape: tuple[int, ...]


INPUTS = {"stereo": ("left", "right"), "flow": ("first", "second")}
OUTPUTS = {
    "stereo": (
        Output("disparity", "FP32", (-1, -1)),
        Output("disparity_right", "FP32", (-1, -1)),
        Output("occlusion", "BOOL", (-1, -1)),
        Output("confidence", "FP32", (-1, -1)),
    ),
    "flow": (
        Output("flow", "FP32", (2, -1, -1)),
        Output("flow_backward", "FP32", (2, -1, -1)),
        Output("occlusion", "BOOL", (-1, -1)),
        Output("confidence", "FP32", (-1, -1)),
    ),
}


def request_schema(task: str) -> dict[str, Any]:
    """An inference request as OpenAPI describes it; with `binary_data_size` the tensor follows the JSON as bytes."""
    tensor = {
        "required": ["name", "shape", "datatype"],
        "properties": {
            "name": {"enum": list(INPUTS[task])},
            "shape": {"type": "array", "items": {"type": "integer"}, "examples": [[1, 3, 480, 640]]},
            "datatype": {"enum": list(_DTYPES)},
            "data": {"type": "array"},
            "parameters": {"properties": {"binary_data_size": {"type": "integer"}}},
        },
    }
    output = {
        "required": ["name"],
        "properties": {
            "name": {"enum": [output.name for output in OUTPUTS[task]]},
            "parameters": {"properties": {"binary_data": {"type": "boolean", "default": False}}},
        },
    }
    return {
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string"},
            "inputs": {"type": "array", "items": tensor, "minItems": 2, "maxItems": 2},
            "outputs": {"type": "array", "items": output},
            "parameters": {"properties": {"binary_data_output": {"type": "boolean", "default": False}}},
        },
    }


class Asked(NamedTuple):
    """An inference request.

    Attributes:
        pairs: (H, W, 3) uint8 images of one size.
        outputs: names in the order of the answer.
        binary: those of them to be sent as bytes.
        identity: the client's id of the request, sent back.
    """

    pairs: list[tuple[NDArray[np.uint8], NDArray[np.uint8]]]
    outputs: list[str]
    binary: set[str]
    identity: str | None


def metadata(name: str, task: str) -> dict[str, Any]:
    """What the protocol wants to know of a model."""
    return {
        "name": name,
        "versions": [VERSION],
        "platform": "pytorch",
        "inputs": [{"name": view, "datatype": "UINT8", "shape": [-1, 3, -1, -1]} for view in INPUTS[task]],
        "outputs": [
            {"name": output.name, "datatype": output.datatype, "shape": [-1, *output.shape]} for output in OUTPUTS[task]
        ],
    }


def read_request(body: bytes, json_length: str | None, task: str, settings: Settings) -> Asked:
    """Understand the body of an inference request.

    Args:
        body: as it arrived.
        json_length: the header `Inference-Header-Content-Length`; None: the whole body is JSON.
        task: the served network's.
        settings: the limits.

    Raises:
        InputError: it breaks the protocol, or holds no images.
        Refused: too many pixels or pairs.
    """
    length = _json_length(body, json_length)
    try:
        head = json.loads(body[:length])
    except (ValueError, RecursionError) as error:
        raise InputError(f"The request's JSON cannot be read ({error}).") from None
    if not isinstance(head, dict):
        raise InputError("The request must be a JSON object with 'inputs'.")
    tensors, raw = {}, memoryview(body)[length:]
    for given in _objects(head, "inputs"):
        name = given.get("name")
        if name not in INPUTS[task]:
            raise InputError(f"There is no input '{name}': send {' and '.join(INPUTS[task])}.")
        tensors[name], raw = _tensor(given, name, raw, settings)
    if len(raw):
        raise InputError(f"{len(raw)} bytes follow the last tensor: check every 'binary_data_size'.")
    missing = [name for name in INPUTS[task] if name not in tensors]
    if missing:
        raise InputError(f"The input '{missing[0]}' is missing.")
    first, second = (tensors[name] for name in INPUTS[task])
    if first.shape != second.shape:
        raise InputError(f"The inputs have the shapes {first.shape} and {second.shape}: send views of one size.")
    outputs, binary = _outputs(head, task)
    identity = head.get("id")
    return Asked(list(zip(first, second)), outputs, binary, identity if isinstance(identity, str) else None)


def write_answer(predictions: list[Prediction], asked: Asked, name: str) -> tuple[bytes, dict[str, str]]:
    """The answer's body and headers."""
    head: dict[str, Any] = {"model_name": name, "model_version": VERSION, "outputs": []}
    if asked.identity is not None:
        head["id"] = asked.identity
    datatypes = {output.name: output.datatype for output in OUTPUTS[predictions[0].task]}
    raw = []
    for output in asked.outputs:
        values = np.stack([_field(prediction, output) for prediction in predictions])
        entry: dict[str, Any] = {"name": output, "datatype": datatypes[output], "shape": list(values.shape)}
        if output in asked.binary:
            raw.append(values.tobytes())
            entry["parameters"] = {"binary_data_size": len(raw[-1])}
        else:
            entry["data"] = values.ravel().tolist()
        head["outputs"].append(entry)
    text = json.dumps(head).encode()
    if not asked.binary:
        return text, {"Content-Type": "application/json"}
    return b"".join([text, *raw]), {"Content-Type": "application/octet-stream", HEADER: str(len(text))}


def _field(prediction: Prediction, output: str) -> NDArray[Any]:
    if output == "flow":
        return prediction.relative_position.transpose(2, 0, 1)
    if output == "flow_backward":
        return prediction.relative_position_right.transpose(2, 0, 1)
    values: NDArray[Any] = getattr(prediction, output)
    return values


def _json_length(body: bytes, header: str | None) -> int:
    if header is None:
        return len(body)
    if not header.isdigit() or int(header) > len(body):
        raise InputError(f"{HEADER} is '{header}', the body has {len(body)} bytes.")
    return int(header)


def _objects(head: dict[str, Any], key: str) -> list[dict[str, Any]]:
    entries = head.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"'{key}' must be a list of objects.")
    return entries


def _parameters(entry: dict[str, Any]) -> dict[str, Any]:
    parameters = entry.get("parameters", {})
    if not isinstance(parameters, dict):
        raise InputError("'parameters' must be an object.")
    return parameters


def _tensor(
    given: dict[str, Any], name: str, raw: memoryview, settings: Settings
) -> tuple[NDArray[np.uint8], memoryview]:
    """(N, H, W, 3) uint8 of one input, and the bytes that follow it."""
    shape = given.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) not in (3, 4)
        or not all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in shape)
        or shape[-3] != 3
    ):
        raise InputError(f"The input '{name}' has the shape {shape}: send (N, 3, H, W) or (3, H, W).")
    datatype = given.get("datatype")
    if not isinstance(datatype, str) or datatype not in _DTYPES:
        raise InputError(f"The input '{name}' has the datatype {datatype}: send UINT8, or FP32 or FP16 in [0, 255].")
    pairs, height, width = (shape[0] if len(shape) == 4 else 1), shape[-2], shape[-1]
    if height * width > settings.pixels:
        raise too_many_pixels(name, width, height, settings.megapixels)
    if pairs > min(_MOST_PAIRS, settings.queue):
        raise Refused(413, f"{pairs} pairs are too many for one request: send {min(_MOST_PAIRS, settings.queue)}.")
    count, dtype = math.prod(shape), np.dtype(_DTYPES[datatype])
    size = _parameters(given).get("binary_data_size")
    if size is None:
        values = _from_json(given.get("data"), name)
    else:
        if not isinstance(size, int) or size != count * dtype.itemsize or size > len(raw):
            raise InputError(
                f"The input '{name}' should have {count * dtype.itemsize} bytes; it says {size}, {len(raw)} came."
            )
        values, raw = np.frombuffer(raw[:size], dtype), raw[size:]
    if values.size != count:
        raise InputError(f"The input '{name}' has {values.size} numbers, its shape {shape} needs {count}.")
    images = _grey_levels(values, name).reshape(pairs, 3, height, width)
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1)), raw


def _from_json(data: Any, name: str) -> NDArray[np.float64]:
    if not isinstance(data, list):
        raise InputError(f"The input '{name}' has no 'data' (a list of numbers) and no 'binary_data_size'.")
    try:
        return np.asarray(data, np.float64).ravel()  # of every datatype: uint8 would wrap what is out of its range
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"The data of the input '{name}' are not numbers ({error}).") from None


def _grey_levels(values: NDArray[Any], name: str) -> NDArray[np.uint8]:
    """Floats rounded to the whole grey levels that networks are trained on."""
    if values.dtype == np.uint8:
        return values
    if not np.isfinite(values).all() or values.min() < 0 or values.max() > 255:
        raise InputError(f"The input '{name}' must be in [0, 255].")
    return np.rint(values).astype(np.uint8)


def _outputs(head: dict[str, Any], task: str) -> tuple[list[str], set[str]]:
    """Names asked for, and those asked for as bytes; none named: all of them."""
    known = [output.name for output in OUTPUTS[task]]
    default = _parameters(head).get("binary_data_output", False) is True
    entries = _objects(head, "outputs") or [{"name": name} for name in known]
    names, binary = [], set()
    for entry in entries:
        name = entry.get("name")
        if name not in known or name in names:
            raise InputError(f"The output '{name}' is unknown or asked for twice: choose from {', '.join(known)}.")
        names.append(name)
        if _parameters(entry).get("binary_data", default) is True:
            binary.add(name)
    return names, binary
