"""The paper's own figures, to stand beside ours: tables 5, 6, 7, S3, S4 and the cascade of figure 5."""

from __future__ import annotations

from typing import NamedTuple


class Accuracy(NamedTuple):
    """A row of table 6: per cent, EPE in px, lower is better; None where the paper has a dash.

    Attributes:
        middlebury_f: bad 0.5, bad 1, bad 2 at full resolution.
        middlebury_h: the same at half resolution.
        eth3d: EPE and bad 1.
        kitti: EPE and D1.
        parameters: millions.
    """

    middlebury_f: tuple[float, float, float] | None
    middlebury_h: tuple[float, float, float]
    eth3d: tuple[float, float]
    kitti: tuple[float, float]
    parameters: float


# Each trained on FSD for 200 000 updates of 32 crops of 512x768; by the names of our registered networks.
TABLE_6: dict[str, Accuracy] = {
    "rt": Accuracy((29.02, 12.68, 6.19), (20.75, 9.90, 4.76), (0.25, 2.61), (1.05, 4.40), 10.92),
    "rt-local": Accuracy((60.80, 39.86, 22.02), (41.86, 24.31, 12.51), (3.04, 4.29), (1.08, 5.07), 10.86),
    "rt-nat": Accuracy((61.72, 40.46, 22.82), (41.74, 24.66, 12.78), (3.16, 4.65), (1.09, 5.16), 10.86),
    "rt-swin": Accuracy(None, (61.27, 40.21, 21.42), (4.32, 7.47), (1.40, 7.08), 10.86),
    "rt-global-1d": Accuracy((70.91, 50.93, 31.49), (52.50, 31.18, 16.29), (4.20, 7.08), (1.28, 6.89), 10.86),
    "rt-self-blind": Accuracy((30.80, 13.84, 6.80), (23.04, 11.03, 5.32), (0.26, 3.06), (0.99, 4.37), 10.91),
    "rt-double-cross": Accuracy((29.41, 13.32, 6.87), (20.83, 10.26, 5.24), (0.25, 2.56), (0.99, 4.34), 11.13),
    "rt-dot": Accuracy((29.52, 12.84, 6.14), (21.22, 10.10, 5.01), (0.25, 2.72), (1.00, 4.36), 10.92),
    "rt-1x8": Accuracy((31.41, 13.94, 6.84), (22.83, 10.71, 5.08), (0.28, 3.06), (1.09, 4.58), 10.98),
    "rt-no-occlusion": Accuracy((31.03, 14.06, 6.96), (24.29, 11.49, 5.32), (0.26, 3.08), (0.99, 4.28), 10.75),
    "rt-wide": Accuracy((26.63, 11.13, 5.38), (18.07, 8.20, 3.77), (0.22, 2.09), (0.99, 4.25), 42.61),
    "rt-2d": Accuracy((28.45, 12.26, 5.80), (20.68, 9.74, 4.67), (0.24, 2.40), (1.05, 4.42), 11.10),
    "rt-full": Accuracy((28.19, 12.17, 5.89), (20.69, 9.56, 4.41), (0.23, 2.34), (1.00, 4.40), 16.50),
    "rt-full-2d": Accuracy((25.95, 10.87, 4.96), (18.05, 8.02, 3.71), (0.22, 1.85), (1.03, 4.23), 16.68),
}


class Speed(NamedTuple):
    """A row of table 7 at 1024x512, fp16, torch.compile: GFLOP, and ms on three devices."""

    gflops: float
    orin_nx: float
    orin_agx: float
    rtx_4060_ti: float


TABLE_7: dict[str, Speed] = {
    "rt-full-2d": Speed(92.6, 213.9, 85.6, 25.0),
    "rt-full": Speed(90.7, 97.4, 43.2, 11.4),
    "rt-2d": Speed(64.4, 143.2, 62.1, 17.4),
    "rt": Speed(62.5, 79.1, 36.7, 9.3),
}

# Figure 5 is a picture; its text gives the ends: the operator's share of the time on an RTX 4060 Ti at 1280x736.
CASCADE_SHARE = {"rt-cascade": 70.0, "rt": 13.0}


class Point(NamedTuple):
    """A method of table 5 at 1024x512: Middlebury H bad 2, KITTI 2015 D1 (per cent), ms on an RTX 4060 Ti."""

    middlebury_h_bad2: float
    kitti_d1: float
    rtx_4060_ti: float


# Panel (a), each method trained on its largest data, and RT of panel (b).
TABLE_5: dict[str, Point] = {
    "Fast-FSD-192": Point(4.79, 3.23, 222.2),
    "Fast-FSD-416": Point(2.20, 3.17, 421.0),
    "RT-Monster++-416": Point(6.16, 3.29, 44.8),
    "LiteAnyStereo": Point(10.39, 3.71, 16.6),
    "Zero-RAFT-Stereo": Point(4.45, 4.17, 216.1),
    "Monster++-416": Point(2.13, 3.23, 567.1),
    "MatchAttentionXL": Point(1.89, 3.30, 248.8),
    "MatchAttentionRT": Point(3.76, 4.32, 9.3),
    "MatchAttentionRT, Scene Flow": Point(8.01, 5.15, 9.3),
}


class OperatorRow(NamedTuple):
    """A row of table S3 on an RTX 4090, fp32, 256 channels: tokens a side, MB, ms."""

    side: int
    megabytes: float
    milliseconds: float


TABLE_S3: dict[str, tuple[OperatorRow, ...]] = {
    "global": (OperatorRow(196, 17630, 27.9),),
    "match": (
        OperatorRow(196, 870, 1.4),
        OperatorRow(512, 2448, 4.2),
        OperatorRow(768, 4652, 7.7),
        OperatorRow(1024, 7804, 12.5),
        OperatorRow(2048, 29464, 43.1),
    ),
}


class SizeRow(NamedTuple):
    """A row of table S4 on a Jetson Orin NX 16 GB, fp16: height, width, GFLOP, ms."""

    height: int
    width: int
    gflops: float
    milliseconds: float


TABLE_S4 = (
    SizeRow(512, 1024, 62.5, 79.1),
    SizeRow(864, 1536, 160.3, 172.6),
    SizeRow(1088, 1920, 255.5, 280.1),
)
