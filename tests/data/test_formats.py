"""File formats: golden bytes, round trips, and malformed files that must not be misread."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from matchattention.data import field_files, formats
from matchattention.data.png import write_png16
from matchattention.errors import InputError

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
FINITE = st.floats(-1e6, 1e6, width=32)
DISPARITY = np.array([[0.5, 1.25, np.inf], [100.0, 0.00390625, 255.99609375]], np.float32)
FLOW = np.array([[[0.5, -1.25], [np.inf, np.inf], [-512.0, 511.984375]]], np.float32)


def exactly(actual, expected):
    assert actual.dtype == np.float32
    np.testing.assert_array_equal(actual, expected)


class TestPfm:
    def test_golden_little_endian(self, tmp_path):
        path = tmp_path / "a.pfm"
        # Bottom line first: the file's first value is the image's lower left.
        path.write_bytes(b"Pf\n2 2\n-1.0\n" + struct.pack("<4f", 3, 4, 1, 2))
        exactly(formats.read_pfm(path), [[1, 2], [3, 4]])

    def test_golden_big_endian_colour_with_nan(self, tmp_path):
        path = tmp_path / "a.pfm"
        path.write_bytes(b"PF\r\n1 2\r\n1\r\n" + struct.pack(">6f", 4, 5, 6, 1, float("nan"), 3))
        exactly(formats.read_pfm(path), [[[1, np.inf, 3]], [[4, 5, 6]]])

    def test_pixels_that_look_like_white_space(self, tmp_path):
        path = tmp_path / "a.pfm"
        path.write_bytes(b"Pf\n1 1\n-1\n" + b"\n \n?")
        exactly(formats.read_pfm(path), [[struct.unpack("<f", b"\n \n?")[0]]])

    def test_writes_the_golden_bytes(self, tmp_path):
        formats.write_pfm(tmp_path / "a.pfm", np.array([[1, 2], [3, np.nan]]))
        content = (tmp_path / "a.pfm").read_bytes()
        assert content == b"Pf\n2 2\n-1.0\n" + struct.pack("<4f", 3, float("inf"), 1, 2)

    @given(values=arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 9)), elements=FINITE))
    @settings(max_examples=20, deadline=None)
    def test_round_trip(self, tmp_path_factory, values):
        path = tmp_path_factory.mktemp("pfm") / "a.pfm"
        formats.write_pfm(path, values)
        exactly(formats.read_pfm(path), values)

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"P5\n2 2\n255\n",
            b"Pf\n2 2\n",
            b"Pf\n0 2\n-1\n",
            b"Pf\n2 2\n0\n" + bytes(16),
            b"Pf\n2 2\n-1\n" + bytes(15),
            b"Pf\n2 2\n-1\n" + bytes(17),
            b"PF\n2 2\n-1\n" + bytes(16),
        ],
        ids=["empty", "pgm", "no-scale", "no-width", "scale-zero", "short", "long", "grey-as-colour"],
    )
    def test_malformed(self, tmp_path, content):
        (tmp_path / "a.pfm").write_bytes(content)
        with pytest.raises(InputError, match=r"a\.pfm"):
            formats.read_pfm(tmp_path / "a.pfm")

    def test_missing(self, tmp_path):
        with pytest.raises(InputError, match="does not exist"):
            formats.read_pfm(tmp_path / "a.pfm")

    def test_two_channels_do_not_fit(self, tmp_path):
        with pytest.raises(ValueError, match="PFM"):
            formats.write_pfm(tmp_path / "a.pfm", np.zeros((2, 2, 2)))


class TestFlo:
    def test_golden(self, tmp_path):
        path = tmp_path / "a.flo"
        path.write_bytes(struct.pack("<fii4f", 202021.25, 2, 1, 1.5, -2, 1e10, 0))
        exactly(formats.read_flo(path), [[[1.5, -2], [np.inf, np.inf]]])

    def test_round_trip_keeps_unknown(self, tmp_path):
        formats.write_flo(tmp_path / "a.flo", FLOW)
        exactly(formats.read_flo(tmp_path / "a.flo"), FLOW)
        assert struct.unpack("<f", (tmp_path / "a.flo").read_bytes()[:4])[0] == 202021.25

    @pytest.mark.parametrize(
        "content",
        [
            b"PI",
            b"PIEH",
            struct.pack("<fii", 1.0, 1, 1) + bytes(8),
            struct.pack("<fii", 202021.25, -1, 1),
            struct.pack("<fii", 202021.25, 2, 1) + bytes(8),
            struct.pack(">fii", 202021.25, 1, 1) + bytes(8),
        ],
        ids=["tag", "header", "number", "width", "short", "endianness"],
    )
    def test_malformed(self, tmp_path, content):
        (tmp_path / "a.flo").write_bytes(content)
        with pytest.raises(InputError, match=r"a\.flo"):
            formats.read_flo(tmp_path / "a.flo")


class TestKitti:
    def test_disparity_scale_and_zero(self, tmp_path):
        write_png16(tmp_path / "a.png", np.array([[0, 1, 256, 65535]], np.uint16))
        exactly(formats.read_kitti_disparity_png16(tmp_path / "a.png"), [[np.inf, 1 / 256, 1, 65535 / 256]])

    def test_disparity_round_trip(self, tmp_path):
        formats.write_kitti_disparity_png16(tmp_path / "a.png", DISPARITY)
        exactly(formats.read_kitti_disparity_png16(tmp_path / "a.png"), DISPARITY)

    def test_a_known_zero_stays_known(self, tmp_path):
        formats.write_kitti_disparity_png16(tmp_path / "a.png", np.array([[0.0, -3.0, 300.0]]))
        exactly(formats.read_kitti_disparity_png16(tmp_path / "a.png"), [[1 / 256, 1 / 256, 65535 / 256]])

    def test_flow_golden(self, tmp_path):
        stored = np.array([[[32768, 32768, 1], [32832, 32640, 1], [5, 5, 0]]], np.uint16)
        write_png16(tmp_path / "a.png", stored)
        exactly(formats.read_kitti_flow_png16(tmp_path / "a.png"), [[[0, 0], [1, -2], [np.inf, np.inf]]])

    def test_flow_round_trip(self, tmp_path):
        formats.write_kitti_flow_png16(tmp_path / "a.png", FLOW)
        exactly(formats.read_kitti_flow_png16(tmp_path / "a.png"), FLOW)

    def test_kinds_are_not_confused(self, tmp_path):
        formats.write_kitti_flow_png16(tmp_path / "flow.png", FLOW)
        formats.write_kitti_disparity_png16(tmp_path / "disparity.png", DISPARITY)
        Image.fromarray(np.zeros((3, 3), np.uint8)).save(tmp_path / "eight.png")
        with pytest.raises(InputError, match="one"):
            formats.read_kitti_disparity_png16(tmp_path / "flow.png")
        with pytest.raises(InputError, match="3 channels"):
            formats.read_kitti_flow_png16(tmp_path / "disparity.png")
        with pytest.raises(InputError, match="16"):
            formats.read_kitti_disparity_png16(tmp_path / "eight.png")

    def test_agrees_with_opencv_on_the_real_files(self):
        cv2 = pytest.importorskip("cv2")
        path = SHARED / "flow/kitti2015/000000/flow_occ.png"
        if not path.is_file():
            pytest.skip(f"needs {path}")
        theirs = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        flow = formats.read_kitti_flow_png16(path)
        valid = theirs[..., 0] > 0
        np.testing.assert_array_equal(formats.known_pixels(flow), valid)
        expected = (theirs[..., 2:0:-1].astype(np.float32) - 2**15) / 64
        np.testing.assert_array_equal(flow[valid], expected[valid])


class TestColourCoded:
    def test_sintel_golden(self, tmp_path):
        Image.fromarray(np.array([[[1, 0, 0], [0, 64, 0], [0, 0, 128], [255, 255, 255]]], np.uint8)).save(
            tmp_path / "a.png"
        )
        exactly(
            formats.read_sintel_disparity_rgb8(tmp_path / "a.png"),
            np.array([[4, 1, 128 / 2**14, 1024 - 2**-14]], np.float32),
        )

    def test_fsd_golden(self, tmp_path):
        Image.fromarray(np.array([[[0, 0, 0], [0, 3, 235], [1, 0, 0]]], np.uint8)).save(tmp_path / "a.png")
        exactly(formats.read_fsd_disparity_rgb8(tmp_path / "a.png"), np.array([[np.inf, 1.0, 65.025]], np.float32))

    @pytest.mark.parametrize("read", [formats.read_sintel_disparity_rgb8, formats.read_fsd_disparity_rgb8])
    def test_grey_and_foreign_files_are_refused(self, tmp_path, read):
        Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / "grey.png")
        (tmp_path / "text.png").write_text("text")
        for name in ("grey.png", "text.png", "missing.png"):
            with pytest.raises(InputError, match=name):
                read(tmp_path / name)


class TestSpring:
    def test_round_trip_and_golden_layout(self, tmp_path):
        h5py = pytest.importorskip("h5py")
        formats.write_flo5(tmp_path / "a.flo5", FLOW)
        formats.write_dsp5(tmp_path / "a.dsp5", DISPARITY)
        exactly(formats.read_flo5(tmp_path / "a.flo5"), FLOW)
        exactly(formats.read_dsp5(tmp_path / "a.dsp5"), DISPARITY)
        with h5py.File(tmp_path / "a.flo5") as file:
            assert file["flow"].dtype == np.float32
            assert np.isnan(file["flow"][0, 1]).all()
        with h5py.File(tmp_path / "a.dsp5") as file:
            assert np.isnan(file["disparity"][0, 2])

    def test_malformed(self, tmp_path):
        h5py = pytest.importorskip("h5py")
        formats.write_flo5(tmp_path / "a.flo5", FLOW)
        with pytest.raises(InputError, match="no dataset named 'disparity'"):
            formats.read_dsp5(tmp_path / "a.flo5")
        (tmp_path / "b.flo5").write_bytes(b"nothing")
        with pytest.raises(InputError, match="not an HDF5"):
            formats.read_flo5(tmp_path / "b.flo5")
        with h5py.File(tmp_path / "c.flo5", "w") as file:
            file["flow"] = np.zeros((2, 3, 4))
        with pytest.raises(InputError, match=r"\(2, 3, 4\)"):
            formats.read_flo5(tmp_path / "c.flo5")
        with pytest.raises(InputError, match="does not exist"):
            formats.read_dsp5(tmp_path / "none.dsp5")


class TestNumpy:
    @pytest.mark.parametrize("suffix", [".npy", ".npz"])
    @pytest.mark.parametrize("values", [DISPARITY, FLOW], ids=["disparity", "flow"])
    def test_round_trip(self, tmp_path, suffix, values):
        path = tmp_path / f"a{suffix}"
        formats.write_npy(path, values)
        exactly(formats.read_npy(path), values)

    def test_nan_is_unknown_and_integers_are_px(self, tmp_path):
        np.save(tmp_path / "a.npy", np.array([[1.0, np.nan]]))
        exactly(formats.read_npy(tmp_path / "a.npy"), [[1, np.inf]])
        np.save(tmp_path / "b.npy", np.array([[1, 2]], np.uint8))
        exactly(formats.read_npy(tmp_path / "b.npy"), [[1, 2]])

    def test_malformed(self, tmp_path):
        np.savez(tmp_path / "two.npz", a=np.zeros(2), b=np.zeros(2))
        np.save(tmp_path / "text.npy", np.array(["a"]))
        np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
        (tmp_path / "junk.npy").write_bytes(b"junk")
        (tmp_path / "junk.npz").write_bytes(b"PK\x03\x04junk")
        for name in ("two.npz", "text.npy", "objects.npy", "junk.npy", "junk.npz", "none.npy"):
            with pytest.raises(InputError, match=name):
                formats.read_npy(tmp_path / name)


class TestExr:
    def write(self, path, channels):
        exr = pytest.importorskip("OpenEXR")
        header = {"compression": exr.ZIP_COMPRESSION, "type": exr.scanlineimage}
        exr.File(header, channels).write(str(path))

    def test_one_channel_and_red_of_colour(self, tmp_path):
        values = np.array([[1.5, 2.5], [3.5, np.nan]], np.float32)
        expected = np.where(np.isnan(values), np.inf, values)
        self.write(tmp_path / "one.exr", {"Y": values})
        exactly(formats.read_exr(tmp_path / "one.exr"), expected)
        self.write(tmp_path / "three.exr", {"B": values * 0, "G": values * 0, "R": values})
        exactly(formats.read_exr(tmp_path / "three.exr"), expected)

    def test_malformed(self, tmp_path):
        pytest.importorskip("OpenEXR")
        (tmp_path / "a.exr").write_bytes(b"nothing")
        for name in ("a.exr", "none.exr"):
            with pytest.raises(InputError, match=name):
                formats.read_exr(tmp_path / name)


def test_writers_leave_nothing_behind_when_they_fail(tmp_path):
    formats.write_pfm(tmp_path / "a.pfm", DISPARITY)
    before = (tmp_path / "a.pfm").read_bytes()
    with pytest.raises(ValueError, match="PFM"):
        formats.write_pfm(tmp_path / "a.pfm", np.zeros(3))
    assert (tmp_path / "a.pfm").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a.pfm"]


class TestBySuffix:
    def test_disparity(self, tmp_path):
        formats.write_pfm(tmp_path / "a.pfm", DISPARITY)
        formats.write_npy(tmp_path / "a.npz", DISPARITY)
        formats.write_kitti_disparity_png16(tmp_path / "a.png", DISPARITY)
        for suffix in (".pfm", ".npz", ".png"):
            exactly(field_files.read_disparity(tmp_path / f"a{suffix}"), DISPARITY)
        exactly(field_files.read_disparity(tmp_path / "a.png", png_scale=128), DISPARITY * 2)

    def test_flow(self, tmp_path):
        formats.write_flo(tmp_path / "a.flo", FLOW)
        formats.write_kitti_flow_png16(tmp_path / "a.png", FLOW)
        formats.write_pfm(tmp_path / "a.pfm", np.concatenate([FLOW, np.zeros((1, 3, 1))], axis=-1))
        for suffix in (".flo", ".png"):
            exactly(field_files.read_flow(tmp_path / f"a{suffix}"), FLOW)
        assert field_files.read_flow(tmp_path / "a.pfm").shape == (1, 3, 2)

    def test_wrong_shape_and_suffix(self, tmp_path):
        formats.write_npy(tmp_path / "flow.npy", FLOW)
        formats.write_npy(tmp_path / "disparity.npy", DISPARITY)
        with pytest.raises(InputError, match=r"disparity is \(H, W\)"):
            field_files.read_disparity(tmp_path / "flow.npy")
        with pytest.raises(InputError, match=r"flow is \(H, W, 2\)"):
            field_files.read_flow(tmp_path / "disparity.npy")
        with pytest.raises(InputError, match="none of the kinds"):
            field_files.read_disparity(tmp_path / "a.jpg")
