/* Marks: a select that looks at one word, for navigation, where one select waits for another.
 *
 * In a stretch of a bit-vector, mark j tells where one (or zero) number j << shift of the stretch
 * lies, and how many there are from it to the end of its word and of the next three.  There is a
 * mark of 64 bits for every 160 to 320 bits.  Where two marks lie far apart nevertheless, finer ones
 * may stand between them.  Marks are made when an index is loaded, and stand in no file.
 */
#ifndef SUCCINCT_MARKS_H
#define SUCCINCT_MARKS_H

#include "succinct/bits/rank_select.h"

#define MARK_SPACING 320    /* bits from mark to mark, at most, on average */
#define MARK_SHIFT_MAX 7    /* numbers within a mark are smaller than MARK_MANY */
#define MARK_MANY 128
#define MARK_FAR 2048       /* more bits between two marks are far */
#define FINER_BITS 3        /* of a far mark's `upto`, for the shift of the finer ones */

typedef struct {
    uint32_t at;    /* from the start of the stretch */
    uint32_t upto;  /* four counts of a byte each, MARK_MANY for more; or where finer marks are */
} mark_t;

typedef struct {
    const mark_t *mark; /* NULL in a stretch that is too long for them */
    uint64_t begin;     /* the stretch in the vector */
    uint64_t first;     /* ones (or zeros) of the vector before it */
    uint64_t shift;
    const mark_t *finer; /* NULL if there are none */
} marks_t;

/* x without its k lowest ones, which it has and more. */
typedef uint64_t (*bits_drop_t)(uint64_t x, uint64_t k);

INLINE uint64_t bits_drop(uint64_t x, uint64_t k) {
    return x & ~0ull << select64(x, (uint32_t)k);
}

/* The place of one (or zero) number k of a stretch; *next is that of number k + 1, which there must
 * be unless `next` is NULL. */
INLINE uint64_t marks_select(const bitvector_t *v, const marks_t *m, uint64_t k, int zeros,
                             uint64_t *next, bits_query_t select1, bits_query_t select0,
                             bits_drop_t drop) {
    const mark_t *mark = m->mark + (k >> m->shift);
    uint64_t flip = zeros ? ~0ull : 0, at, x, w, shift = m->shift, far;
    far = m->mark == NULL || mark[1].at - mark->at > MARK_FAR;
    if (far && m->finer) {
        uint64_t rest = k & ((1ull << shift) - 1);
        shift = mark->upto & ((1u << FINER_BITS) - 1);
        mark = m->finer + (mark->upto >> FINER_BITS) + (rest >> shift);
        if (shift == 0) {
            if (next) *next = m->begin + mark[1].at;
            return m->begin + mark->at;
        }
        far = mark[1].at - mark->at > MARK_FAR;
    }
    if (far) {
        at = zeros ? select0(v, m->first + k) : select1(v, m->first + k);
        if (next) *next = zeros ? bits_next_zero(v, at + 1) : bits_next_one(v, at + 1);
        return at;
    }
    uint32_t rest = (uint32_t)(k & ((1ull << shift) - 1)), upto = mark->upto;
    /* How many of the counts are at most `rest`: bit 7 of every byte of a subtraction. */
    uint32_t within = ((rest * 0x01010101u | 0x80808080u) - upto) & 0x80808080u;
    uint32_t passed = (uint32_t)__builtin_popcount(within);
    rest -= (uint64_t)upto << 8 >> 8 * passed & 0xff;
    at = m->begin + mark->at;
    w = (at >> 6) + passed;
    x = (v->words[w] ^ flip) & ~0ull << (passed ? 0 : at & 63);
    if (passed == 4)
        for (uint32_t here; rest >= (here = popcount64(x)); x = v->words[++w] ^ flip) rest -= here;
    x = drop(x, rest);
    at = w << 6 | (uint64_t)__builtin_ctzll(x);
    if (next == NULL) return at;
    x &= x - 1;
    while (x == 0) x = v->words[++w] ^ flip;
    *next = w << 6 | (uint64_t)__builtin_ctzll(x);
    return at;
}

