"""The noise scales of a transcript: the private noise on each value, and the typical size of all other noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quietmean.transcript import Transcript


def extra_variance(bare: Transcript, private_variance: float) -> float:
    """A variance of extra noise at the scale of the noise that matters: rounding is relative to it."""
    positive = bare.noise_scale[bare.noise_scale > 0]
    typical = float(np.median(positive)) ** 2 if positive.size else 0.0
    return max(typical, private_variance) or 1.0


def without_private_noise(transcript: Transcript) -> tuple[Transcript, float]:
    """Take out the noise that a party adds to its value once, before anything else; also returns its variance.

    It is a noise term that occurs in one row alone, the only row where the party's value occurs, and that the party alone
    knows. Adding it back to an information matrix is exact, and without it the system is free of widely different scales.
    """
    values, noise = transcript.values.tocsc(), transcript.noise.tocsc()
    once = (np.diff(values.indptr) == 1).all() and (values.data == 1.0).all()
    rows = values.indices if once else np.zeros(0, dtype=np.int32)
    single = np.nonzero((np.diff(noise.indptr) == 1) & (np.diff(transcript.noise_known.indptr) == 1))[0]
    owner = transcript.noise_known.indices[transcript.noise_known.indptr[single]]
    private = single[np.isin(noise.indices[noise.indptr[single]], rows)] if once else single[:0]
    owner = owner[np.isin(single, private)]
    matches = private.size == transcript.parties and (rows[owner] == noise.indices[noise.indptr[private]]).all()
    scales = transcript.noise_scale[private] * np.abs(noise.data[noise.indptr[private]])
    if not matches or np.unique(owner).size != transcript.parties or np.ptp(scales) > 0:
        return transcript, 0.0
    bare = transcript.noise_scale.copy()
    bare[private] = 0.0
    return replace(transcript, noise_scale=bare), float(scales[0]) ** 2
