"""Q4_K and Q6_K, the block types of GGUF that the package gguf reads and does not write. Plain
rounding: no search for better scales, so a quantizer that searches loses less."""

import numpy as np

BLOCK = 256


def half(values):
    """F16 values as bytes, one column of two for each block."""
    return values.astype(np.float16).view(np.uint8).reshape(-1, 2)


def divide(values, by):
    """0 where the divisor is 0: such a group is all zeros."""
    return np.divide(values, by, out=np.zeros_like(values), where=by != 0)


def in_f16(values):
    return values.astype(np.float16).astype(np.float32)


def q6_k(rows):
    """Groups of 16 elements with a scale of 8 bits; codes from -32 to 31."""
    groups = rows.reshape(-1, 16, 16)
    at = np.abs(groups).argmax(axis=2)[..., None]
    scales = np.take_along_axis(groups, at, axis=2)[..., 0] / -32  # the extreme gets -32
    d = in_f16(np.abs(scales).max(axis=1, keepdims=True) / 127)
    steps = np.rint(divide(scales, np.broadcast_to(d, scales.shape))).clip(-127, 127)
    unit = (d * steps)[..., None]
    codes = np.rint(divide(groups, np.broadcast_to(unit, groups.shape))).clip(-32, 31) + 32
    codes = codes.astype(np.uint8).reshape(-1, 2, 4, 32)  # halves of the block, four rows each
    low = (codes & 15).reshape(-1, 2, 2, 64)
    low = low[:, :, 0] | low[:, :, 1] << 4
    high = sum((codes[:, :, row] >> 4) << (2 * row) for row in range(4))
    return np.concatenate([low.reshape(-1, 128), high.reshape(-1, 64),
                           steps.astype(np.int8).view(np.uint8), half(d)], axis=1)


def q4_k(rows):
    """Groups of 32 elements with a scale and a minimum of 6 bits; codes from 0 to 15."""
    groups = rows.reshape(-1, 8, 32)
    least = -np.minimum(groups.min(axis=2), 0)
    scales = (np.maximum(groups.max(axis=2), 0) + least) / 15
    d = in_f16(scales.max(axis=1, keepdims=True) / 63)
    d_least = in_f16(least.max(axis=1, keepdims=True) / 63)
    steps = np.rint(divide(scales, np.broadcast_to(d, scales.shape))).clip(0, 63).astype(np.uint8)
    lows = np.rint(divide(least, np.broadcast_to(d_least, least.shape)))
    lows = lows.clip(0, 63).astype(np.uint8)
    unit = (d * steps)[..., None]
    shifted = groups + (d_least * lows)[..., None]
    codes = np.rint(divide(shifted, np.broadcast_to(unit, groups.shape))).clip(0, 15)
    codes = codes.astype(np.uint8)
    packed = np.concatenate([steps[:, :4] | (steps[:, 4:] >> 4) << 6,
                             lows[:, :4] | (lows[:, 4:] >> 4) << 6,
                             (steps[:, 4:] & 15) | (lows[:, 4:] & 15) << 4], axis=1)
    return np.concatenate([half(d), half(d_least), packed,
                           (codes[:, 0::2] | codes[:, 1::2] << 4).reshape(-1, 128)], axis=1)


def quantize(values, name):
    """Rows of bytes, as quants.quantize() of the package gives them."""
    if values.shape[-1] % BLOCK != 0:
        raise SystemExit(f"{name} needs rows of a multiple of {BLOCK} elements; these have "
                         f"{values.shape[-1]}")
    blocks = {"Q4_K": q4_k, "Q6_K": q6_k}[name](values.astype(np.float32))
    return np.ascontiguousarray(blocks.reshape(values.shape[0], -1))
