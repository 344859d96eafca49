"""The paper's zero-shot tables as data, and which of our figures belongs into each column."""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """A column of a table: a figure of ``evaluate``."""

    title: str
    dataset: str
    split: str
    mask: str
    metric: str


class PaperTable(NamedTuple):
    """A table of the paper; figures are per cent, or px for EPE, and lower is better."""

    title: str
    columns: tuple[Column, ...]
    rows: dict[str, tuple[float, ...]]


_TABLE_4_COLUMNS = (
    Column("KITTI 2015 bad 3 all", "kitti2015", "training", "all", "bad3"),
    Column("KITTI 2015 bad 3 noc", "kitti2015", "training", "noc", "bad3"),
    Column("Middlebury F bad 2 all", "middlebury", "trainingF", "all", "bad2"),
    Column("Middlebury F bad 2 noc", "middlebury", "trainingF", "noc", "bad2"),
    Column("Middlebury H bad 2 all", "middlebury", "trainingH", "all", "bad2"),
    Column("Middlebury H bad 2 noc", "middlebury", "trainingH", "noc", "bad2"),
    Column("Middlebury Q bad 2 all", "middlebury", "trainingQ", "all", "bad2"),
    Column("Middlebury Q bad 2 noc", "middlebury", "trainingQ", "noc", "bad2"),
    Column("ETH3D bad 1 all", "eth3d", "training", "all", "bad1"),
    Column("ETH3D bad 1 noc", "eth3d", "training", "noc", "bad1"),
)

# Table 5 does not name its masks. Its Middlebury and ETH3D figures of MatchAttentionRT are those of table 4's
# noc columns; its KITTI figures are in neither column of table 4 and are taken as all pixels, as is usual.
_TABLE_5_COLUMNS = (
    Column("Middlebury F bad 0.5", "middlebury", "trainingF", "noc", "bad0.5"),
    Column("Middlebury F bad 1", "middlebury", "trainingF", "noc", "bad1"),
    Column("Middlebury F bad 2", "middlebury", "trainingF", "noc", "bad2"),
    Column("Middlebury H bad 0.5", "middlebury", "trainingH", "noc", "bad0.5"),
    Column("Middlebury H bad 1", "middlebury", "trainingH", "noc", "bad1"),
    Column("Middlebury H bad 2", "middlebury", "trainingH", "noc", "bad2"),
    Column("ETH3D EPE", "eth3d", "training", "noc", "epe"),
    Column("ETH3D bad 1", "eth3d", "training", "noc", "bad1"),
    Column("KITTI 2015 EPE", "kitti2015", "training", "all", "epe"),
    Column("KITTI 2015 D1", "kitti2015", "training", "all", "d1"),
)

TABLE_4 = PaperTable(
    "Table 4: zero-shot, trained on Scene Flow",
    _TABLE_4_COLUMNS,
    {
        "DSMNet": (5.50, 5.19, 41.96, 38.54, 18.74, 14.49, 13.75, 9.44, 4.03, 3.62),
        "CFNet": (5.99, 5.79, 35.21, 30.05, 21.99, 17.69, 14.21, 10.51, 6.08, 5.48),
        "Graft-PSMNet": (5.34, 5.00, 39.92, 36.30, 17.65, 13.36, 13.92, 9.23, 11.43, 10.7),
        "ITSA-CFNet": (4.73, 4.67, 34.01, 30.14, 16.48, 12.32, 12.28, 8.54, 5.43, 5.17),
        "HVT-PSMNet": (4.84, 4.63, 40.74, 37.60, 15.66, 12.55, 10.12, 7.00, 6.07, 5.65),
        "RAFT-Stereo": (5.47, 5.27, 15.63, 11.94, 11.20, 8.66, 10.25, 7.44, 2.60, 2.29),
        "IGEV-Stereo": (6.03, 5.76, 30.94, 28.98, 11.90, 9.45, 8.88, 6.20, 4.04, 3.60),
        "IGEV++": (6.24, 6.02, 16.19, 12.71, 10.58, 7.76, 8.93, 6.27, 4.66, 4.14),
        "NMRF-Stereo": (5.31, 5.14, 37.63, 35.25, 13.36, 10.9, 7.87, 5.07, 3.80, 3.48),
        "Mocha-Stereo": (5.97, 5.73, 30.23, 28.26, 10.18, 9.45, 7.96, 4.87, 4.02, 3.47),
        "MatchAttentionRT": (5.52, 5.31, 15.65, 11.29, 12.71, 8.01, 12.42, 8.23, 5.06, 4.64),
        "MatchAttentionXL": (5.28, 5.11, 10.80, 7.33, 7.70, 4.71, 6.94, 4.64, 2.14, 1.93),
    },
)

