"""The operator as nested loops over plain floats, written from its formulas alone."""

import math

from torch import Tensor


def oracle(q: Tensor, k: Tensor, v: Tensor, position: Tensor, window: tuple[int, int], similarity: str):
    """Returns nested lists: out[b][y][x][head][channel] and weights[b][y][x][head][key]."""
    batch, height, width, heads, channels = q.shape
    rows, columns = window
    rad_x, rad_y = (columns - 2) // 2, (rows - 2) // 2
    out, weights = [], []
    for b in range(batch):
        for y in range(height):
            for x in range(width):
                for h in range(heads):
                    px, py = (float(n) for n in position[b, y, x, h if position.shape[3] > 1 else 0])
                    cx = min(max(x + px, rad_x), width - 1 - rad_x - 1e-3)
                    fx = math.floor(cx)
                    xs = [fx + d for d in range(-rad_x, rad_x + 2)]
                    if rows == 1:
                        ys, corners = [y], [(0, 0, 1 - (cx - fx)), (0, 1, cx - fx)]
                    else:
                        cy = min(max(y + py, rad_y), height - 1 - rad_y - 1e-3)
                        fy = math.floor(cy)
                        ys = [fy + d for d in range(-rad_y, rad_y + 2)]
                        ax, ay = cx - fx, cy - fy
                        corners = [
                            (0, 0, (1 - ax) * (1 - ay)),
                            (0, 1, ax * (1 - ay)),
                            (1, 0, (1 - ax) * ay),
                            (1, 1, ax * ay),
                        ]
                    score = {}
                    for i, ky in enumerate(ys):
                        for j, kx in enumerate(xs):
                            pairs = zip(q[b, y, x, h].tolist(), k[b, ky, kx, h].tolist())
                            if similarity == "l1":
                                score[i, j] = -sum(abs(a - c) for a, c in pairs) / math.sqrt(channels)
                            else:
                                score[i, j] = sum(a * c for a, c in pairs) / math.sqrt(channels)
                    abar = dict.fromkeys(score, 0.0)
                    tall = 1 if rows == 1 else rows - 1
                    for top, left, share in corners:
                        keys = [(top + i, left + j) for i in range(tall) for j in range(columns - 1)]
                        total = sum(math.exp(score[key]) for key in keys)
                        for key in keys:
                            abar[key] += share * math.exp(score[key]) / total
                    weights.append(list(abar.values()))
                    out.append(
                        [sum(abar[i, j] * float(v[b, ys[i], xs[j], h, c]) for i, j in abar) for c in range(v.shape[-1])]
                    )
    return out, weights
