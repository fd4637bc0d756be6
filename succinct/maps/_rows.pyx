# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Whole rows of a step, gathered from sorted keys: their sizes in codes, and these.

A part of the keys has the rows that begin in it, so it may go on behind its last key.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from succinct.trie._keys cimport Keys, common, end_of, start_of, token_t

cdef extern from "succinct/bits/stream.h" nogil:
    ctypedef struct stream_t:
        pass
    void stream_open(stream_t *) noexcept
    void stream_close(stream_t *, uint64_t *) noexcept
    void stream_put(stream_t *, uint64_t *, uint64_t, uint64_t, uint64_t) noexcept
    void stream_set(stream_t *, uint64_t *, uint64_t) noexcept

cdef extern from "succinct/maps/rice_build.h" nogil:
    cdef enum:
        HUFFMAN
    ctypedef struct step_t:
        uint64_t low, range, kind, width, rows_width, buckets, tokens_at, width2, width3
        uint64_t chunk2_at, chunk3_at, more2_at
    uint64_t rice_length_size(uint64_t, uint64_t) noexcept
    uint64_t rice_choose(const uint32_t **, uint64_t, uint64_t, uint32_t *) noexcept
    uint64_t rice_size(const uint32_t *, uint64_t, uint64_t) noexcept
    uint64_t rice_write(const step_t *, stream_t *, uint64_t *, uint64_t, uint64_t,
                        const uint32_t *, uint64_t) noexcept

cdef extern from "succinct/maps/huffman_build.h" nogil:
    ctypedef struct huffman_writer_t:
        const uint32_t *code
        uint64_t count
        stream_t *to
        uint64_t *values
        uint64_t at
    void huffman_put_row(huffman_writer_t *, uint32_t *, uint64_t) noexcept


cdef class _Rows:
    """The rows of a step that begin with keys [start, stop)."""
    cdef Keys keys
    cdef int64_t i, stop, step, low
    cdef uint32_t *row  # the tokens of the row, and as much room behind them
    cdef int64_t length, room, skipped  # entries before the first row
    cdef uint32_t waiting  # the first token of the next row
    cdef bint ended

    def __cinit__(self, table, start, stop, step, low):
        self.keys = Keys(table)
        self.i, self.stop, self.step, self.low = start, stop, step, low

    def __dealloc__(self):
        free(self.row)


cdef int rows_push(_Rows self, uint32_t token) except -1 nogil:
    cdef void *more
    if self.length == self.room:
        self.room = 2 * self.room + 64
        more = realloc(self.row, 2 * self.room * sizeof(uint32_t))
        if more == NULL:
            with gil:
                raise MemoryError
        self.row = <uint32_t *>more
    self.row[self.length] = token
    self.length += 1
    return 0


cdef int rows_next(_Rows self, token_t[::1] tokens) except -1 nogil:
    """Gather the next row; 0 if there is none."""
    cdef int64_t a, b, end, next, shared, behind, begun = self.length
    cdef uint32_t token
    if self.ended:
        return 0
    self.length = 0
    if begun:
        rows_push(self, self.waiting)
    a = self.keys.before(self.i)
    b = start_of(self.keys.offsets, self.keys.fixed, self.i)
    while self.i < self.keys.n:
        next = start_of(self.keys.offsets, self.keys.fixed, self.i + 1)
        shared = common(&tokens[0], a, b, next)
        behind = shared
        end = end_of(&tokens[0], self.keys, self.i, b, next, &behind) if self.keys.cut else next
        if shared <= self.step < end - b:
            token = <uint32_t>(<int64_t>tokens[b + self.step] - self.low)
            # New above it, or its prefix was the key before.
            if shared < self.step or b - a == self.step:
                if self.i >= self.stop:
                    break
                if begun:
                    self.waiting = token
                    self.i += 1
                    return 1
                begun = 1
                rows_push(self, token)
            elif begun:
                rows_push(self, token)
            else:
                self.skipped += 1
        if self.i >= self.stop and not begun:
            break
        self.i += 1
        a, b = b, next
    self.ended = True
    return self.length > 0


def measure(table, start, stop, step, low, uint64_t span, int64_t[::1] lengths,
            int64_t[::1] counts, int64_t[::1] sizes):
    """Add to `sizes` the bits of the tokens of all rows of a part in Golomb-Rice codes and then, for
    each parameter from 0 on, those of the codes of their lengths; to ``lengths[n]`` the rows of
    length n, and to ``counts[t]`` the tokens t above the lowest, if these are not empty."""
    _measure(table.tokens, _Rows(table, start, stop, step, low), span, lengths, counts, sizes)


