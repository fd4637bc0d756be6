/* Writing rows of Golomb-Rice codes; see rice.h. */
#ifndef SUCCINCT_RICE_BUILD_H
#define SUCCINCT_RICE_BUILD_H

#include "succinct/bits/stream.h"
#include "succinct/maps/steps.h"

/* Bits of the code of a row's length. */
INLINE uint64_t rice_length_size(uint64_t length, uint64_t parameter) {
    return 2 * bit_length64(((length - 1) >> parameter) + 1) - 1 + parameter;
}

/* Of a row of n possible tokens, ascending, those that are coded: their number, and *tokens points
 * to them.  `room` is for as many tokens as the row has. */
INLINE uint64_t rice_choose(const uint32_t **tokens, uint64_t length, uint64_t n, uint32_t *room) {
    uint64_t count = 0, token = 0;
    if (2 * length <= n) return length;
    for (uint64_t i = 0; i <= length; i++, token++)
        for (uint64_t end = i < length ? (*tokens)[i] : n; token < end; token++)
            room[count++] = (uint32_t)token;
    *tokens = room;
    return count;
}

/* Bits of coded tokens. */
INLINE uint64_t rice_size(const uint32_t *tokens, uint64_t count, uint64_t n) {
    if (count < 2) return count * bit_length64(n - 1);
    uint64_t k = rice_parameter(n, count), size = count * (k + 1), next = 0;
    for (uint64_t i = 0; i < count; i++) {
        size += (tokens[i] - next) >> k;
        next = (uint64_t)tokens[i] + 1;
    }
    return size;
}

/* Write the length of a row and its coded tokens to `at`; returns where they end. */
INLINE uint64_t rice_write(const step_t *s, stream_t *to, uint64_t *values, uint64_t at,
                           uint64_t length, const uint32_t *tokens, uint64_t count) {
    uint64_t x = ((length - 1) >> s->width) + 1, more = bit_length64(x) - 1, k, next = 0;
    stream_put(to, values, at + more, 1, 1);
    at += more + 1;
    stream_put(to, values, at, more, x - (1ull << more));
    at += more;
    stream_put(to, values, at, s->width, (length - 1) & ((1ull << s->width) - 1));
    at += s->width;
    if (count < 2) {
        k = count * bit_length64(s->range - 1);
        if (count) stream_put(to, values, at, k, tokens[0]);
        return at + k;
    }
    k = rice_parameter(s->range, count);
    for (uint64_t i = 0; i < count; i++, at += k) {
        stream_put(to, values, at, k, (tokens[i] - next) & ((1ull << k) - 1));
        next = (uint64_t)tokens[i] + 1;
    }
    next = 0;
    for (uint64_t i = 0; i < count; i++, at++) {
        at += (tokens[i] - next) >> k;
        stream_put(to, values, at, 1, 1);
        next = (uint64_t)tokens[i] + 1;
    }
    return at;
}

#endif
