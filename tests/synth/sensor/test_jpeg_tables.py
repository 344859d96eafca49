"""The quantisation tables against those that libjpeg writes."""

import io

import numpy as np
from PIL import Image

from matchattention.synth.sensor.jpeg import CHROMA_TABLE, LUMA_TABLE


def test_tables_are_the_standards():
    """At quality 50 an encoder writes the tables of annex K as they are."""
    file = io.BytesIO()
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(file, "JPEG", quality=50)
    written = Image.open(file).quantization
    assert tuple(written[0]) == LUMA_TABLE
    assert tuple(written[1]) == CHROMA_TABLE
