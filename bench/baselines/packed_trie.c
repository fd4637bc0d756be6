// A trie level by level: tokens in as few bits as their range needs, a bit for each first sibling,
// one for each node with continuations and one for each key. The first level is a bitmap of its
// tokens. Lookups one after another, and in groups that go down a level together.
#include <stdlib.h>
#include <string.h>

#include "rank_select.h"

enum { GROUP = 64, SCAN_LABELS = 8 };
#define NONE UINT64_MAX

typedef struct {
  uint64_t *words, length, count;
  uint32_t *counts, *samples;
} bits_t;

typedef struct {
  bits_t first, inner, final;
  uint64_t *labels, width, low, nodes, key_base;
} level_t;

typedef struct {
  bits_t present; // by token, in the first level
  level_t *level;
  uint64_t depth;
} trie_t;

static bits_t new_bits(uint64_t length) {
  bits_t b = {NULL, length, 0, NULL, NULL};
  uint64_t bytes = ((length >> BLOCK_SHIFT) + 1) * 64 + 64;
  b.words = aligned_alloc(64, bytes);
  memset(b.words, 0, bytes);
  return b;
}

static void set_bit(bits_t *b, uint64_t i) { b->words[i >> 6] |= 1ull << (i & 63); }
static int get_bit(const bits_t *b, uint64_t i) { return (int)(b->words[i >> 6] >> (i & 63) & 1); }

static void finish(bits_t *b) {
  uint64_t blocks = (b->length >> BLOCK_SHIFT) + 1, next = 0, samples = 0;
  b->counts = malloc(4 * (blocks + 17));
  b->samples = malloc(4 * (b->length / 1024 + 3));
  for (uint64_t i = 0; i < blocks; i++) {
    b->counts[i] = (uint32_t)b->count;
    for (int j = 0; j < 8; j++) b->count += ones(b->words[8 * i + j]);
    for (; next < b->count; next += 1 << SAMPLE_SHIFT) b->samples[samples++] = (uint32_t)i;
  }
  for (int j = 0; j < 17; j++) b->counts[blocks + j] = UINT32_MAX;
  b->samples[samples] = (uint32_t)(blocks - 1);
}

static void drop(bits_t *b) {
  free(b->words);
  free(b->counts);
  free(b->samples);
}

static uint64_t rank_of(const bits_t *b, uint64_t i) { return rank(b->words, b->counts, i); }

static uint64_t bytes_of(const bits_t *b, int with_select) {
  uint64_t bits = b->length + 32 * ((b->length + 511) / 512);
  return (with_select ? bits + 32 * (b->count / 1024 + 2) : bits) / 8;
}

// The first one behind bit i, or the length.
static uint64_t next_one(const bits_t *b, uint64_t i) {
  uint64_t w = ++i >> 6, x = b->words[w] >> (i & 63);
  if (x) return i + (uint64_t)__builtin_ctzll(x);
  while (++w << 6 < b->length)
    if (b->words[w]) return (w << 6) + (uint64_t)__builtin_ctzll(b->words[w]);
  return b->length;
}

static uint64_t label(const level_t *l, uint64_t i) {
  uint64_t x, bit = i * l->width;
  memcpy(&x, (const char *)l->labels + (bit >> 3), 8);
  return x >> (bit & 7) & ((1ull << l->width) - 1);
}

static void put_label(level_t *l, uint64_t i, uint64_t value) {
  uint64_t bit = i * l->width, shift = bit & 63;
  l->labels[bit >> 6] |= value << shift;
  if (shift + l->width > 64) l->labels[(bit >> 6) + 1] |= value >> (64 - shift);
}

// Build from the sorted, distinct keys tokens[offsets[i]:offsets[i + 1]].
trie_t *packed_build(const uint32_t *tokens, const int64_t *offsets, int64_t n, int64_t depth) {
  trie_t *t = calloc(1, sizeof *t);
  uint64_t *shared = calloc((size_t)n + 1, 8), keys = 0; // tokens in common with the key before
  t->depth = (uint64_t)depth;
  t->level = calloc((size_t)depth, sizeof *t->level);
  for (int64_t i = 1; i < n; i++) {
    const uint32_t *a = tokens + offsets[i - 1], *b = tokens + offsets[i];
    uint64_t a_length = (uint64_t)(offsets[i] - offsets[i - 1]);
    uint64_t length = (uint64_t)(offsets[i + 1] - offsets[i]);
    while (shared[i] < a_length && shared[i] < length && a[shared[i]] == b[shared[i]]) shared[i]++;
  }
  for (uint64_t d = 0; d < t->depth; d++) {
    level_t *l = t->level + d;
    uint64_t high = 0, node = 0;
    l->low = UINT32_MAX;
    for (int64_t i = 0; i < n; i++) {
      if ((uint64_t)(offsets[i + 1] - offsets[i]) <= d || (i && shared[i] > d)) continue;
      uint64_t token = tokens[(uint64_t)offsets[i] + d];
      l->nodes++;
      if (token < l->low) l->low = token;
      if (token > high) high = token;
    }
    for (l->width = 1; (high - l->low) >> l->width;) l->width++;
    l->labels = calloc(l->nodes * l->width / 64 + 2, 8);
    l->first = new_bits(l->nodes);
    l->inner = new_bits(l->nodes);
    l->final = new_bits(l->nodes);
    if (d == 0) t->present = new_bits(high - l->low + 1);
    for (int64_t i = 0; i < n; i++) {
      uint64_t length = (uint64_t)(offsets[i + 1] - offsets[i]);
      if (length <= d || (i && shared[i] > d)) continue;
      uint64_t token = tokens[(uint64_t)offsets[i] + d] - l->low;
      int follows = i && shared[i] == d && (uint64_t)(offsets[i] - offsets[i - 1]) > d;
      put_label(l, node, token);
      if (d == 0) set_bit(&t->present, token);
      if (!follows || node == 0) set_bit(&l->first, node);
      if (length > d + 1 || shared[i + 1] > d) set_bit(&l->inner, node);
      if (length == d + 1) set_bit(&l->final, node);
      node++;
    }
    finish(&l->first);
    finish(&l->inner);
    finish(&l->final);
    l->key_base = keys;
    keys += l->final.count;
  }
  finish(&t->present);
  free(shared);
  return t;
}

