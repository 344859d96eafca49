"""Tensors in, tensors out; batches; streams."""

import numpy as np
import pytest
import torch

import matchattention as ma
from matchattention.inference import predictor as predictor_module
from matchattention.inference.predictor import Predictor
from tests.geometry.pictures import pair
from tests.inference.oracle import TINY, Oracle, encoded


@pytest.fixture(scope="module")
def predict():
    torch.manual_seed(0)
    return Predictor(ma.create_model(TINY), "cpu", check=False)


def tensors(height: int = 48, width: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    left, right, _ = pair(height, width)
    return tuple(torch.from_numpy(view).permute(2, 0, 1).contiguous() for view in (left, right))


def test_a_tensor_gives_what_an_array_gives(predict) -> None:
    left, right, _ = pair(48, 64)
    expected, found = predict(left, right), predict(*tensors())
    np.testing.assert_array_equal(found.relative_position, expected.relative_position)
    np.testing.assert_array_equal(found.occlusion, expected.occlusion)
    np.testing.assert_array_equal(found.confidence, expected.confidence)
    assert torch.equal(found.tensors.disparity, torch.from_numpy(expected.disparity))
    assert torch.equal(found.tensors.disparity_right, torch.from_numpy(expected.disparity_right))
    assert found.size == (64, 48)


def test_floats_count_from_zero_to_one(predict) -> None:
    left, right = tensors()
    found = predict(left.double() / 255, right.double() / 255)
    assert torch.equal(found.tensors.relative_position, predict(left, right).tensors.relative_position)


def test_a_batch_of_tensors_has_one_axis_more(predict) -> None:
    left, right = tensors()
    views = [torch.stack((view, view.flip(-2), view.flip(-1))) for view in (left, right)]
    found = predict(*views)
    assert found.disparity.shape == found.confidence.shape == (3, 48, 64)
    assert found.relative_position.shape == (3, 48, 64, 2)
    for index in range(3):
        alone = predict(views[0][index], views[1][index])
        np.testing.assert_allclose(found[index].disparity, alone.disparity, atol=1e-3)
        np.testing.assert_allclose(found.disparity[index], alone.disparity, atol=1e-3)
    with pytest.raises(ma.InputError, match="not of a batch"):
        _ = alone[0]


def test_tensors_can_start_from_a_batch(predict) -> None:
    views = [torch.stack((view, view)) for view in tensors()]
    first = predict(*views)
    again = predict(*views, initial=first)
    assert again.disparity.shape == (2, 48, 64)
    with pytest.raises(ma.InputError, match="start from"):
        predict(*tensors(), initial=first)


def test_results_can_be_differentiated_through(predict) -> None:
    scale = torch.ones((), requires_grad=True)
    (predict(*tensors()).tensors.disparity * scale).sum().backward()
    assert scale.grad is not None


def test_arrays_are_made_when_they_are_read(predict, monkeypatch) -> None:
    from matchattention.inference import fields

    made = []
    real = fields.to_array
    monkeypatch.setattr(fields, "to_array", lambda value: made.append(1) or real(value))
    result = predict(*tensors())
    assert result.tensors.disparity.shape == (48, 64)
    assert made == []
    assert result.confidence is result.confidence
    assert len(made) == 1


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (torch.zeros(3, 32, 32), torch.zeros(3, 32, 40), "one shape"),
        (torch.zeros(0, 3, 32, 32), torch.zeros(0, 3, 32, 32), r"give \(3, H, W\)"),
        (torch.zeros(3, 32, 32), torch.zeros(3, 32, 32, dtype=torch.uint8), "number format"),
        (torch.zeros(32, 32, 3), torch.zeros(32, 32, 3), r"give \(3, H, W\)"),
        (torch.zeros(3, 8, 32), torch.zeros(3, 8, 32), "at least 16"),
        (torch.full((3, 32, 32), 200.0), torch.full((3, 32, 32), 200.0), r"reach from 200 to 200"),
        (torch.full((3, 32, 32), torch.nan), torch.zeros(3, 32, 32), r"in \[0, 1\]"),
        (torch.zeros(3, 32, 32, dtype=torch.int32), torch.zeros(3, 32, 32, dtype=torch.int32), "uint8"),
    ],
    ids=["sizes", "none", "formats", "channels-last", "small", "range", "nan", "integers"],
)
def test_wrong_tensors_are_refused(predict, left, right, message: str) -> None:
    with pytest.raises(ma.InputError, match=message):
        predict(left, right)


def test_tensors_are_checked_where_asked(predict) -> None:
    left, right = tensors(200, 320)
    predict(right[:, :32, :32], left[:, :32, :32])
    with pytest.raises(ma.InputError, match="swapped"):
        predict(right, left, check=True)
    flat = torch.zeros(3, 32, 32, dtype=torch.uint8)
    with pytest.raises(ma.InputError, match="one colour"):
        predict(flat, flat, check=True)


def test_pairs_of_one_size_go_together_and_come_back_in_order() -> None:
    disparities = [(24, 64, 5.0), (32, 80, 7.0), (24, 64, 9.0), (24, 64, 11.0)]
    pairs = [encoded(*(np.full((height, width), d),) * 2) for height, width, d in disparities]
    oracle = Oracle().knowing(64)
    batches = []
    oracle.register_forward_pre_hook(lambda module, call: batches.append(tuple(call[0].shape[::2])))
    results = Predictor(oracle, "cpu", check=False).batch(pairs)
    assert batches == [(3, 24), (1, 32)]
    scales = (1, 80 / 64, 1, 1)  # the oracle counts px of 64
    for result, (height, width, d), scale in zip(results, disparities, scales):
        assert result.size == (width, height)
        np.testing.assert_allclose(result.disparity, d * scale, rtol=1e-6)
    assert Predictor(oracle, "cpu", check=False).batch([]) == []


