# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Loops over flat token arrays that numpy has no single call for.

Every function takes sequences in one of two shapes: ``length > 0`` means that row i is
``tokens[i * length : (i + 1) * length]`` and `offsets` is not looked at; ``length == 0`` means
that it is ``tokens[offsets[i] : offsets[i + 1]]``. The caller has checked the shapes; nothing here
checks them again. All loops run without the GIL and count in 64 bits.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "succinct/keys/compare.h" nogil:
    uint64_t splitters_upto(const uint64_t *, uint64_t, uint64_t) noexcept
    uint64_t bytes_common(const void *, const void *, uint64_t) noexcept

ctypedef fused token_t:
    uint8_t
    uint16_t
    uint32_t
    uint64_t

ctypedef fused other_t:
    uint8_t
    uint16_t
    uint32_t
    uint64_t


cdef inline Py_ssize_t row_start(const int64_t* offsets, Py_ssize_t length,
                                 Py_ssize_t row) noexcept nogil:
    return row * length if length else <Py_ssize_t>offsets[row]


cdef inline int compare(const token_t* left, Py_ssize_t left_length,
                        const token_t* right, Py_ssize_t right_length) noexcept nogil:
    """Sign of the lexicographic comparison; a prefix is smaller than its extensions."""
    cdef Py_ssize_t shared = min(left_length, right_length)
    cdef Py_ssize_t i = bytes_common(left, right, shared * sizeof(token_t)) // sizeof(token_t)
    if i < shared:
        return -1 if left[i] < right[i] else 1
    return (left_length > right_length) - (left_length < right_length)


def scan(const token_t[::1] tokens, const int64_t[::1] offsets, Py_ssize_t length,
         Py_ssize_t n_rows, uint64_t limit):
    """One pass: ``(bad, largest, descent, repeats)``.

    bad: place of the first token above `limit`, or -1. largest: the largest token.
    descent: first row smaller than the row before it, or -1; repeats: rows equal to the row
    before them (counted up to the first descent).
    """
    cdef Py_ssize_t i = 0, k, start = 0, stop, end, last, before = 0
    cdef Py_ssize_t bad = -1, descent = -1, repeats = 0
    cdef uint64_t largest = 0
    cdef token_t top
    cdef int sign
    if tokens.shape[0] == 0 or n_rows == 0:
        return -1, 0, -1, 0
    cdef const token_t* data = &tokens[0]
    cdef const int64_t* bounds = NULL
    if not length:
        bounds = &offsets[0]
    with nogil:
        while i < n_rows and bad < 0:
            # Some rows at a time, while they are at hand: first their tokens, in vectors.
            last = min(i + 256, n_rows)
            end = row_start(bounds, length, last)
            top = 0
            for k in range(start, end):
                top = data[k] if data[k] > top else top
            if top > largest:
                largest = top
            if largest > limit:
                for k in range(start, end):
                    if data[k] > limit:
                        bad = k
                        break
                break
            if descent >= 0:
                i = last
                start = end
            while i < last:
                stop = row_start(bounds, length, i + 1)
                if i:
                    sign = compare(data + before, start - before, data + start, stop - start)
                    repeats += sign == 0
                    if sign > 0:
                        descent = i
                        i = last
                        start = end
                        break
                before = start
                start = stop
                i += 1
    return bad, largest, descent, repeats


def row_lengths(const int64_t[::1] offsets):
    """``(shortest, longest, bad)`` of at least one row; bad: the first shorter than 1, or -1."""
    cdef Py_ssize_t i, bad = -1
    cdef int64_t size, shortest = offsets[1] - offsets[0], longest = shortest
    with nogil:
        for i in range(offsets.shape[0] - 1):
            size = offsets[i + 1] - offsets[i]
            shortest = min(shortest, size)
            longest = max(longest, size)
            if size < 1 and bad < 0:
                bad = i
    return shortest, longest, bad


def number_rows(const int64_t[::1] offsets, int64_t[::1] next, int64_t[::1] numbers,
                int64_t[::1] places):
    """Rows by their lengths, those of one length in order: the number of each row, and the row with
    each number. ``next[n]``, which comes zeroed, has room for every length."""
    cdef Py_ssize_t i, n_rows = numbers.shape[0]
    cdef int64_t size, count, before = 0
    with nogil:
        for i in range(n_rows):
            next[offsets[i + 1] - offsets[i]] += 1
        for i in range(next.shape[0]):
            count = next[i]
            next[i] = before
            before += count
        for i in range(n_rows):
            size = offsets[i + 1] - offsets[i]
            numbers[i] = next[size]
            places[next[size]] = i
            next[size] += 1


