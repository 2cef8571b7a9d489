"""The kernels in plain numpy, with dense matrices."""

import numpy as np


def indicator(codes, n_levels):
    """Return Z: a row an observation, a column a level."""
    Z = np.zeros((len(codes), n_levels))
    Z[np.arange(len(codes)), codes] = 1.0
    return Z


def group_sums(codes, values, n_levels):
    return indicator(codes, n_levels).T @ values


def pair_counts(rows, cols, n_rows, n_cols):
    """Return Z_a'Z_b, dense."""
    return indicator(rows, n_rows).T @ indicator(cols, n_cols)


def weighted_gram(B, weights):
    return B.T @ np.diag(weights) @ B


def dense(indptr, indices, data, n_cols):
    """Return compressed sparse rows as a dense matrix."""
    matrix = np.zeros((len(indptr) - 1, n_cols))
    for row in range(len(indptr) - 1):
        for place in range(indptr[row], indptr[row + 1]):
            matrix[row, indices[place]] += data[place]
    return matrix


def sparse(matrix):
    """Return a dense matrix as compressed sparse rows, without its zeros."""
    rows, cols = np.nonzero(matrix)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(matrix)))])
    return indptr.astype(np.int64), cols.astype(np.int32), matrix[rows, cols].astype(float)


def lower_limit(x, G, H, opposite, same, related):
    """Return the lower limit of a sum of terms: Ting et al. (1990), in matrices."""
    x = np.where(np.abs(x) > 1e-9 * np.abs(x).max(), x, 0.0)
    plus, minus = np.maximum(x, 0.0), np.maximum(-x, 0.0)
    if np.isinf(H[minus > 0.0]).any():
        return -np.inf
    H = np.where(np.isinf(H), 0.0, H)
    V = np.square(plus * G).sum() + np.square(minus * H).sum() + plus @ opposite @ minus
    n_plus = (plus > 0.0).sum()
    if n_plus > 1 and minus.any():
        V += plus @ same @ plus / (n_plus - 1)
    if related.size:
        away = plus * G - minus * H
        V += away @ related @ away
    return x.sum() - np.sqrt(max(V, 0.0))


def signs(row, tolerance):
    """Return the k × k signs of row[j] - row[i], zero within the tolerance."""
    d = row[None, :] - row[:, None]
    return np.where(np.abs(d) <= tolerance, 0, np.sign(d)).astype(int)


def pair_agreement(x, y, ex, ey):
    """Count concordant less discordant pairs, and those untied in each of two rankings."""
    sx, sy = signs(x, ex), signs(y, ey)
    upper = np.triu_indices(x.size, 1)
    return [(sx * sy)[upper].sum(), np.abs(sx)[upper].sum(), np.abs(sy)[upper].sum()]


def above_in_both(x, y, ex, ey):
    """Count systems above in y, and above in both."""
    sx, sy = signs(x, ex), signs(y, ey)
    return [(sy > 0).sum(axis=1), ((sy > 0) & (sx > 0)).sum(axis=1)]


def mean_share_above(x, y, ex, ey):
    """Sum C(m)/(m - 1) over ranks of y from 2 on, over all ranks that ties may have."""
    sx, sy = signs(x, ex), signs(y, ey)
    total = 0.0
    for i in range(x.size):
        p, t = 1 + (sy[i] > 0).sum(), (sy[i] == 0).sum()
        c = ((sy[i] > 0) & (sx[i] > 0)).sum() + ((sy[i] > 0) & (sx[i] == 0)).sum() / 2
        total += sum((c + (m - p) / 2) / (m - 1) for m in range(p, p + t) if m > 1) / t
    return total
