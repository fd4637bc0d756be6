"""Kernels that run parts of the beam search alone, for tests and mutants of these parts."""

import numpy as np
from numba import cuda

from succinct.bits import BitVector
from succinct.decode._select import order32
from succinct_gpu import _expand, _topk
from succinct_gpu._beam import Rows
from succinct_gpu._compile import kernel_for
from succinct_gpu._device import upload_tuple
from succinct_gpu._expand import (
    BLOCK,
    Proposals,
    Step,
    attempt_cheaper,
    attempt_child,
    attempt_known,
    attempt_labels,
    attempt_pair,
    expand,
    prepare_hash,
    stage_cheaper,
    stage_children,
    stage_labels,
    stage_pairs,
)
from succinct_gpu._expand import attempt as attempt_binary
from succinct_gpu._topk import BINS, CAPACITY, Lists


def choose_round(*arguments):
    return True


def take(*arguments):
    return np.int64(0)


def choose(lists, sizes, keeps, share, out, counts_out):
    """List b of each team of `share` blocks is that of its number."""
    grid = cuda.cg.this_grid()
    buffer = cuda.shared.array(CAPACITY, np.uint64)
    bins = cuda.shared.array(BINS, np.int32)
    plan = cuda.shared.array((2, 5), np.uint64)
    number = np.int64(cuda.blockIdx.x) // share
    member = np.int64(cuda.blockIdx.x) - number * share
    if cuda.threadIdx.x < 5:
        plan[1, cuda.threadIdx.x] = np.uint64(0)
    cuda.syncthreads()
    n, keep = sizes[number], keeps[number]
    ready = False
    for _ in range(12):
        if not ready:
            ready = choose_round(lists, number, n, keep, member, share, plan, 1, bins, buffer)
        grid.sync()
    if member == 0:
        kept = take(lists, number, n, keep, buffer, plan, 1)
        i = np.int64(cuda.threadIdx.x)
        if i == 0:
            counts_out[number] = kept
        while i < kept:
            out[number, i] = buffer[i]
            i += np.int64(cuda.blockDim.x)


def keys_for(kind, n, generator):
    """Distinct keys: scores that differ, that are few, that are all the same, or extreme."""
    numbers = generator.permutation(n).astype(np.uint64)
    if kind == "differ":
        scores = generator.integers(0, 2**32, n, np.uint64)
    elif kind == "few":
        scores = generator.integers(0, 4, n, np.uint64) * np.uint64(0x0101) + np.uint64(2**31)
    else:
        scores = np.full(n, 0xFFFFFFFF if kind == "largest" else 7, np.uint64)
    return (scores << np.uint64(32)) | (np.uint64(0xFFFFFFFF) - numbers)