INLINE void marks_prefetch(const marks_t *m, uint64_t k) {
    __builtin_prefetch(m->mark + (k >> m->shift));
}

/* Fetch the word that is looked at for number k, if its mark is at hand. */
INLINE void marks_prefetch_word(const bitvector_t *v, const marks_t *m, uint64_t k) {
    if (m->mark) __builtin_prefetch(v->words + ((m->begin + m->mark[k >> m->shift].at) >> 6));
}

/* The shift of the marks of `count` ones in a stretch of `length` bits. */
static inline uint64_t marks_shift(uint64_t length, uint64_t count) {
    uint64_t shift = 0;
    while (shift < MARK_SHIFT_MAX &&
           (double)length * (2 << shift) <= (double)MARK_SPACING * (double)count)
        shift++;
    return shift;
}

/* How many marks there are; none in a stretch that is too long. */
static inline uint64_t marks_size(uint64_t length, uint64_t count, uint64_t shift) {
    return length >> 32 ? 0 : ((count + (1ull << shift) - 1) >> shift) + 1;
}

/* Write the marks of the stretch [begin, begin + length). */
static inline void marks_fill(const bitvector_t *v, uint64_t begin, uint64_t length, int zeros,
                              uint64_t shift, mark_t *mark) {
    uint64_t flip = zeros ? ~0ull : 0, end = begin + length, last = v->length >> 6;
    uint64_t number = 0, next = 0;
    for (uint64_t w = begin >> 6; w << 6 < end; w++) {
        uint64_t x = v->words[w] ^ flip;
        if (w == begin >> 6) x &= ~0ull << (begin & 63);
        if (end - (w << 6) < 64) x &= (1ull << (end & 63)) - 1;
        uint64_t here = popcount64(x);
        while (next < number + here) {
            uint32_t at = select64(x, (uint32_t)(next - number)), upto = 0, sum = 0;
            for (int i = 0; i < 4; i++) {
                uint64_t y = w + i <= last ? v->words[w + i] ^ flip : ~0ull;
                sum += popcount64(i ? y : y & ~0ull << at);
                if (w + i > last || sum > MARK_MANY) sum = MARK_MANY;
                upto |= sum << 8 * i;
            }
            mark->at = (uint32_t)((w << 6) + at - begin);
            mark++->upto = upto;
            next += 1ull << shift;
        }
        number += here;
    }
    mark->at = (uint32_t)length;
    mark->upto = 0;
}

/* The finer marks of a stretch with `count` ones (or zeros), whose marks are filled and which is not
 * too long: says in far marks where they lie, and writes them unless `finer` is NULL; returns how
 * many. */
static inline uint64_t marks_refine(const bitvector_t *v, const marks_t *m, uint64_t count,
                                    int zeros, mark_t *mark, mark_t *finer) {
    uint64_t n = 0;
    for (uint64_t k = 0; k < count; k += 1ull << m->shift, mark++) {
        uint64_t length = mark[1].at - mark->at, here = count - k;
        if (length <= MARK_FAR) continue;
        if (here > 1ull << m->shift) here = 1ull << m->shift;
        uint64_t shift = marks_shift(length, here), size = marks_size(length, here, shift);
        if (finer) {
            marks_fill(v, m->begin + mark->at, length, zeros, shift, finer + n);
            for (uint64_t i = n; i < n + size; i++) finer[i].at += mark->at;
            mark->upto = (uint32_t)(n << FINER_BITS | shift);
        }
        n += size;
    }
    return n;
}

/* ---- Elias-Fano: value i is (select1(high, i) - i) << low.width | low[i] ---------------------- */

typedef struct {
    bitvector_t high;
    packed_t low;
    marks_t ones, zeros; /* of the whole of `high` */
} elias_fano_t;

#endif
