"""Tests of the reference losses, compared with torch in double precision."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.operators import reference as ref

seeds = st.integers(0, 2**31)
margins = st.floats(0.1, 2.0)


def _rows(seed, count=2, shape=(5, 7)):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for _ in range(count)]


def _labelled(seed, space=()):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((5, 7, *space)), rng.integers(0, 7, (5, *space)), rng.uniform(0.5, 1.5, 7)


def _same(result, function, *arrays, **given):
    np.testing.assert_allclose(result, function(*map(torch.from_numpy, arrays), **given), rtol=1e-10)


@given(seeds, st.sampled_from([(), (3,), (3, 4)]), st.floats(0.0, 0.5))
@settings(max_examples=40, deadline=None)
def test_cross_entropy_matches_torch(seed, space, smoothing):
    data, target, weight = _labelled(seed, space)
    result = ref.cross_entropy(data, target, label_smoothing=smoothing)
    _same(result, F.cross_entropy, data, target, label_smoothing=smoothing)
    _same(ref.cross_entropy(data, target, weight), F.cross_entropy, data, target, weight)
    _same(ref.nll_loss(data, target, weight), F.nll_loss, data, target, weight)
    likely = np.abs(data[::-1]) / np.abs(data[::-1]).sum(axis=1, keepdims=True)
    _same(ref.cross_entropy(data, likely), F.cross_entropy, data, likely)


@given(seeds, margins)
@settings(max_examples=30, deadline=None)
def test_distances_match_torch(seed, delta):
    data, target = _rows(seed)
    _same(ref.huber_loss(data, target, delta), F.huber_loss, data, target, delta=delta)
    _same(ref.huber_loss(data, target, delta) / delta, F.smooth_l1_loss, data, target, beta=delta)


@given(seeds, margins)
@settings(max_examples=30, deadline=None)
def test_margins_match_torch(seed, margin):
    data, target, _ = _labelled(seed)
    _same(ref.multi_margin_loss(data, target, margin), F.multi_margin_loss, data, target, margin=margin)
    anchor, positive, negative = _rows(seed, 3)
    result = ref.triplet_margin_loss(anchor, positive, negative, margin)
    _same(result, F.triplet_margin_loss, anchor, positive, negative, margin=margin)
    together = np.random.default_rng(seed).integers(0, 2, 5) * 2 - 1
    result = ref.cosine_embedding_loss(anchor, positive, together, margin / 4)
    _same(result, F.cosine_embedding_loss, anchor, positive, together, margin=margin / 4)


@given(seeds)
@settings(max_examples=30, deadline=None)
def test_margin_of_many_labels_matches_torch(seed):
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((5, 7))
    target = rng.random((5, 7)).argsort(axis=1)
    for row in target:
        row[rng.integers(0, 8) :] = -1
    _same(ref.multilabel_margin_loss(data, target), F.multilabel_margin_loss, data, target)


@given(seeds, st.integers(1, 6), st.integers(2, 4))
@settings(max_examples=40, deadline=None)
def test_ctc_matches_torch(seed, length, classes):
    rng = np.random.default_rng(seed)
    time = 2 * length + 1  # enough steps for a blank between any two labels
    data, target = rng.standard_normal((time, 3, classes)), rng.integers(1, classes, (3, length))
    logs = F.log_softmax(torch.from_numpy(data), -1)
    expected = F.ctc_loss(logs, torch.from_numpy(target), (time,) * 3, (length,) * 3)
    np.testing.assert_allclose(ref.ctc_loss(data, target), expected, rtol=1e-10)
