"""Disparity or flow by ONNX Runtime, NumPy and Pillow alone: predict.py rt.onnx left.png right.png disparity.npy"""

import sys

import numpy as np
import onnxruntime
from PIL import Image

LARGE = 2048  # px a side: beyond that the network starts from its own answer at half resolution


def read(path):
    return np.asarray(Image.open(path).convert("RGB"), np.float32).transpose(2, 0, 1)[None]  # (1, 3, H, W) in [0, 255]


def padded(image, step=32):
    """Repeat the top row and the right column until both sides are multiples of `step`."""
    return np.pad(image, ((0, 0), (0, 0), (-image.shape[2] % step, 0), (0, -image.shape[3] % step)), mode="edge")


def start_from(first, second):
    """`initial` (2N, h, w, 2) in tokens of 32 px from the disparities or flows of both views at half resolution."""
    if first.ndim == 3:  # a match lies to the left in the right view, and the other way round
        first, second = (np.stack((x, 0 * x), 1) for x in (-first, second))
    fields = np.concatenate((first, second))
    views, _, height, width = fields.shape
    middle = fields.reshape(views, 2, height // 16, 16, width // 16, 16)[:, :, :, 7:9, :, 7:9].mean((3, 5))
    return (middle * (2 / 32)).transpose(0, 2, 3, 1).astype(np.float32)


def match(session, *images):
    """Disparity (H, W) px of the left view and of the right one, or flow (2, H, W) px of both frames."""
    height, width = images[0].shape[2:]
    names = [value.name for value in session.get_inputs()][:2]
    start = {}
    if max(height, width) > LARGE:
        images = [padded(image, 64) for image in images]
        shape = (1, 3, images[0].shape[2] // 2, 2, images[0].shape[3] // 2, 2)
        halves = [image.reshape(shape).mean((3, 5)) for image in images]
        start["initial"] = start_from(*session.run(None, dict(zip(names, halves))))
    fields = session.run(None, dict(zip(names, map(padded, images))) | start)
    return [field[0, ..., -height:, :width] for field in fields]


if __name__ == "__main__":
    network, first, second, output = sys.argv[1:]
    onnxruntime.set_default_logger_severity(3)  # no note that `initial` may be given
    field, _ = match(onnxruntime.InferenceSession(network), read(first), read(second))
    np.save(output, field)
    print(f"{output}: {field.shape}, {field.min():.1f} to {field.max():.1f} px")
