# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=True, embedsignature.format=python
"""What masking does to logits, given the valid tokens of every row.

Logits come as the unsigned integers of their bits, so that one rule serves every floating-point
type: what has a magnitude above that of infinity is NaN, and counts as negative infinity.
`magnitude`, `infinity` and `lowest` are the bits of a type: all but the sign, infinity, negative
infinity. The tokens of row i are those at [offsets[i], offsets[i + 1]), all of them columns.
"""

from libc.math cimport INFINITY, exp, log
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from succinct._walker cimport Core

import numpy as np

cdef extern from * nogil:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #define prefetch(address) __builtin_prefetch(address)

    /* Repeat a word over some bytes. The string instruction of x86 does not read the lines that it
     * writes whole, which halves the time where they are not in a cache. */
    static inline void fill(char *to, size_t n_bytes, uint64_t word) {
        size_t n = n_bytes / sizeof word;
        char *end = to + n * sizeof word;
    #if defined(__x86_64__) && defined(__GNUC__)
        void *at = to;
        __asm__ volatile("rep stosq" : "+D"(at), "+c"(n) : "a"(word) : "memory");
    #else
        for (; to < end; to += sizeof word) memcpy(to, &word, sizeof word);
    #endif
        memcpy(end, &word, n_bytes % sizeof word);
    }
    """
    void prefetch(const void *) noexcept
    void fill(char *, size_t, uint64_t) noexcept

cdef enum:
    TOGETHER = 128  # tokens whose logits are fetched side by side

ctypedef fused bits_t:
    uint16_t
    uint32_t
    uint64_t


cdef inline bits_t clean(bits_t value, bits_t magnitude, bits_t infinity,
                         bits_t lowest) noexcept nogil:
    return lowest if <bits_t>(value & magnitude) > infinity else value


def spans(Core core, const uint64_t[::1] states):
    """Where the continuations of each state are to be listed, and the end of the last.

    None if a number is no state of the index.
    """
    out = np.empty(states.shape[0] + 1, np.int64)
    cdef int64_t[::1] offsets = out
    cdef Py_ssize_t row
    cdef bint known = True
    with nogil:
        offsets[0] = 0
        for row in range(states.shape[0]):
            if not core.is_state(states[row]):
                known = False
                break
            offsets[row + 1] = offsets[row] + core.degree(states[row])
    return out if known else None


def list_tokens(Core core, const uint64_t[::1] states, const int64_t[::1] offsets,
                uint32_t[::1] tokens, uint64_t[::1] children, const bits_t[:, :] logits,
                uint64_t magnitude, uint64_t infinity, uint64_t lowest, bits_t[::1] out):
    """Write the continuations of state i and their logits in row i to [offsets[i], offsets[i + 1]).

    Returns whether all tokens are columns: those of a damaged file may lie beyond, and have the
    logit `lowest` then.
    """
    cdef Py_ssize_t row, begin = 0, end, n = states.shape[0], stride = logits.strides[1]
    cdef int64_t i
    cdef uint32_t n_columns = <uint32_t>min(logits.shape[1], <Py_ssize_t>0xffffffff)
    cdef const char *values
    cdef bint inside = True
    with nogil:
        while begin < n:
            # Rows that have few tokens are taken together, so that their logits, which lie far
            # apart, come from memory at the same time.
            end = begin
            while end < n and (end == begin or offsets[end + 1] - offsets[begin] <= TOGETHER):
                i = offsets[end]
                if i < offsets[end + 1]:
                    core.list_children(states[end], &tokens[i], &children[i])
                    if offsets[end + 1] - i <= TOGETHER:
                        values = <const char *>&logits[end, 0]
                        for i in range(i, offsets[end + 1]):
                            prefetch(values + <Py_ssize_t>tokens[i] * stride)
                end += 1
            for row in range(begin, end):
                if offsets[row] == offsets[row + 1]:
                    continue
                values = <const char *>&logits[row, 0]
                for i in range(offsets[row], offsets[row + 1]):
                    if tokens[i] < n_columns:
                        out[i] = clean[bits_t](
                            (<const bits_t *>(values + <Py_ssize_t>tokens[i] * stride))[0],
                            <bits_t>magnitude, <bits_t>infinity, <bits_t>lowest,
                        )
                    else:
                        out[i] = <bits_t>lowest
                        inside = False
            begin = end
    return inside


def keep_only(bits_t[:, :] logits, uint64_t lowest, const int64_t[::1] offsets,
              const uint32_t[::1] tokens, const bits_t[::1] values):
    """Set the logits of row i to `values` at its tokens, and to `lowest` elsewhere."""
    # A row is filled whole and its tokens put back: stores in one run are the quickest.
    cdef Py_ssize_t row, column, stride = logits.strides[1]
    cdef int64_t i
    cdef char *line
    cdef bits_t low = <bits_t>lowest
    cdef uint64_t word = lowest
    if bits_t is uint16_t:
        word = lowest * 0x0001000100010001
    elif bits_t is uint32_t:
        word = lowest * 0x0000000100000001
    with nogil:
        for row in range(logits.shape[0]):
            line = <char *>&logits[row, 0]
            if stride == sizeof(bits_t):
                fill(line, logits.shape[1] * sizeof(bits_t), word)
            else:
                for column in range(logits.shape[1]):
                    (<bits_t *>(line + column * stride))[0] = low
            for i in range(offsets[row], offsets[row + 1]):
                (<bits_t *>(line + <Py_ssize_t>tokens[i] * stride))[0] = values[i]


def normalise(float[::1] scores, const int64_t[::1] offsets):
    """Log-softmax of each row ``scores[offsets[i]:offsets[i + 1]]``, in place."""
    cdef Py_ssize_t row
    cdef int64_t begin, count
    with nogil:
        for row in range(offsets.shape[0] - 1):
            begin = offsets[row]
            count = offsets[row + 1] - begin
            if count:
                shift(&scores[begin], count, total(<const char *>&scores[begin], count, sizeof(float)))


def normalise_rows(float[::1] scores, const int64_t[::1] offsets, const float[:, :] logits):
    """As `normalise`, but over all logits of a row, whatever is left of them."""
    cdef Py_ssize_t row
    cdef int64_t begin, count
    cdef Total whole
    with nogil:
        for row in range(logits.shape[0]):
            begin = offsets[row]
            count = offsets[row + 1] - begin
            if count:
                whole = total(<const char *>&logits[row, 0],
                              logits.shape[1], logits.strides[1])
                shift(&scores[begin], count, whole)


cdef struct Total:
    # The largest value, and the logarithm of the sum of exp(value - largest).
    double most, log_sum


cdef Total total(const char *values, int64_t count, Py_ssize_t stride) noexcept nogil:
    """Of some values, of which NaN counts as -inf."""
    cdef Total found
    cdef int64_t i
    cdef double value, summed = 0.0
    found.most = -INFINITY
    for i in range(count):
        value = (<const float *>(values + i * stride))[0]
        if value > found.most:
            found.most = value
    if found.most > -INFINITY:
        for i in range(count):
            value = (<const float *>(values + i * stride))[0]
            if value == found.most:
                summed += 1.0
            elif value < found.most:
                summed += exp(value - found.most)
    found.log_sum = log(summed) if summed > 0.0 else 0.0
    return found


cdef void shift(float *scores, int64_t count, Total whole) noexcept nogil:
    """Turn scores into log-probabilities, given what `total` says of their distribution."""
    cdef int64_t i
    cdef double value
    for i in range(count):
        value = scores[i]
        if value == whole.most and whole.most > -INFINITY:
            value = 0.0
        elif value > -INFINITY:
            value -= whole.most
        scores[i] = <float>(value - whole.log_sum)