def differs(const token_t[::1] tokens, const int64_t[::1] offsets, Py_ssize_t length,
            uint8_t[::1] out):
    """out[i] = 1 if row i is not equal to row i - 1; out[0] = 1."""
    cdef Py_ssize_t i, start, stop, before = 0, n_rows = out.shape[0]
    if n_rows == 0:
        return
    cdef const token_t* data = &tokens[0]
    cdef const int64_t* bounds = NULL
    if not length:
        bounds = &offsets[0]
    with nogil:
        for i in range(n_rows):
            start = row_start(bounds, length, i)
            stop = row_start(bounds, length, i + 1)
            out[i] = i == 0 or compare(data + before, start - before,
                                       data + start, stop - start) != 0
            before = start


def column_ranges(const token_t[::1] tokens, Py_ssize_t length, uint64_t[::1] low,
                  uint64_t[::1] high):
    """Smallest and largest token of every column of a matrix with at least one row."""
    cdef Py_ssize_t i, c, n_rows = tokens.shape[0] // length
    cdef const token_t* row = &tokens[0]
    with nogil:
        for c in range(length):
            low[c] = row[c]
            high[c] = row[c]
        for i in range(n_rows):
            for c in range(length):
                if row[c] < low[c]:
                    low[c] = row[c]
                if row[c] > high[c]:
                    high[c] = row[c]
            row += length


cdef inline uint64_t packed(const token_t* row, Py_ssize_t first, Py_ssize_t stop,
                            const uint64_t* low, const int64_t* shift) noexcept nogil:
    cdef Py_ssize_t c
    cdef uint64_t word = 0
    for c in range(first, stop):
        word |= (<uint64_t>row[c] - low[c]) << shift[c]
    return word


def pack_rows(const token_t[::1] tokens, Py_ssize_t length, const uint64_t[::1] low,
              const int64_t[::1] shift, uint64_t[::1] out):
    """out[i] = the tokens of row i, each less the smallest of its column, in one word."""
    cdef Py_ssize_t i, n_rows = out.shape[0]
    if n_rows == 0:
        return
    cdef const token_t* row = &tokens[0]
    with nogil:
        for i in range(n_rows):
            out[i] = packed(row, 0, length, &low[0], &shift[0])
            row += length


def count_heads(const token_t[::1] tokens, Py_ssize_t length, Py_ssize_t head,
                const uint64_t[::1] low, const int64_t[::1] shift, int64_t[::1] counts):
    """Adds up how many rows have each number that `pack_rows` makes of their first columns."""
    cdef Py_ssize_t i, n_rows = tokens.shape[0] // length
    cdef const token_t* row = &tokens[0]
    with nogil:
        for i in range(n_rows):
            counts[packed(row, 0, head, &low[0], &shift[0])] += 1
            row += length


def scatter_rows(const token_t[::1] tokens, Py_ssize_t length, Py_ssize_t head,
                 const uint64_t[::1] low, const int64_t[::1] shift, int64_t[::1] places,
                 uint64_t[::1] out):
    """Packs the columns behind the first ones: the words of a bucket for each number that these
    make, in any order. ``places[b]`` is where the next word of bucket b goes."""
    cdef Py_ssize_t i, b, n_rows = out.shape[0]
    cdef const token_t* row = &tokens[0]
    with nogil:
        for i in range(n_rows):
            b = <Py_ssize_t>packed(row, 0, head, &low[0], &shift[0])
            out[places[b]] = packed(row, head, length, &low[0], &shift[0])
            places[b] += 1
            row += length


def drop_repeats(uint64_t[::1] words, int64_t[::1] stops):
    """Leaves one of each run of equal words, within sorted buckets that end at `stops`; returns
    how many are left. They move to the front, and `stops` with them."""
    cdef Py_ssize_t b, i, stop, start = 0, used = 0
    cdef uint64_t last
    with nogil:
        for b in range(stops.shape[0]):
            stop = stops[b]
            if start < stop:
                last = ~words[start]
                for i in range(start, stop):
                    if words[i] != last:
                        last = words[i]
                        words[used] = last
                        used += 1
            stops[b] = used
            start = stop
    return used


