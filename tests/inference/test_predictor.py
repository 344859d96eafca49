"""The predictor with a real, tiny network and with one that knows the answer."""

import numpy as np
import pytest
import torch

import matchattention as ma
from matchattention.inference.predictor import Predictor
from matchattention.runtime.precision import choose_device, choose_precision
from tests.geometry.pictures import pair
from tests.inference.oracle import TINY, Oracle, encoded


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return ma.create_model(TINY)


@pytest.mark.parametrize(("height", "width"), [(16, 16), (17, 33), (64, 96), (45, 130)])
def test_any_size(network, height: int, width: int) -> None:
    left, right, _ = pair(200, 320)
    result = Predictor(network, check=False)(left[:height, :width], right[:height, :width])
    assert result.disparity.shape == result.disparity_right.shape == (height, width)
    assert result.occlusion.shape == result.confidence.shape == (height, width)
    assert result.relative_position.shape == (height, width, 2)
    assert result.occlusion.dtype == bool
    for field in (result.disparity, result.disparity_right, result.confidence, result.relative_position):
        assert field.dtype == np.float32
        assert np.isfinite(field).all()
    assert result.disparity.min() >= 0
    assert 0 <= result.confidence.min() <= result.confidence.max() <= 1


def test_the_fields_are_the_networks(network) -> None:
    left, right, _ = pair(64, 96)
    predict = Predictor(network, device="cpu", precision="fp32", check=False)
    result = predict(left, right)
    images = [torch.from_numpy(image).permute(2, 0, 1)[None].float() for image in (left, right)]
    with torch.inference_mode():
        field = predict.network(*images).field.numpy()
        np.testing.assert_allclose(field, network(*images).field.numpy(), rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(result.relative_position, field[0])
    np.testing.assert_array_equal(result.relative_position_right, field[1])
    np.testing.assert_array_equal(result.disparity, np.maximum(-field[0, ..., 0], 0))


def test_signs_and_occlusion_with_a_known_answer() -> None:
    left, right = np.full((32, 80), 6.0), np.full((32, 80), 6.0)
    left[:, 40:60], right[:, 26:46] = 14.0, 14.0
    result = Predictor(Oracle().knowing(80), check=False)(*encoded(left, right))
    np.testing.assert_array_equal(result.disparity, left)
    np.testing.assert_array_equal(result.disparity_right, right)
    np.testing.assert_array_equal(result.relative_position[..., 0], -left)
    hidden = np.zeros((32, 80), bool)
    hidden[:, :6] = hidden[:, 32:40] = True
    np.testing.assert_array_equal(result.occlusion, hidden)


def test_check_refuses_and_can_be_turned_off(network) -> None:
    left, right, _ = pair()
    predict = Predictor(network)
    with pytest.raises(ma.InputError, match="swapped"):
        predict(right, left)
    predict(right[:32, :32], left[:32, :32], check=False)
    with pytest.raises(ma.InputError, match="right image is one colour"):
        predict(left, np.zeros_like(right), check=False)


def test_a_prediction_can_start_the_next(network) -> None:
    left, right, _ = pair(64, 96)
    predict = Predictor(network, check=False)
    first = predict(left, right)
    second = predict(left, right, initial=first)
    assert second.disparity.shape == (64, 96)
    with pytest.raises(ma.InputError, match="start from is 96x64"):
        predict(left[:48], right[:48], initial=first)


def test_trace_keeps_every_step(network) -> None:
    left, right, _ = pair(64, 96)
    result = Predictor(network, check=False)(left, right, trace=True)
    assert [step.scale for step in result.matches.steps][:2] == [32, 32]
    np.testing.assert_array_equal(result.matches.field[0], result.relative_position)
    assert Predictor(network, check=False)(left, right).matches is None


def test_traced_windows_of_one_row_stay_in_their_row() -> None:
    """Their y is a feature without a meaning; drawn as an arrow it would lie."""
    torch.manual_seed(0)
    network = ma.create_model(TINY)
    with torch.no_grad():
        for block in network.stages[-1]:
            block.first.out.weight.normal_()
    left, right, _ = pair(64, 96)
    looked = Predictor(network, check=False)(left, right, trace=True).matches.self_position
    assert looked[..., 0].abs().max() > 0
    assert not looked[..., 1].any()


def test_flow_has_flow_and_stereo_has_disparity(network) -> None:
    from dataclasses import replace

    left, right, _ = pair(64, 96)
    flow_network = ma.create_model(replace(TINY, task="flow", windows=((4, 4),) * 4))
    motion = Predictor(flow_network)(left, right)
    assert motion.flow.shape == (64, 96, 2)
    assert motion.flow is motion.relative_position
    with pytest.raises(ma.InputError, match="flow model has no disparity"):
        _ = motion.disparity
    with pytest.raises(ma.InputError, match="stereo model has no flow"):
        _ = Predictor(network, check=False)(left, right).flow


def test_bf16_on_the_cpu_stays_close(network) -> None:
    left, right, _ = pair(64, 96)
    exact = Predictor(network, "cpu", "fp32", check=False)(left, right).relative_position
    rough = Predictor(network, "cpu", "bf16", check=False)(left, right).relative_position
    assert rough.dtype == np.float32
    assert np.abs(exact - rough).mean() < 0.05 * (1 + np.abs(exact).mean())


@pytest.mark.parametrize(
    ("device", "precision", "message"),
    [("tpu!", "auto", "no device"), ("cpu", "fp8", "no precision"), ("cpu", "fp16", "no fast fp16")],
)
def test_wrong_names_are_refused(network, device: str, precision: str, message: str) -> None:
    with pytest.raises(ma.InputError, match=message):
        Predictor(network, device, precision)


def test_choices() -> None:
    assert choose_precision("auto", torch.device("cuda")) == torch.float16
    assert choose_precision("auto", torch.device("cpu")) == torch.float32
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    if not torch.cuda.is_available():
        with pytest.raises(ma.InputError, match="--device cpu"):
            choose_device("cuda")
