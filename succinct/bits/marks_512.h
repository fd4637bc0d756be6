/* Selects by marks for AVX-512, eight at once, for groups of GROUP queries; who includes this says
 * how many.
 *
 * Whichever queries are out of the ordinary are taken off the lanes, and left to marks_select.
 */
#ifndef SUCCINCT_MARKS_512_H
#define SUCCINCT_MARKS_512_H

#include "succinct/bits/isa.h"
#include "succinct/bits/marks.h"

#ifdef X86

/* Elements of `at` where there are `lanes`, 0 elsewhere. */
V4_INLINE __m512i gather_512(const uint64_t *at, __m512i i, __mmask8 lanes) {
    return _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), lanes, i, at, 8);
}

V4_INLINE __m512i ctz_512(__m512i x) {
    return _mm512_popcnt_epi64(_mm512_andnot_si512(x, _mm512_sub_epi64(x, set_512(1))));
}

/* What begins at a bit, of which 57 bits are sure to be there. */
V4_INLINE __m512i from_bit_512(const uint64_t *words, __m512i bit, __mmask8 lanes) {
    __m512i x = _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), lanes,
                                            _mm512_srli_epi64(bit, 3), words, 1);
    return _mm512_srlv_epi64(x, _mm512_and_si512(bit, set_512(7)));
}

/* Where *x is 0, go on from word *w to the first that is not.  Lanes where it is far are taken off
 * *lanes. */
V4_INLINE void next_word_512(const bitvector_t *v, uint64_t flip, __m512i *w, __m512i *x,
                             __mmask8 *lanes) {
    __mmask8 more;
    for (int far = 0; (more = _mm512_mask_testn_epi64_mask(*lanes, *x, *x)); far++) {
        if (far == 4) {
            *lanes &= (__mmask8)~more;
            return;
        }
        *w = _mm512_mask_add_epi64(*w, more, *w, set_512(1));
        *x = _mm512_mask_xor_epi64(*x, more, gather_512(v->words, *w, more), set_512(flip));
    }
}

/* The words where ones (or zeros) number k are to be found, without what comes before their marks,
 * and how many come before them there; as marks_select, as far as the mark counts. */
V4_INLINE void marked_512(const bitvector_t *v, const marks_t *m, __m512i k, uint64_t flip,
                          __m512i *w, __m512i *x, __m512i *rest, __mmask8 lanes) {
    __m128i shift = _mm_cvtsi64_si128((long long)m->shift);
    __m512i mark = gather_512((const uint64_t *)m->mark, _mm512_srl_epi64(k, shift), lanes);
    __m512i at = _mm512_and_si512(mark, set_512(UINT32_MAX)), upto = _mm512_srli_epi64(mark, 32);
    at = _mm512_add_epi64(at, set_512(m->begin));
    __m512i tops = set_512(0x80808080), left = _mm512_and_si512(k, set_512((1ull << m->shift) - 1));
    __m512i within = _mm512_or_si512(_mm512_mul_epu32(left, set_512(0x01010101)), tops);
    within = _mm512_and_si512(_mm512_sub_epi64(within, upto), tops);
    __m512i passed = _mm512_popcnt_epi64(within);
    __mmask8 first = _mm512_testn_epi64_mask(passed, passed);
    upto = _mm512_srlv_epi64(_mm512_slli_epi64(upto, 8), _mm512_slli_epi64(passed, 3));
    *rest = _mm512_sub_epi64(left, _mm512_and_si512(upto, set_512(0xff)));
    *w = _mm512_add_epi64(_mm512_srli_epi64(at, 6), passed);
    *x = _mm512_xor_si512(gather_512(v->words, *w, lanes), set_512(flip));
    at = _mm512_sllv_epi64(set_512(~0ull), _mm512_and_si512(at, set_512(63)));
    *x = _mm512_mask_and_epi64(*x, first, *x, at);
}

/* Go on behind the words that the marks count. */
V4_INLINE void beyond_marks_512(const bitvector_t *v, uint64_t flip, __m512i *w, __m512i *x,
                                __m512i *rest, __mmask8 *lanes) {
    __m512i left = *rest, count;
    __mmask8 more;
    for (int far = 0;; far++) {
        count = _mm512_popcnt_epi64(*x);
        more = _mm512_mask_cmple_epu64_mask(*lanes, count, left);
        if (more == 0) break;
        if (far == 4) {
            *lanes &= (__mmask8)~more;
            break;
        }
        left = _mm512_mask_sub_epi64(left, more, left, count);
        *w = _mm512_mask_add_epi64(*w, more, *w, set_512(1));
        *x = _mm512_mask_xor_epi64(*x, more, gather_512(v->words, *w, more), set_512(flip));
    }
    *rest = _mm512_maskz_mov_epi64(*lanes, left);
}

V4_INLINE void marks_512(const bitvector_t *v, const marks_t *m, __m512i k, uint64_t flip,
                         __m512i *w, __m512i *x, __m512i *rest, __mmask8 *lanes) {
    marked_512(v, m, k, flip, w, x, rest, *lanes);
    beyond_marks_512(v, flip, w, x, rest, lanes);
}

/* What is known of a group of queries between one look at memory and the next. */
typedef struct {
    uint64_t w[GROUP], x[GROUP], rest[GROUP];
    __mmask8 lanes[GROUP / 8];
} group_512_t;

/* Take off the ones before those that n queries look for: PDEP is scalar. */
V4_INLINE void drop_512(group_512_t *g, size_t n) {
    for (size_t i = 0; i < n; i++) g->x[i] = bits_drop_v3(g->x[i], g->rest[i]);
}

#endif

#endif