def unpack_rows(uint8_t[::1] memory, Py_ssize_t length, Py_ssize_t head,
                const uint64_t[::1] low, const int64_t[::1] shift, const uint64_t[::1] mask,
                const int64_t[::1] stops, token_t[::1] out):
    """The inverse of scatter_rows, in place: `memory` begins with the words, and `out` is the same
    memory."""
    cdef Py_ssize_t i, b, start, stop, n_buckets = stops.shape[0]
    # A row must not reach a word that is yet to be read.
    cdef bint forwards = length * sizeof(token_t) < 8
    if out.shape[0] == 0:
        return
    with nogil:
        for b in range(n_buckets):
            if not forwards:
                b = n_buckets - 1 - b
            start = stops[b - 1] if b else 0
            stop = stops[b]
            for i in range(start, stop):
                unpack_row(&memory[0], i if forwards else start + stop - 1 - i, length, head, b,
                           &low[0], &shift[0], &mask[0], &out[0])


cdef inline void unpack_row(const uint8_t* memory, Py_ssize_t i, Py_ssize_t length,
                            Py_ssize_t head, uint64_t bucket, const uint64_t* low,
                            const int64_t* shift, const uint64_t* mask,
                            token_t* out) noexcept nogil:
    cdef Py_ssize_t c
    cdef uint64_t word
    cdef token_t* row = out + i * length
    memcpy(&word, memory + 8 * i, 8)  # tokens and words of one memory: no type may be assumed
    for c in range(head):
        row[c] = <token_t>(((bucket >> shift[c]) & mask[c]) + low[c])
    for c in range(head, length):
        row[c] = <token_t>(((word >> shift[c]) & mask[c]) + low[c])


cdef inline uint64_t next_word(const token_t* data, Py_ssize_t k, Py_ssize_t stop, int bits,
                               Py_ssize_t count) noexcept nogil:
    """Tokens [k, k + count) of those before `stop`, each plus one, in `bits` bits each."""
    cdef Py_ssize_t end = k + count
    cdef uint64_t word = 0
    stop = min(stop, end)
    while k < stop:
        word = (word << bits) | (<uint64_t>data[k] + 1)
        k += 1
    # The word of a row that has ended stays 0; otherwise at least one token was taken, so that
    # less than a whole word is left to shift by.
    if word and k < end:
        word <<= bits * (end - k)
    return word


def pack_next(const token_t[::1] tokens, const int64_t[::1] offsets, Py_ssize_t length,
              const int64_t[::1] rows, Py_ssize_t depth, int bits, Py_ssize_t count,
              uint64_t[::1] out):
    """out[i] = tokens [depth, depth + count) of row rows[i], each plus one, in `bits` bits each.

    Places past the end of the row are 0. An empty `rows` stands for all rows in order.
    """
    cdef Py_ssize_t i, row
    cdef bint all_rows = rows.shape[0] == 0
    if out.shape[0] == 0:
        return
    cdef const token_t* data = &tokens[0]
    cdef const int64_t* bounds = NULL
    if not length:
        bounds = &offsets[0]
    with nogil:
        for i in range(out.shape[0]):
            row = i if all_rows else <Py_ssize_t>rows[i]
            out[i] = next_word(data, row_start(bounds, length, row) + depth,
                               row_start(bounds, length, row + 1), bits, count)


def settle(const token_t[::1] tokens, const int64_t[::1] offsets, Py_ssize_t length,
           Py_ssize_t depth, const uint64_t[::1] words, const int64_t[::1] by_word, uint64_t mask,
           Py_ssize_t most, int64_t[::1] order, uint8_t[::1] distinct):
    """``distinct[i]`` = 1 unless row ``order[i]`` is equal to the one before it, as far as that is
    known; its word is ``words[by_word[i]]``, ascending, of tokens before `depth`.

    Rows that share a word have ended if it has no bit of `mask`. Up to `most` others are sorted here
    by their next tokens; `distinct` gets 2 more for the rest. Returns how many these are.
    """
    cdef Py_ssize_t i = 0, j, k, h, row, size, n = order.shape[0], left = 0
    cdef uint64_t word
    if n == 0:
        return 0
    cdef const token_t* data = &tokens[0]
    cdef const int64_t* bounds = NULL
    if not length:
        bounds = &offsets[0]
    with nogil:
        while i < n:
            word = words[by_word[i]]
            j = i + 1
            distinct[i] = 1
            while j < n and words[by_word[j]] == word:
                distinct[j] = 0
                j += 1
            size = j - i
            if size > 1 and word & mask:
                if size > most:
                    left += size
                    for k in range(i, j):
                        distinct[k] |= 2
                else:
                    # Insertion, and then a look at neighbours.
                    for k in range(i + 1, j):
                        row = order[k]
                        h = k
                        while h > i and compare_behind(data, bounds, length, depth, order[h - 1],
                                                       row) > 0:
                            order[h] = order[h - 1]
                            h -= 1
                        order[h] = row
                    for k in range(i + 1, j):
                        distinct[k] = compare_behind(data, bounds, length, depth, order[k - 1],
                                                     order[k]) != 0
            i = j
    return left


