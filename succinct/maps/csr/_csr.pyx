# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=True, embedsignature.format=python
"""Navigation in a dense head and compressed sparse rows: the compiled part of
:class:`succinct.CsrMap`.

Arguments are arrays of the right type, checked by the caller; states are checked by `bad_state`.
The arrays are those of `succinct.maps.csr.lanes`.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from succinct._walker cimport Core
from succinct.bits.bitvector cimport (
    BitVector, bits_get, bits_rank1, bits_select1, popcount64,
)

import numpy as np

cdef extern from * nogil:
    """
    #define lowest_one(word) __builtin_ctzll(word)
    #define prefetch(address) __builtin_prefetch(address)
    """
    int lowest_one(uint64_t) noexcept
    void prefetch(const void *) noexcept

cdef uint64_t DEAD = 0xffffffffffffffff

# Columns of `dense`.
cdef enum:
    START, AT, WORDS, LOW

cdef enum:
    GROUP = 64  # sequences that walk side by side, so that their cache misses overlap


cdef struct Row:
    # The continuations of one state: entries [first, end), or children first + 0, 1, ... whose
    # tokens are the ones of `words` words of masks, counted from `low`.
    bint dense
    int64_t first, end, at, words, low


cdef class CsrCore(Core):
    """The arrays of the index, and the steps through them."""
    cdef readonly object masks, firsts, dense, offsets, entries, starts
    cdef readonly BitVector terminal
    cdef readonly uint64_t shift, n_states, first_row, first_leaf, keys_above
    cdef const uint64_t *mask_words
    cdef const uint32_t *first_of
    cdef const int64_t *level  # four columns a level
    cdef int64_t n_dense, n_entries, n_levels
    cdef const uint32_t *offsets32  # one of the two
    cdef const uint64_t *offsets64
    cdef const uint64_t *entry
    cdef const int64_t *level_start  # first state of every level, and the number of all
    cdef uint64_t token_mask

    def __init__(self, masks, firsts, dense, offsets, entries, shift, BitVector terminal,
                 starts, keys_above):
        cdef const int64_t[::1] levels = starts
        cdef const uint64_t[::1] words
        cdef const uint32_t[::1] narrow
        cdef const int64_t[:, ::1] rows
        self.masks, self.firsts, self.dense = masks, firsts, dense
        self.offsets, self.entries, self.terminal = offsets, entries, terminal
        self.shift, self.keys_above = shift, keys_above
        self.token_mask = (<uint64_t>1 << self.shift) - 1
        for array in (masks, firsts, dense, offsets, entries, starts):
            array.flags.writeable = False
        words = masks
        self.mask_words = &words[0] if words.shape[0] else NULL
        narrow = firsts
        self.first_of = &narrow[0] if narrow.shape[0] else NULL
        rows = dense
        self.n_dense = rows.shape[0]
        self.level = &rows[0, 0] if rows.shape[0] else NULL
        if offsets.dtype.itemsize == 4:
            narrow = offsets
            self.offsets32 = &narrow[0]
        else:
            words = offsets
            self.offsets64 = &words[0]
        words = entries
        self.n_entries = words.shape[0]
        self.entry = &words[0] if words.shape[0] else NULL
        self.starts = starts
        self.level_start = &levels[0]
        self.n_levels = levels.shape[0] - 2
        self.first_row = levels[self.n_dense]
        self.first_leaf = levels[self.n_levels]
        self.n_states = levels[self.n_levels + 1]

    cdef inline int64_t offset(self, uint64_t row) noexcept nogil:
        cdef uint64_t at = self.offsets64[row] if self.offsets32 == NULL else self.offsets32[row]
        return min(at, <uint64_t>self.n_entries)

    cdef inline uint64_t state_of(self, uint64_t entry) noexcept nogil:
        cdef uint64_t state = entry >> self.shift
        return state if state < self.n_states else DEAD

    cdef inline Row row(self, uint64_t state) noexcept nogil:
        cdef Row r
        cdef const int64_t *level
        r.dense = False
        r.first = r.end = r.at = r.words = r.low = 0
        if state >= self.first_leaf:
            return r
        if state >= self.first_row:
            r.first = self.offset(state - self.first_row)
            r.end = max(r.first, self.offset(state - self.first_row + 1))
            return r
        level = self.level + 4 * (self.n_dense - 1)
        while <uint64_t>level[START] > state:
            level -= 4
        r.dense = True
        r.words = level[WORDS]
        r.at = level[AT] + (<int64_t>state - level[START]) * r.words
        r.low = level[LOW]
        r.first = self.first_of[r.at]
        r.end = self.first_of[r.at + r.words]
        return r

    cdef inline uint64_t pick(self, const Row *r, int64_t token) noexcept nogil:
        cdef int64_t begin = r.first, end = r.end, middle
        cdef uint64_t word, bit, entry
        if r.dense:
            token -= r.low
            if token < 0 or token >= r.words << 6:
                return DEAD
            word = self.mask_words[r.at + (token >> 6)]
            bit = <uint64_t>1 << (token & 63)
            if not word & bit:
                return DEAD
            return self.first_of[r.at + (token >> 6)] + popcount64(word & (bit - 1))
        while begin < end:
            middle = (begin + end) >> 1
            entry = self.entry[middle]
            if <int64_t>(entry & self.token_mask) < token:
                begin = middle + 1
            else:
                end = middle
        if begin < r.end and <int64_t>(self.entry[begin] & self.token_mask) == token:
            return self.state_of(self.entry[begin])
        return DEAD

    cdef inline uint64_t child(self, uint64_t state, int64_t token) noexcept nogil:
        cdef Row r = self.row(state)
        return self.pick(&r, token)

    cdef inline void fill(self, const Row *r, uint32_t *tokens, uint64_t *states) noexcept nogil:
        cdef int64_t i, at = r.at, low = r.low
        cdef uint64_t word
        if not r.dense:
            for i in range(r.end - r.first):
                tokens[i] = <uint32_t>(self.entry[r.first + i] & self.token_mask)
                states[i] = self.state_of(self.entry[r.first + i])
            return
        if r.first == r.end:
            return
        word = self.mask_words[at]
        for i in range(r.end - r.first):
            while word == 0:
                at += 1
                low += 64
                word = self.mask_words[at]
            tokens[i] = <uint32_t>(low + lowest_one(word))
            states[i] = r.first + i
            word &= word - 1

    cdef bint is_state(self, uint64_t state) noexcept nogil:
        return state < self.n_states or state == DEAD

    cdef uint64_t step(self, uint64_t state, uint64_t token) noexcept nogil:
        return self.child(state, token)

    cdef bint ends_key(self, uint64_t state) noexcept nogil:
        if state >= self.first_leaf:
            return state != DEAD
        return self.keys_above and bits_get(&self.terminal.v, state)

    cdef int64_t key_number(self, uint64_t state) noexcept nogil:
        if not self.ends_key(state):
            return -1
        if state >= self.first_leaf:
            return self.keys_above + state - self.first_leaf
        return bits_rank1(&self.terminal.v, state)

    cdef int64_t degree(self, uint64_t state) noexcept nogil:
        cdef Row r = self.row(state)
        if not r.dense:
            # Whoever counts lists next.
            prefetch(self.entry + r.first)
        return r.end - r.first

    cdef void list_children(self, uint64_t state, uint32_t *tokens,
                            uint64_t *children) noexcept nogil:
        cdef Row r = self.row(state)
        self.fill(&r, tokens, children)

    cdef inline uint64_t state_of_key(self, uint64_t number) noexcept nogil:
        if number >= self.keys_above:
            return self.first_leaf + number - self.keys_above
        return bits_select1(&self.terminal.v, number)

    cdef inline int64_t depth(self, uint64_t state) noexcept nogil:
        """The length of the prefix of a state below n_states."""
        cdef int64_t low = 0, high = self.n_levels, middle
        while low < high:
            middle = (low + high + 1) >> 1
            if <uint64_t>self.level_start[middle] <= state:
                low = middle
            else:
                high = middle - 1
        return low

    cdef inline uint64_t parent(self, uint64_t state, int64_t depth, int64_t *token) noexcept nogil:
        """The state one token shorter of one of length `depth` > 0; the token goes to *token.

        It is of length depth - 1 whatever a damaged file holds.
        """
        cdef int64_t low, high, middle, e
        cdef const int64_t *level = self.level + 4 * (depth - 1)
        cdef uint64_t word
        if depth <= self.n_dense:
            low = level[AT]
            high = low + (self.level_start[depth] - self.level_start[depth - 1]) * level[WORDS] - 1
            while low < high:  # the last word that begins with this state or one before
                middle = (low + high + 1) >> 1
                if self.first_of[middle] <= state:
                    low = middle
                else:
                    high = middle - 1
            word = self.mask_words[low]
            for e in range(<int64_t>state - self.first_of[low]):
                word &= word - 1
            e = low - level[AT]
            token[0] = level[LOW] + ((e % level[WORDS]) << 6) + lowest_one(word)
            return level[START] + e // level[WORDS]
        e = state - self.level_start[self.n_dense + 1]
        token[0] = self.entry[e] & self.token_mask
        low = self.level_start[depth - 1] - self.first_row
        high = self.level_start[depth] - self.first_row - 1
        while low < high:  # the last row that begins with this entry or one before
            middle = (low + high + 1) >> 1
            if self.offset(middle) <= e:
                low = middle
            else:
                high = middle - 1
        return self.first_row + low

    cdef int64_t key_length(self, int64_t number) noexcept nogil:
        return self.depth(self.state_of_key(number))

    cdef void read_key(self, int64_t number, uint32_t *end) noexcept nogil:
        cdef uint64_t state = self.state_of_key(number)
        cdef int64_t depth, token = 0
        for depth in range(self.depth(state), 0, -1):
            end -= 1
            state = self.parent(state, depth, &token)
            end[0] = <uint32_t>token

    # ---- arrays ------------------------------------------------------------------------------

    def advance(self, const uint64_t[::1] states, const uint32_t[::1] tokens, uint64_t[::1] out):
        """The state behind each state and token."""
        cdef Py_ssize_t i
        with nogil:
            for i in range(states.shape[0]):
                out[i] = self.child(states[i], tokens[i])


    cdef inline void look(self, uint64_t state) noexcept nogil:
        """Fetch what tells where the continuations of a state are."""
        if self.first_row <= state < self.first_leaf:
            state -= self.first_row
            if self.offsets32 == NULL:
                prefetch(self.offsets64 + state)
            else:
                prefetch(self.offsets32 + state)

    cdef void lookup_group(self, const uint32_t[::1] tokens, const int64_t[::1] offsets,
                           int64_t[::1] out, Py_ssize_t begin, Py_ssize_t n) noexcept nogil:
        cdef Py_ssize_t i, k, alive = 0, kept
        cdef Py_ssize_t order[GROUP]
        cdef uint64_t state[GROUP]
        cdef Row row[GROUP]
        cdef int64_t depth = 0
        for i in range(n):
            out[begin + i] = -1
            state[i] = 0
            if offsets[begin + i] < offsets[begin + i + 1]:
                order[alive] = i
                alive += 1
        while alive:
            for k in range(alive):
                row[k] = self.row(state[order[k]])
                if not row[k].dense and row[k].first < row[k].end:
                    prefetch(self.entry + ((row[k].first + row[k].end) >> 1))
            kept = 0
            for k in range(alive):
                i = order[k]
                state[i] = self.pick(&row[k], tokens[offsets[begin + i] + depth])
                if offsets[begin + i] + depth + 1 == offsets[begin + i + 1]:
                    out[begin + i] = self.key_number(state[i])
                elif state[i] != DEAD:
                    self.look(state[i])
                    order[kept] = i
                    kept += 1
            alive = kept
            depth += 1

    def lookup(self, const uint32_t[::1] tokens, const int64_t[::1] offsets, int64_t[::1] out):
        """The number of each sequence, or -1."""
        cdef Py_ssize_t begin = 0, n = out.shape[0]
        with nogil:
            while begin < n:
                self.lookup_group(tokens, offsets, out, begin, min(<Py_ssize_t>GROUP, n - begin))
                begin += GROUP

    def allowed_mask(self, const uint64_t[::1] states, uint32_t[:, ::1] mask, int64_t vocab_size):
        """Set bit t % 32 of word t // 32 of row i for every continuation t of state i."""
        cdef Py_ssize_t i
        cdef int64_t k, low, word, n_words = mask.shape[1]
        cdef uint64_t bits, token
        cdef Row r
        with nogil:
            for i in range(states.shape[0]):
                r = self.row(states[i])
                if r.dense:
                    for k in range(r.words):  # rows begin with a multiple of 64 tokens
                        bits = self.mask_words[r.at + k]
                        word = (r.low >> 5) + 2 * k
                        if word < n_words:
                            mask[i, word] = <uint32_t>bits
                        if word + 1 < n_words:
                            mask[i, word + 1] = <uint32_t>(bits >> 32)
                    continue
                for k in range(r.first, r.end):
                    token = self.entry[k] & self.token_mask
                    if token < <uint64_t>vocab_size:
                        mask[i, token >> 5] |= <uint32_t>1 << (token & 31)

    def key_lengths(self, const int64_t[::1] numbers, int64_t[::1] out):
        """The length of each key. No key can be so damaged that it has none: always -1."""
        cdef Py_ssize_t i
        with nogil:
            for i in range(numbers.shape[0]):
                out[i] = self.depth(self.state_of_key(numbers[i]))
        return -1

    def key_tokens(self, const int64_t[::1] numbers, const int64_t[::1] ends, uint32_t[::1] out):
        """Write the tokens of key i before ends[i]; the lengths are those of `key_lengths`."""
        cdef Py_ssize_t i
        cdef uint32_t *base = &out[0]
        with nogil:
            for i in range(numbers.shape[0]):
                self.read_key(numbers[i], base + ends[i])

    # ---- the structure itself ----------------------------------------------------------------

    def largest_rows(self, int64_t[::1] out):
        """The largest number of continuations of the states of each level but the last."""
        cdef int64_t depth, state
        cdef Row r
        with nogil:
            for depth in range(self.n_levels):
                out[depth] = 0
                for state in range(self.level_start[depth], self.level_start[depth + 1]):
                    r = self.row(state)
                    out[depth] = max(out[depth], r.end - r.first)

    def fault(self, int64_t[::1] prefixes, const uint32_t[::1] low, const uint32_t[::1] high):
        """What is wrong with the structure, or None. O(n).

        Continuations must follow one another without gaps, tokens ascend among those of a state
        and span the range of their step, the next state be that of the entry's own place, and a
        prefix without continuations be a key. The prefixes of every length are counted into
        `prefixes`, which comes zeroed.
        """
        cdef int64_t depth, state, i, before, token, least, most, found = 0
        cdef uint64_t child = 1
        cdef Row r
        cdef uint32_t[::1] tokens = np.empty(0, np.uint32)
        cdef uint64_t[::1] states = np.empty(0, np.uint64)
        prefixes[0] = 1
        for depth in range(self.n_levels):
            least, most = 2**32, -1
            for state in range(self.level_start[depth], self.level_start[depth + 1]):
                r = self.row(state)
                if r.first == r.end:
                    if not self.ends_key(state):
                        return f"state {state} is no key and has no continuation"
                    continue
                if r.end - r.first > tokens.shape[0]:
                    tokens = np.empty(2 * (r.end - r.first), np.uint32)
                    states = np.empty(2 * (r.end - r.first), np.uint64)
                if not r.dense and r.first != <int64_t>(child - self.level_start[self.n_dense + 1]):
                    return f"the continuations of state {state} do not begin where the last end"
                self.fill(&r, &tokens[0], &states[0])
                before = -1
                for i in range(r.end - r.first):
                    token = tokens[i]
                    if token <= before:
                        return f"the tokens behind state {state} do not ascend"
                    if states[i] != child:
                        return f"the token {token} behind state {state} leads astray"
                    before = token
                    child += 1
                least, most = min(least, <int64_t>tokens[0]), max(most, before)
                prefixes[depth + 1] += r.end - r.first
            if prefixes[depth + 1] and (least != low[depth] or most + 1 != high[depth]):
                return f"the tokens of step {depth} do not span {low[depth]}..{high[depth] - 1}"
        for state in range(<int64_t>self.first_leaf):
            found += self.ends_key(state)
        if found != <int64_t>self.keys_above:
            return f"{found} keys are above the last level, expected {self.keys_above}"
        return None