def _measure(token_t[::1] tokens, _Rows rows, uint64_t span, int64_t[::1] lengths,
             int64_t[::1] counts, int64_t[::1] sizes):
    cdef const uint32_t *coded
    cdef uint64_t count
    cdef int64_t i
    cdef Py_ssize_t k
    with nogil:
        while rows_next(rows, tokens):
            if lengths.shape[0]:
                lengths[rows.length] += 1
            if counts.shape[0]:
                for i in range(rows.length):
                    counts[rows.row[i]] += 1
            coded = rows.row
            count = rice_choose(&coded, rows.length, span, rows.row + rows.room)
            sizes[0] += rice_size(coded, count, span)
            for k in range(sizes.shape[0] - 1):
                sizes[k + 1] += rice_length_size(rows.length, k)


def measure_code(table, start, stop, step, low, const uint32_t[::1] code, uint64_t count,
                 const uint32_t[::1] words, int64_t[::1] size):
    """Add to `size` the bits of all rows of a part in a Huffman code of so many tokens; `code` are
    the numbers in front of them (huffman.h), `words` those of the tokens above the lowest
    (huffman_build.h)."""
    _measure_code(table.tokens, _Rows(table, start, stop, step, low), code, count, words, size)


cdef inline void to_words(_Rows rows, const uint32_t[::1] words) noexcept nogil:
    cdef int64_t i
    for i in range(rows.length):
        rows.row[i] = words[rows.row[i]]


def _measure_code(token_t[::1] tokens, _Rows rows, const uint32_t[::1] code, uint64_t count,
                  const uint32_t[::1] words, int64_t[::1] size):
    cdef huffman_writer_t writer = huffman_writer_t(&code[0], count, NULL, NULL, 0)
    with nogil:
        while rows_next(rows, tokens):
            to_words(rows, words)
            huffman_put_row(&writer, rows.row, rows.length)
    size[0] += writer.at


def fill(table, start, stop, step, const int64_t[::1] place, uint64_t[::1] bits,
         uint64_t[::1] values, const uint32_t[::1] code, const uint32_t[::1] words, first_entry,
         first_row, uint64_t at):
    """Write the rows of a part of a step whose row in the table of steps is `place`.

    `code` and `words` are as for `measure_code`, or empty; `first_entry`, `first_row` and `at` say
    how many entries, rows and bits of rows the parts before have.
    """
    cdef const step_t *s = <const step_t *>&place[0]
    rows = _Rows(table, start, stop, step, s.low)
    if s.kind == HUFFMAN:
        _fill_code(table.tokens, rows, place, bits, values, code, words, first_row,
                   s.tokens_at + at, at)
    else:
        _fill(table.tokens, rows, place, values, first_entry, first_row, s.tokens_at + at)


def _fill(token_t[::1] tokens, _Rows rows, const int64_t[::1] place, uint64_t[::1] values,
          uint64_t entry, uint64_t row, uint64_t at):
    cdef const step_t *s = <const step_t *>&place[0]
    cdef const uint32_t *coded
    cdef uint64_t count, sample, mask = (1 << s.rows_width) - 1
    cdef stream_t codes, samples
    cdef bint first = True
    stream_open(&codes)
    stream_open(&samples)
    with nogil:
        while rows_next(rows, tokens):
            if first:
                entry += rows.skipped
                first = False
            if row & mask == 0:
                sample = s.chunk2_at + (row >> s.rows_width) * (s.width2 + s.width3)
                stream_put(&samples, &values[0], sample, s.width2, entry)
                stream_put(&samples, &values[0], sample + s.width2, s.width3, at - s.tokens_at)
            coded = rows.row
            count = rice_choose(&coded, rows.length, s.range, rows.row + rows.room)
            at = rice_write(s, &codes, &values[0], at, rows.length, coded, count)
            entry += rows.length
            row += 1
    stream_close(&codes, &values[0])
    stream_close(&samples, &values[0])


def _fill_code(token_t[::1] tokens, _Rows rows, const int64_t[::1] place, uint64_t[::1] bits,
               uint64_t[::1] values, const uint32_t[::1] code, const uint32_t[::1] words,
               uint64_t row, uint64_t at, uint64_t before):
    cdef const step_t *s = <const step_t *>&place[0]
    cdef uint64_t sample, group, mask = (1 << s.width) - 1, low_mask = (1 << s.width2) - 1
    cdef stream_t codes, high, low
    cdef huffman_writer_t writer = huffman_writer_t(&code[0], s.buckets, &codes, &values[0], at)
    stream_open(&codes)
    stream_open(&high)
    stream_open(&low)
    with nogil:
        while rows_next(rows, tokens):
            if row & mask == 0:
                group = row >> s.width
                sample = before + (writer.at - at)
                stream_set(&high, &bits[0], s.more2_at + (sample >> s.width2) + group)
                stream_put(&low, &values[0], s.chunk2_at + group * s.width2, s.width2,
                           sample & low_mask)
            to_words(rows, words)
            huffman_put_row(&writer, rows.row, rows.length)
            row += 1
    stream_close(&codes, &values[0])
    stream_close(&high, &bits[0])
    stream_close(&low, &values[0])