cdef inline int compare_behind(const token_t* data, const int64_t* bounds, Py_ssize_t length,
                               Py_ssize_t depth, Py_ssize_t left, Py_ssize_t right) noexcept nogil:
    """Sign of the comparison of two rows from `depth` on, where neither has ended before."""
    cdef Py_ssize_t a = row_start(bounds, length, left) + depth
    cdef Py_ssize_t b = row_start(bounds, length, right) + depth
    return compare(data + a, row_start(bounds, length, left + 1) - a,
                   data + b, row_start(bounds, length, right + 1) - b)


def part_rows(const token_t[::1] tokens, const int64_t[::1] offsets, Py_ssize_t length, int bits,
              Py_ssize_t count, const uint64_t[::1] splitters, uint8_t[::1] parts,
              int64_t[::1] n_rows, int64_t[::1] n_tokens):
    """parts[i] = how many of the splitters, a power of two less one, are not above what `pack_next`
    makes of the first tokens of row i. Adds up the rows of each part and their tokens."""
    cdef Py_ssize_t i, part, start, stop
    cdef const token_t* data = &tokens[0]
    cdef const int64_t* bounds = NULL
    cdef uint64_t word
    if not length:
        bounds = &offsets[0]
    with nogil:
        for i in range(parts.shape[0]):
            start = row_start(bounds, length, i)
            stop = row_start(bounds, length, i + 1)
            word = next_word(data, start, stop, bits, count)
            part = splitters_upto(&splitters[0], splitters.shape[0], word)
            parts[i] = <uint8_t>part
            n_rows[part] += 1
            n_tokens[part] += stop - start


def scatter_parts(const token_t[::1] tokens, const int64_t[::1] offsets, Py_ssize_t length,
                  const uint8_t[::1] parts, int64_t[::1] row, int64_t[::1] place,
                  other_t[::1] out, int64_t[::1] out_offsets):
    """Copies each row behind those of its part: the next one of part p goes to ``out[place[p]]``,
    and this place to ``out_offsets[row[p]]`` unless rows have one length."""
    cdef Py_ssize_t i, k, part, start, stop
    cdef const token_t* data = &tokens[0]
    cdef other_t* target
    cdef const int64_t* bounds = NULL
    if not length:
        bounds = &offsets[0]
    with nogil:
        for i in range(parts.shape[0]):
            part = parts[i]
            start = row_start(bounds, length, i)
            stop = row_start(bounds, length, i + 1)
            target = &out[place[part]]
            for k in range(start, stop):
                target[k - start] = <other_t>data[k]
            if not length:
                out_offsets[row[part]] = place[part]
                row[part] += 1
            place[part] += stop - start


def bounds_of(const int64_t[::1] offsets, const int64_t[::1] order, int64_t[::1] out):
    """Offsets of row order[0], row order[1], ... one after another; returns the last one."""
    cdef Py_ssize_t i
    cdef int64_t place = 0
    with nogil:
        for i in range(order.shape[0]):
            out[i] = place
            place += offsets[order[i] + 1] - offsets[order[i]]
        out[order.shape[0]] = place
    return place


def gather(const token_t[::1] tokens, const int64_t[::1] offsets, Py_ssize_t length,
           const int64_t[::1] order, token_t[::1] out):
    """Copies row order[0], row order[1], ... one after another into `out`."""
    cdef Py_ssize_t i, start, size
    cdef Py_ssize_t place = 0
    if order.shape[0] == 0:
        return
    cdef const token_t* data = &tokens[0]
    cdef token_t* target = &out[0]
    cdef const int64_t* bounds = NULL
    if not length:
        bounds = &offsets[0]
    with nogil:
        for i in range(order.shape[0]):
            start = row_start(bounds, length, order[i])
            size = row_start(bounds, length, order[i] + 1) - start
            memcpy(target + place, data + start, size * sizeof(token_t))
            place += size


