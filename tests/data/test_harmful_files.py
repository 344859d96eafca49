"""Files that took memory, time or a traceback: each is refused in one sentence that names it."""

import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image

from matchattention.data import formats
from matchattention.data.datasets import open as open_dataset
from matchattention.data.datasets.layout import read_grey
from matchattention.data.images import read_image
from matchattention.data.pair_lists import read_pair_list
from matchattention.data.png import read_png16, write_png16
from matchattention.data.reading import reads
from matchattention.errors import InputError, InputWarning


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width, height, pixels, bits=16, colour_type=2):
    header = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def refused(read, path, words):
    with pytest.raises(InputError, match=words) as caught:
        read(path)
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_png_that_unpacks_to_more_than_its_size_takes_no_memory(tmp_path):
    bomb = zlib.compressobj(9)
    packed = b"".join(bomb.compress(bytes(2**20)) for _ in range(400)) + bomb.flush()  # 0.4 MB hold 400 MB
    (tmp_path / "a.png").write_bytes(png(8, 8, packed))
    tracemalloc.start()
    try:
        read_png16(tmp_path / "a.png")  # the surplus is ignored, as every decoder does
    except InputError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 20e6


@pytest.mark.parametrize("bits", [8, 16])
def test_a_png_header_of_more_than_its_bytes_can_hold_takes_no_memory(tmp_path, bits):
    """100 megapixels, as no decompression bomb is: they took 5 GB, zeros for the missing ones."""
    (tmp_path / "a.png").write_bytes(png(10_000, 10_000, zlib.compress(bytes(500)), bits=bits))
    readers = [read_image, read_grey, formats.read_fsd_disparity_rgb8] if bits == 8 else [read_image, read_png16]
    for read in readers:
        refused(read, tmp_path / "a.png", "10000 x 10000 px, which its bytes cannot hold")


@pytest.mark.parametrize("colour_type", [0, 2])
def test_a_png_header_of_too_many_pixels(tmp_path, colour_type):
    (tmp_path / "a.png").write_bytes(png(100_000, 100_000, zlib.compress(b""), colour_type=colour_type))
    refused(read_png16, tmp_path / "a.png", "which no image is")


@pytest.mark.parametrize("read", [read_image, read_grey, formats.read_sintel_disparity_rgb8])
def test_decompression_bombs(tmp_path, read):
    (tmp_path / "a.png").write_bytes(png(60_000, 60_000, zlib.compress(b""), bits=8))
    refused(read, tmp_path / "a.png", "pixels")


def test_an_interlaced_16_bit_png_is_read(tmp_path):
    image = np.random.default_rng(0).integers(0, 65536, (1, 1, 3), np.uint16)  # one pixel: the first pass is all
    content = bytearray(png(1, 1, zlib.compress(b"\0" + image.astype(">u2").tobytes())))
    content[28] = 1
    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    (tmp_path / "a.png").write_bytes(content)
    np.testing.assert_array_equal(read_png16(tmp_path / "a.png"), image)


@pytest.mark.parametrize("shape", [(10**6, 10**6), (2**40, 1), (0, 5), (4, 4, 4, 4)], ids=str)
def test_numpy_headers_of_terabytes(tmp_path, shape):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}".encode().ljust(117) + b"\n"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header)
    refused(formats.read_npy, tmp_path / "a.npy", "image|pixels")


@pytest.mark.parametrize(
    "header",
    [b"Pf\n2 2\n.\n", b"Pf\n4294967296 4294967296\n-1\n", b"Pf\n99999 99999\n-1\n", b"Pf\n2 2\n1e999\n"],
    ids=["scale", "wrap", "large", "infinite"],
)
def test_pfm_headers(tmp_path, header):
    (tmp_path / "a.pfm").write_bytes(header + bytes(16))
    refused(formats.read_pfm, tmp_path / "a.pfm", "PFM|image")