TABLE_5A = PaperTable(
    "Table 5a: real-time zero-shot, trained on million-scale data",
    _TABLE_5_COLUMNS,
    {
        "Fast-FSD-192": (42.82, 30.52, 24.61, 13.77, 7.35, 4.79, 0.195, 1.21, 0.900, 3.23),
        "Fast-FSD-416": (25.30, 11.97, 7.20, 11.80, 4.81, 2.20, 0.196, 1.22, 0.896, 3.17),
        "RT-Monster++-192": (51.04, 34.28, 26.03, 27.10, 14.24, 7.43, 0.212, 1.77, 0.918, 3.29),
        "RT-Monster++-416": (42.49, 22.94, 13.61, 26.34, 13.10, 6.16, 0.212, 1.77, 0.918, 3.29),
        "LiteAnyStereo": (58.39, 40.46, 30.77, 36.00, 19.02, 10.39, 0.337, 3.73, 0.965, 3.71),
        "MatchAttentionRT": (25.12, 9.90, 4.38, 17.10, 7.55, 3.76, 0.210, 1.82, 0.979, 4.32),
        "Zero-RAFT-Stereo": (28.17, 13.91, 8.43, 16.74, 8.32, 4.45, 0.230, 2.13, 0.997, 4.17),
        "Monster++-416": (31.56, 14.06, 7.36, 16.06, 6.22, 2.13, 0.160, 0.88, 0.880, 3.23),
        "MatchAttentionXL": (17.36, 5.19, 2.08, 9.40, 3.71, 1.89, 0.146, 0.81, 0.870, 3.30),
    },
)

TABLE_5B = PaperTable(
    "Table 5b: real-time zero-shot, trained on Scene Flow",
    _TABLE_5_COLUMNS,
    {
        "IINet": (63.04, 46.95, 36.38, 41.31, 25.64, 16.37, 4.890, 22.21, 1.369, 7.00),
        "LightStereo-L": (79.09, 64.57, 51.49, 56.33, 37.27, 23.89, 29.355, 45.84, 2.808, 12.09),
        "RT-IGEV-192": (51.94, 38.87, 32.37, 26.49, 16.95, 11.52, 1.192, 5.67, 1.359, 5.86),
        "RT-IGEV-416": (41.00, 25.63, 18.27, 25.60, 15.57, 9.76, 2.374, 6.16, 1.768, 5.89),
        "BANet-2D": (83.87, 72.02, 58.54, 63.15, 43.78, 28.46, 35.943, 44.88, 3.806, 16.06),
        "BANet-3D-192": (82.31, 70.31, 58.34, 63.30, 44.91, 30.12, 14.130, 29.35, 3.278, 16.59),
        "BANet-3D-416": (77.37, 62.79, 48.96, 64.17, 46.16, 31.42, 52.843, 39.41, 9.535, 20.74),
        "LiteAnyStereo": (64.16, 47.04, 35.77, 45.63, 27.27, 15.75, 0.764, 14.42, 1.235, 5.95),
        "MatchAttentionRT": (36.64, 19.41, 11.29, 27.04, 14.29, 8.01, 0.382, 4.64, 1.119, 5.15),
    },
)

PAPER_TABLES = (TABLE_4, TABLE_5A, TABLE_5B)

# Scenes in the whole of each split, to say when fewer were measured.
SCENES_OF_SPLIT = {
    ("kitti2015", "training"): 200,
    ("kitti2012", "training"): 194,
    ("eth3d", "training"): 27,
    ("middlebury", "trainingF"): 15,
    ("middlebury", "trainingH"): 15,
    ("middlebury", "trainingQ"): 15,
}