cdef inline int compare_query(const token_t* left, Py_ssize_t left_length,
                              const uint32_t* right, Py_ssize_t right_length) noexcept nogil:
    cdef Py_ssize_t i
    cdef Py_ssize_t shared = min(left_length, right_length)
    for i in range(shared):
        if left[i] != right[i]:
            return -1 if left[i] < right[i] else 1
    return (left_length > right_length) - (left_length < right_length)


def search_rows(const token_t[::1] tokens, const int64_t[::1] offsets, Py_ssize_t length,
                Py_ssize_t n_rows, const uint32_t[::1] queries, const int64_t[::1] query_offsets,
                bint exact, int64_t[::1] out):
    """Binary search in sorted rows: out[q] = number of rows smaller than query q.

    With `exact`, -1 where the row at that place is not equal to the query.
    """
    cdef Py_ssize_t q, low, high, middle, start, query_start, query_length
    cdef const token_t* data = NULL
    cdef const uint32_t* asked = NULL
    if tokens.shape[0]:
        data = &tokens[0]
    if queries.shape[0]:
        asked = &queries[0]
    cdef const int64_t* bounds = NULL
    if not length:
        bounds = &offsets[0]
    cdef bint found
    cdef int sign
    with nogil:
        for q in range(out.shape[0]):
            query_start = query_offsets[q]
            query_length = query_offsets[q + 1] - query_start
            low = 0
            high = n_rows
            found = False
            while low < high:
                middle = low + (high - low) // 2
                start = row_start(bounds, length, middle)
                sign = compare_query(data + start, row_start(bounds, length, middle + 1) - start,
                                     asked + query_start, query_length)
                if sign < 0:
                    low = middle + 1
                else:
                    high = middle
                    found |= sign == 0
            out[q] = low if found or not exact else -1


cdef inline bint is_separator(uint8_t byte) noexcept nogil:
    return byte == 32 or byte == 9 or byte == 13


def parse_lines(const uint8_t[::1] block, bint items, uint64_t limit, uint32_t[::1] tokens,
                int64_t[::1] ends, int64_t[::1] names):
    """Parses lines of decimal integers separated by blanks, tabs or single commas.

    `block` ends with a newline. Line i has tokens [ends[i], ends[i + 1]); with `items` its first
    column is block[names[2 * i] : names[2 * i + 1]]. Returns ``(lines, place)``: the lines parsed
    and where the first line that is not well-formed (or blank) starts, or -1.
    """
    cdef Py_ssize_t place = 0, start, stop, size = block.shape[0], count = 0, line = 0, name_end
    cdef uint64_t value
    cdef bint comma, good = True
    cdef uint8_t byte
    ends[0] = 0
    if size == 0:
        return 0, -1
    with nogil:
        while place < size:
            start = place
            stop = place
            while block[stop] != 10:
                stop += 1
            if items:
                name_end = start
                while name_end < stop and block[name_end] != 9:
                    name_end += 1
                if name_end == stop:
                    name_end = start
                    while name_end < stop and block[name_end] != 32 and block[name_end] != 44:
                        name_end += 1
                names[2 * line] = start
                names[2 * line + 1] = name_end
                if name_end == start or name_end == stop:
                    good = False
                    break
                place = name_end + 1
            comma = False
            while place < stop:
                byte = block[place]
                if is_separator(byte):
                    place += 1
                elif byte == 44:
                    if comma or count == ends[line]:
                        good = False
                        break
                    comma = True
                    place += 1
                elif 48 <= byte <= 57:
                    value = 0
                    while 48 <= block[place] <= 57:
                        value = value * 10 + (block[place] - 48)
                        if value > limit:
                            good = False
                            break
                        place += 1
                    byte = block[place]
                    if not good or not (is_separator(byte) or byte == 44 or byte == 10):
                        good = False
                        break
                    tokens[count] = <uint32_t>value
                    count += 1
                    comma = False
                else:
                    good = False
                    break
            if not good or comma or count == ends[line]:
                good = False
                break
            line += 1
            ends[line] = count
            place = stop + 1
    return line, (-1 if good else start)
