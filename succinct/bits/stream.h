/* Writing bits in ascending order, by several threads into the same words.
 *
 * A stream collects the bits of a word and writes it when the next one begins.  Streams that run
 * through disjoint ranges of bits can share words only where they begin and end: these are merged
 * atomically, all others are stored.  The words come zeroed.
 */
#ifndef SUCCINCT_STREAM_H
#define SUCCINCT_STREAM_H

#include "succinct/bits/rank_select.h"

typedef struct {
    uint64_t word, first, bits; /* the current word, the first one, the bits of the current one */
} stream_t;

static inline void stream_open(stream_t *s) {
    s->word = s->first = UINT64_MAX;
    s->bits = 0;
}

static inline void stream_close(stream_t *s, uint64_t *words) {
    if (s->bits) __atomic_fetch_or(words + s->word, s->bits, __ATOMIC_RELAXED);
    s->bits = 0;
}

static inline void stream_move(stream_t *s, uint64_t *words, uint64_t word) {
    if (s->word == s->first) {
        stream_close(s, words);
        if (s->first == UINT64_MAX) s->first = word;
    } else if (s->bits) {
        words[s->word] = s->bits;
        s->bits = 0;
    }
    s->word = word;
}

/* Write `width` <= 64 bits from bit address `at` on; `value` has no others. */
INLINE void stream_put(stream_t *s, uint64_t *words, uint64_t at, uint64_t width, uint64_t value) {
    uint64_t word = at >> 6, shift = at & 63;
    if (width == 0) return;
    if (word != s->word) stream_move(s, words, word);
    s->bits |= value << shift;
    if (shift + width > 64) {
        stream_move(s, words, word + 1);
        s->bits = value >> (64 - shift);
    }
}

INLINE void stream_set(stream_t *s, uint64_t *words, uint64_t at) { stream_put(s, words, at, 1, 1); }

#endif
