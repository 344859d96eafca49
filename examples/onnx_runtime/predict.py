"""Disparity with ONNX Runtime, NumPy and Pillow alone: predict.py rt.onnx left.png right.png disparity.npy"""

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


def start_from(left, right):
    """`initial` (2N, h, w, 2) in tokens of 32 px from the disparities of both views at half resolution."""
    fields = np.concatenate((-left, right))  # a match lies to the left in the right view, and the other way round
    views, height, width = fields.shape
    middle = fields.reshape(views, height // 16, 16, width // 16, 16)[:, :, 7:9, :, 7:9].mean((2, 4))
    return np.stack((middle * (2 / 32), np.zeros_like(middle)), -1).astype(np.float32)


def match(session, left, right):
    """Disparity (H, W) px of the left view and of the right one."""
    height, width = left.shape[2:]
    values = {}
    if max(height, width) > LARGE:
        left, right = padded(left, 64), padded(right, 64)
        shape = (1, 3, left.shape[2] // 2, 2, left.shape[3] // 2, 2)
        halves = {"left": left.reshape(shape).mean((3, 5)), "right": right.reshape(shape).mean((3, 5))}
        values["initial"] = start_from(*session.run(None, halves))
    values |= {"left": padded(left), "right": padded(right)}
    return [field[0, -height:, :width] for field in session.run(None, values)]


if __name__ == "__main__":
    network, left_file, right_file, output = sys.argv[1:]
    onnxruntime.set_default_logger_severity(3)  # no note that `initial` may be given
    disparity, disparity_right = match(onnxruntime.InferenceSession(network), read(left_file), read(right_file))
    np.save(output, disparity)
    print(f"{output}: {disparity.shape}, {disparity.min():.1f} to {disparity.max():.1f} px")