@pytest.mark.parametrize("fits", [1, 2, 8])
def test_as_many_go_together_as_memory_holds(monkeypatch, fits: int) -> None:
    monkeypatch.setattr(predictor_module, "pairs_that_fit", lambda *size: fits)
    pairs = [encoded(np.full((24, 64), d), np.full((24, 64), d + 1)) for d in (4.0, 6.0, 8.0, 10.0, 12.0)]
    oracle = Oracle().knowing(64)
    batches = []
    oracle.register_forward_pre_hook(lambda module, call: batches.append(len(call[0])))
    results = Predictor(oracle, "cpu", check=False).batch(pairs)
    assert max(batches) <= fits
    assert sum(batches) == 5
    for result, d in zip(results, (4.0, 6.0, 8.0, 10.0, 12.0)):
        np.testing.assert_allclose(result.disparity, d)
        np.testing.assert_allclose(result.disparity_right, d + 1)


def test_a_batch_that_runs_out_of_memory_is_halved() -> None:
    class Full(Oracle):
        def forward(self, image0, image1, initial=None):
            if len(image0) > 1:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().forward(image0, image1, initial)

    pairs = [encoded(np.full((24, 64), d), np.full((24, 64), d)) for d in (4.0, 6.0, 8.0)]
    results = Predictor(Full().knowing(64), "cpu", check=False).batch(pairs)
    assert [float(result.disparity.max()) for result in results] == [4.0, 6.0, 8.0]


def test_a_batch_is_checked(predict) -> None:
    left, right, _ = pair()
    with pytest.raises(ma.InputError, match="one colour"):
        predict.batch([(left, right), (left, np.zeros_like(right))])


def test_a_stream_reads_ahead_and_passes_errors_on(predict) -> None:
    left, right, _ = pair(48, 64)
    read = []

    def frames():
        for index in range(3):
            read.append(index)
            yield left, right
        raise OSError("the camera was unplugged")

    stream = predict.stream(frames())
    results = [next(stream) for _ in range(3)]
    assert all(result.size == (64, 48) for result in results)
    with pytest.raises(OSError, match="unplugged"):
        next(stream)
    assert read == [0, 1, 2]


def test_a_stream_that_is_left_early_stops_reading(predict) -> None:
    left, right, _ = pair(48, 64)
    read = []

    def frames():
        for index in range(100):
            read.append(index)
            yield left, right

    stream = predict.stream(frames())
    next(stream)
    stream.close()
    assert len(read) < 10


def test_tensors_that_want_a_gradient_are_read_without_a_word(predict, recwarn) -> None:
    left, right = (view.float() / 255 for view in tensors(200, 320))
    expected = predict(left, right).disparity
    np.testing.assert_array_equal(predict(left.requires_grad_(), right).disparity, expected)
    assert not [str(warning.message) for warning in recwarn]


def test_a_batch_and_a_stream_take_tensors_too(predict) -> None:
    left, right = tensors(200, 320)
    expected = predict(left, right).disparity
    np.testing.assert_array_equal(predict.batch([(left, right)], check=False)[0].disparity, expected)
    assert len(list(predict.stream([(left, right)] * 2))) == 2


@pytest.mark.parametrize("floats", [False, True])
def test_a_stream_of_tensors_on_the_gpu_leaves_them_there(predict, monkeypatch, floats: bool) -> None:
    from matchattention.inference import video

    monkeypatch.setattr(video, "_stays", lambda image, predictor: True)
    monkeypatch.setattr(video, "read_pair", lambda left, right: pytest.fail("copied to the host"))
    left, right = tensors(200, 320)
    if floats:
        left, right = left.float() / 255, right.float() / 255
    np.testing.assert_allclose(video._thumbnail(left), video._thumbnail(tensors(200, 320)[0].permute(1, 2, 0).numpy()))
    frames = video.VideoPredictor(predict)
    results = list(frames.frames([(left, right)] * 3 + [(left / 2 if floats else left // 2, right)]))
    np.testing.assert_array_equal(results[0].disparity, predict(left, right).disparity)
    np.testing.assert_array_equal(results[1].disparity, predict(left, right, initial=results[0]).disparity)
    assert frames.searches == 2  # the first frame and the cut


def test_a_stream_reads_tensors_of_another_device_ahead(predict) -> None:
    from matchattention.inference.video import _stays

    image = torch.zeros(3, 32, 32, dtype=torch.uint8)
    assert not _stays(image, predict)
    assert not _stays(np.zeros((32, 32, 3), np.uint8), predict)


def test_a_batchs_points_and_files_are_asked_for_one_by_one(predict, tmp_path) -> None:
    left, right = (view[None].repeat(2, 1, 1, 1) for view in tensors(200, 320))
    result = predict(left, right)
    camera = ma.StereoCamera(fx=100.0, baseline=0.1)
    with pytest.raises(ma.InputError, match=r"result\[i\].points"):
        result.points(camera)
    with pytest.raises(ma.InputError, match=r"result\[i\].save"):
        result.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert result[1].points(camera)[0].shape[1] == 3


def test_the_starts_of_a_halved_batch_stay_with_their_pairs_and_views() -> None:
    field = torch.tensor([0, 1, 2, 10, 11, 12])  # three pairs, their right views 10 up
    first, second = predictor_module._halves(field, 1)
    assert first.tolist() == [0, 10]
    assert second.tolist() == [1, 2, 11, 12]
