"""Colour maps are perceptual: even steps, monotone lightness; values land on their colours."""

import numpy as np
import pytest

from matchattention.errors import InputError
from matchattention.viz.colormaps import NAMES, colormap, colourise, oklab_to_srgb


def oklab(srgb: np.ndarray) -> np.ndarray:
    """sRGB uint8 to OKLab, by the published matrices, the other way round than the package."""
    value = srgb / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    to_lms = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    to_lab = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return np.cbrt(linear @ to_lms.T) @ to_lab.T


def test_conversion_inverts_the_published_one() -> None:
    colours = np.random.default_rng(0).integers(0, 256, (100, 3))
    np.testing.assert_allclose(oklab_to_srgb(oklab(colours)) * 255, colours, atol=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_equal_steps_look_equal(name: str) -> None:
    lab = oklab(colormap(name)[::32])  # far enough apart that rounding to 8 bits does not count
    steps = np.linalg.norm(np.diff(lab, axis=0), axis=1)
    if name == "balance":  # the step over white turns back: its chord is shorter than its way
        steps = np.delete(steps, [15, 16])
    assert steps.max() < 1.35 * steps.min()


@pytest.mark.parametrize("name", ["dusk", "reef", "ember"])
def test_lightness_rises(name: str) -> None:
    lightness = oklab(colormap(name)[::8])[:, 0]
    assert (np.diff(lightness) > -0.003).all()
    assert lightness[-1] - lightness[0] > 0.7


def test_values_land_on_their_colours() -> None:
    values = np.array([[0.0, 5.0, 10.0, -3.0, 99.0, np.nan, np.inf]])
    colours = colourise(values, 0, 10, "reef", unknown=(1, 2, 3))[0]
    table = colormap("reef")
    np.testing.assert_array_equal(colours[[0, 2, 3, 4]], table[[0, 1023, 0, 1023]])
    np.testing.assert_allclose(colours[1].astype(int), table[512], atol=2)
    np.testing.assert_array_equal(colours[5:], [[1, 2, 3], [1, 2, 3]])


def test_nothing_known_and_constant_values_work() -> None:
    assert (colourise(np.full((3, 3), np.nan)) == 0).all()
    assert len(np.unique(colourise(np.full((3, 3), 7.0)).reshape(-1, 3), axis=0)) == 1


def test_unknown_name() -> None:
    with pytest.raises(InputError, match="dusk"):
        colormap("jet")