def test_an_hdr_image_of_100000_by_100000(tmp_path):
    (tmp_path / "a.hdr").write_bytes(b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y 100000 +X 100000\n" + bytes(64))
    refused(read_image, tmp_path / "a.hdr", "which no image is")


def test_a_broken_exr(tmp_path):
    pytest.importorskip("OpenEXR")
    (tmp_path / "a.exr").write_bytes(b"\x76\x2f\x31\x01" + bytes(40))
    refused(formats.read_exr, tmp_path / "a.exr", "not an EXR file")


@pytest.mark.parametrize("content", ["group", "text", "dangling", "external"])
def test_hdf5_files_without_an_array(tmp_path, content):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.dsp5", "w") as file:
        if content == "group":
            file.create_group("disparity")
        elif content == "text":
            file["disparity"] = "seven"
        else:
            file["disparity"] = h5py.SoftLink("/x") if content == "dangling" else h5py.ExternalLink("b.h5", "/x")
    refused(formats.read_dsp5, tmp_path / "a.dsp5", "disparity|HDF5")


def test_devices_folders_and_addresses_are_no_files(tmp_path):
    for path, words in (("/dev/zero", "device"), (str(tmp_path), "folder"), ("https://x.org/a.pfm", "download")):
        with pytest.raises(InputError, match=words):
            formats.read_pfm(path)
    with pytest.raises(InputError, match="no path"):
        formats.read_pfm(tmp_path / ("x" * 5000))


def test_faults_of_our_own_are_not_hidden(tmp_path):
    (tmp_path / "a.txt").touch()

    @reads("a text")
    def misspelt(path):
        return undefined_name  # noqa: F821

    with pytest.raises(NameError):
        misspelt(tmp_path / "a.txt")

    @reads("a text")
    def failing(path):
        raise KeyError("size")

    with pytest.raises(InputError, match=r"a\.txt is broken, cut short or not a text \(it lacks 'size'\)") as caught:
        failing(tmp_path / "a.txt")
    assert isinstance(caught.value.__cause__, KeyError)


class TestPairLists:
    def test_utf16_as_windows_writes_it_with_a_header(self, tmp_path):
        (tmp_path / "a.csv").write_bytes("left,right\nä.png,b.png\n".encode("utf-16"))
        assert read_pair_list(tmp_path / "a.csv") == [(tmp_path / "ä.png", tmp_path / "b.png")]

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("ä.png b.png\n".encode("latin-1"), "UTF-8"),
            (b"x" * 200_000 + b",b.png\n", "too long"),
            (b"a\0.png b.png\n", "binary"),
            (b"left,right\n", "no pairs"),
        ],
        ids=["latin-1", "long", "zero", "header-only"],
    )
    def test_refused(self, tmp_path, content, words):
        (tmp_path / "a.csv").write_bytes(content)
        refused(read_pair_list, tmp_path / "a.csv", words)


class TestFolders:
    @pytest.fixture
    def pairs(self, tmp_path):
        for scene in ("a", ".left-behind"):
            (tmp_path / scene).mkdir()
            for name in ("im0.png", "im1.png"):
                Image.fromarray(np.zeros((4, 6, 3), np.uint8)).save(tmp_path / scene / name)
        write_png16(tmp_path / "a" / "disp0GT.png", np.full((4, 6), 500, np.uint16))
        return tmp_path

    def test_hidden_names_are_no_scenes(self, pairs):
        with pytest.warns(InputWarning, match="value / 256"):
            dataset = open_dataset("folder", pairs)
        assert [sample.name for sample in dataset] == ["a"]

    def test_the_scale_of_png_truth_is_told(self, pairs, recwarn):
        from matchattention.data.datasets import FolderPatterns

        dataset = open_dataset("folder", pairs, None, FolderPatterns(png_scale=100.0))
        np.testing.assert_allclose(dataset[0].disparity, 5.0)
        assert not recwarn.list
        with pytest.raises(InputError, match="above zero"):
            open_dataset("folder", pairs, None, FolderPatterns(png_scale=0.0))


def test_a_cut_file_of_every_picture_kind(tmp_path):
    for suffix in ("png", "jpg", "bmp", "tif", "webp"):
        stored = io.BytesIO()
        Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(
            stored, {"jpg": "jpeg", "tif": "tiff"}.get(suffix, suffix)
        )
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(stored.getvalue()[:40])
        refused(read_image, path, "image")


def test_opencv_says_nothing_beside_the_sentence(tmp_path, capfd):
    cv2 = pytest.importorskip("cv2")
    path = tmp_path / "a.tif"
    cv2.imwrite(str(path), np.zeros((32, 32, 3), np.uint16), [cv2.IMWRITE_TIFF_COMPRESSION, 1])
    path.write_bytes(path.read_bytes().replace(b"\x11\x01\x04\0", b"\x11\x01\x04\xff"))  # where the pixels are
    capfd.readouterr()
    refused(read_image, path, "image")
    assert capfd.readouterr() == ("", "")


def test_a_tiff_of_deep_colour_that_claims_too_many_pixels_is_not_decoded(tmp_path):
    tags = ((256, 60000), (257, 60000), (258, 16), (262, 2), (277, 3))  # width, height, bits, RGB, channels
    head = struct.pack("<2sHIH", b"II", 42, 8, len(tags))
    (tmp_path / "a.tif").write_bytes(
        head + b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags) + bytes(4)
    )
    refused(read_image, tmp_path / "a.tif", "60000 x 60000 px")


def test_a_kind_of_picture_that_pillow_has_not_implemented(tmp_path):
    stored = io.BytesIO()
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(stored, "dds")
    content = bytearray(stored.getvalue())
    content[80:84] = bytes(4)  # the pixel format's flags
    (tmp_path / "a.png").write_bytes(content)
    refused(read_image, tmp_path / "a.png", "not an image file that can be read")