void packed_free(trie_t *t) {
  for (uint64_t d = 0; d < t->depth; d++) {
    drop(&t->level[d].first);
    drop(&t->level[d].inner);
    drop(&t->level[d].final);
    free(t->level[d].labels);
  }
  drop(&t->present);
  free(t->level);
  free(t);
}

int64_t packed_bytes(const trie_t *t) {
  uint64_t bytes = bytes_of(&t->present, 0);
  for (uint64_t d = 0; d < t->depth; d++) {
    const level_t *l = t->level + d;
    if (d) bytes += l->nodes * l->width / 8 + bytes_of(&l->first, 1);
    if (l->inner.count && l->inner.count < l->nodes) bytes += bytes_of(&l->inner, 0);
    if (l->final.count && l->final.count < l->nodes) bytes += bytes_of(&l->final, 0);
  }
  return (int64_t)bytes;
}

static uint64_t root_child(const trie_t *t, uint64_t token) {
  token -= t->level->low;
  if (token >= t->present.length || !get_bit(&t->present, token)) return NONE;
  return rank_of(&t->present, token);
}

// The first continuation of a node, in the level below; or NONE.
static uint64_t first_child(const level_t *l, uint64_t node) {
  uint64_t row = node;
  if (l->inner.count < l->nodes) {
    if (!get_bit(&l->inner, node)) return NONE;
    row = rank_of(&l->inner, node);
  }
  return select_bit(l[1].first.words, l[1].first.counts, l[1].first.samples, row, 0);
}

static uint64_t among(const level_t *l, uint64_t first, uint64_t token) {
  uint64_t end = next_one(&l->first, first), z = token - l->low;
  while (end - first > SCAN_LABELS) {
    uint64_t middle = (first + end) >> 1;
    if (label(l, middle) <= z) first = middle;
    else end = middle;
  }
  for (; first < end; first++)
    if (label(l, first) == z) return first;
  return NONE;
}

static int64_t number(const level_t *l, uint64_t node) {
  if (node == NONE || !get_bit(&l->final, node)) return -1;
  if (l->final.count < l->nodes) node = rank_of(&l->final, node);
  return (int64_t)(l->key_base + node);
}

void packed_one_by_one(const trie_t *t, const uint32_t *tokens, const int64_t *offsets,
                       int64_t *out, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    const uint32_t *key = tokens + offsets[i];
    uint64_t length = (uint64_t)(offsets[i + 1] - offsets[i]), node = NONE;
    if (length && length <= t->depth) node = root_child(t, key[0]);
    for (uint64_t d = 1; d < length && node != NONE; d++) {
      node = first_child(t->level + d - 1, node);
      if (node != NONE) node = among(t->level + d, node, key[d]);
    }
    out[i] = node == NONE ? -1 : number(t->level + length - 1, node);
  }
}

void packed_batch(const trie_t *t, const uint32_t *tokens, const int64_t *offsets, int64_t *out,
                  int64_t n) {
  for (int64_t start = 0; start < n; start += GROUP) {
    int64_t m = n - start < GROUP ? n - start : GROUP;
    const int64_t *at = offsets + start;
    uint64_t node[GROUP], longest = 0;
    for (int64_t i = 0; i < m; i++) {
      uint64_t length = (uint64_t)(at[i + 1] - at[i]);
      node[i] = length && length <= t->depth ? root_child(t, tokens[at[i]]) : NONE;
      if (node[i] != NONE && length > longest) longest = length;
    }
    for (uint64_t d = 1; d < longest; d++) {
      const level_t *l = t->level + d;
      for (int64_t i = 0; i < m; i++) {
        if (node[i] == NONE || (uint64_t)(at[i + 1] - at[i]) <= d) continue;
        node[i] = first_child(l - 1, node[i]);
        if (node[i] == NONE) continue;
        __builtin_prefetch((const char *)l->labels + (node[i] * l->width >> 3));
      }
      for (int64_t i = 0; i < m; i++)
        if (node[i] != NONE && (uint64_t)(at[i + 1] - at[i]) > d)
          node[i] = among(l, node[i], tokens[(uint64_t)at[i] + d]);
    }
    for (int64_t i = 0; i < m; i++)
      out[start + i] = node[i] == NONE ? -1 : number(t->level + (at[i + 1] - at[i]) - 1, node[i]);
  }
}