def check_choice(selection, cases, share=2, threads=64, seed=1, topk=_topk):
    """Whether the best of lists of given kinds, lengths and numbers to keep are chosen."""
    generator = np.random.default_rng(seed)
    lists_of = [keys_for(kind, n, generator) for kind, n, _ in cases]
    places = max(max(map(len, lists_of)), 1)
    n = len(cases)
    keys = np.zeros((n, places), np.uint64)
    for row, values in zip(keys, lists_of, strict=True):
        row[: len(values)] = values
    lists = Lists(
        cuda.to_device(keys),
        cuda.to_device(np.zeros((2, n), np.int32)),
        cuda.device_array((n, -(-places // CAPACITY) * CAPACITY), np.uint64),
        cuda.device_array((n, CAPACITY), np.uint64),
        cuda.to_device(np.zeros(n, np.int32)),
        cuda.to_device(np.zeros((n, topk.PASSES, BINS), np.int32)),
    )
    kernel = kernel_for(
        choose,
        choices=(
            ("choose_round", getattr(topk, f"{selection}_round")),
            ("take", getattr(topk, f"take_{selection}")),
        ),
    )
    sizes, keeps = (np.array([case[i] for case in cases], np.int64) for i in (1, 2))
    out = cuda.to_device(np.zeros((n, CAPACITY), np.uint64))
    counts = cuda.to_device(np.zeros(n, np.int64))
    kernel[n * share, threads](
        lists, cuda.to_device(sizes), cuda.to_device(keeps), np.int64(share), out, counts
    )
    found, counts = out.copy_to_host(), counts.copy_to_host()
    for row, count, values, keep in zip(found, counts, lists_of, keeps, strict=True):
        if count != min(len(values), keep):
            return False
        if not np.array_equal(row[:count], np.sort(values)[::-1][:count]):
            return False
    return not (lists.histograms.copy_to_host().any() or lists.n_winners.copy_to_host().any())


# The variants in one kernel: the number of the step says which.


def prepare_any(proposals, step, buffer):
    if step.number == 1:
        prepare_hash(proposals, step, buffer)


def stage_any(index, state, first, count, proposals, line, n, step, buffer):
    trials = n
    if step.number == 1:
        trials = stage_cheaper(index, state, first, count, proposals, line, n, step, buffer)
    elif step.number == 2:
        trials = stage_labels(index, state, first, count, proposals, line, n, step, buffer)
    elif step.number == 3:
        trials = stage_pairs(index, state, first, count, proposals, line, n, step, buffer)
    elif step.number == 4:
        trials = stage_children(index, state, first, count, proposals, line, n, step, buffer)
    return trials


def attempt_any(index, state, first, count, trial, proposals, line, n, step, buffer):
    if step.number == 1:
        return attempt_cheaper(index, state, first, count, trial, proposals, line, n, step, buffer)
    if step.number == 2:
        return attempt_labels(index, state, first, count, trial, proposals, line, n, step, buffer)
    if step.number == 3:
        return attempt_pair(index, state, first, count, trial, proposals, line, n, step, buffer)
    if step.number == 4:
        return attempt_child(index, state, first, count, trial, proposals, line, n, step, buffer)
    if step.number == 5:
        return attempt_known(index, state, first, count, trial, proposals, line, n, step, buffer)
    return attempt_binary(index, state, first, count, trial, proposals, line, n, step, buffer)


def expand_once(index, rows, n_rows, proposals, allowed, variant, min_logprob, lists):
    buffer = cuda.shared.array(CAPACITY, np.uint64)
    firsts = cuda.shared.array(BLOCK, np.int64)
    counts = cuda.shared.array(BLOCK, np.int64)
    step = Step(
        np.int64(0),
        variant,
        np.int64(0),
        np.int64(0),
        np.int64(0),
        np.int64(proposals.counts[0]),
        np.int64(proposals.tokens.shape[1]),
        True,
        np.float32(-np.inf),
        min_logprob,
        np.float64(1.0),
        np.float64(-np.inf),
        np.int64(-1),
    )
    member, share = np.int64(cuda.blockIdx.x), np.int64(cuda.gridDim.x)
    expand(
        index, rows, n_rows, proposals, allowed, step, lists, member, share, buffer, firsts, counts
    )


VARIANTS = {name: number for number, name in enumerate(_expand.VARIANTS)}


def check_expansion(device, host, states, tokens, variant, blocks=3, threads=64, expansion=_expand):
    """Whether the continuations of some rows by some tokens are found, each once.

    The sums of rows and the log-probabilities are such that a candidate's sum says both.
    """
    n_rows, n = len(states), len(tokens)
    sums = (-1000.0 * np.arange(n_rows)).astype(np.float32)
    logprobs = (-1.0 - np.arange(n) % 700).astype(np.float32)
    least = np.float32(sums[-1] - 600.0)
    expected = ([], [])
    for row, state in enumerate(states):
        children = host.advance(np.full(n, state, np.uint64), tokens)
        terminal = host.is_terminal(children)
        inner = np.array([len(host.children(child)[0]) > 0 for child in children])
        for place in np.flatnonzero((children != 2**64 - 1) & (sums[row] + logprobs > least)):
            key = int(order32(np.float32(sums[row] + logprobs[place]))) << 32
            key |= 0xFFFFFFFF - (row * n + int(place))
            for found, wanted in zip(expected, (inner, terminal), strict=True):
                found += [key] * bool(wanted[place])
    known = np.unique(np.concatenate([host.children(state)[0] for state in states]))
    starts = np.zeros(7, np.int64)
    starts[6] = len(known)
    proposals = Proposals(
        cuda.to_device(tokens[None].astype(np.uint32)),
        cuda.to_device(logprobs[None]),
        cuda.to_device(np.array([n], np.int64)),
        cuda.to_device(known),
        cuda.to_device(starts),
    )
    rows = Rows(
        cuda.to_device(np.array(states, np.uint64).reshape(1, 1, -1)),
        cuda.to_device(sums.reshape(1, 1, -1)),
        cuda.to_device(np.array([[n_rows]], np.int64)),
    )
    counts = cuda.to_device(np.zeros((2, 2), np.int32))
    keys = cuda.device_array((2, n_rows * n), np.uint64)
    lists = Lists(keys, counts, keys, keys, counts[0], counts.reshape(2, 2, 1))
    kernel = kernel_for(
        expand_once,
        host.lanes,
        (
            ("expand", expansion.expand),
            ("prepare", prepare_any),
            ("stage", stage_any),
            ("attempt", attempt_any),
        ),
    )
    every = upload_tuple(BitVector.from_indices([], 0).lane_arrays())
    number = np.int64(VARIANTS[variant])
    kernel[blocks, threads](
        device.arrays, rows, np.int64(n_rows), proposals, every, number, least, lists
    )
    lengths = counts.copy_to_host()[0].tolist()
    found = [sorted(keys.copy_to_host()[i, : lengths[i]].tolist()) for i in range(2)]
    return found == [sorted(part) for part in expected]
