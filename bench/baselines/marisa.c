// Beam search over proposals on tries whose nodes have slots of 32 bits, as FlashTrie
// (arXiv:2607.10044) describes the systems it is compared with:
//
//   opt_search  no tails, no cache; the node of a beam is kept; a pool of workers shares the beams
//               of a step; how a beam's children are matched with the proposals is a choice; the
//               best beams are in one bounded heap
//   int_search  tails and a cache of transitions; each beam and proposal is looked up twice from
//               the root; all candidates are kept and partially sorted; one thread
//   free_search no trie: every proposal that a filter of its position lets pass
//
// Scores, thresholds and ties are those of the library, so that the results are comparable.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rank_select.h"

struct bits {
  const uint64_t *words;
  const uint32_t *counts, *samples1, *samples0;
};

struct cached {
  uint32_t parent, label, child;
};

struct trie {
  struct bits topology, terminal, link, tail_end;
  const uint32_t *slots;  // label, or for a link node the place of its first token in the tail
  const uint32_t *tail;
  struct cached *cache;
  int64_t n_nodes, cache_mask, has_links;
};

struct query {
  const uint32_t *tokens;   // [T][K], a step's in any order
  const float *logprobs;    // [T][K]
  const double *factors;    // [T + 1]
  int64_t n_steps, n_proposals, width, max_results;
  float min_token, min_sum;
};

struct answer {
  double *scores;
  float *sums;
  int64_t *numbers, *lengths;
  uint32_t *tokens;  // [max_results][T]
  double phases[4];  // seconds: proposals, expansion and validation, selection, results
};

static inline int get_bit(const struct bits *b, uint64_t i) {
  return b->words[i >> 6] >> (i & 63) & 1;
}

static inline uint64_t next_zero(const struct bits *b, uint64_t i) {
  uint64_t at = i >> 6, word = ~b->words[at] & (~0ull << (i & 63));
  while (!word) word = ~b->words[++at];
  return (at << 6) + (uint64_t)__builtin_ctzll(word);
}

static inline uint64_t next_one(const struct bits *b, uint64_t i) {
  uint64_t at = i >> 6, word = b->words[at] & (~0ull << (i & 63));
  while (!word) word = b->words[++at];
  return (at << 6) + (uint64_t)__builtin_ctzll(word);
}

// Children are consecutive nodes; the degree is read off by a scan for the zero that ends them.
static inline int64_t children(const struct trie *t, uint32_t node, uint32_t *first) {
  const struct bits *b = &t->topology;
  uint64_t zero = select_bit(b->words, b->counts, b->samples0, node, ~0ull);
  *first = (uint32_t)(zero - node);
  return (int64_t)(next_zero(b, zero + 1) - zero - 1);
}

static inline uint64_t key_number(const struct trie *t, uint32_t node) {
  return rank(t->terminal.words, t->terminal.counts, node);
}

// Unsigned integers that grow with a score; -0.0 and 0.0 give the same.
static inline uint64_t order32(float score) {
  uint32_t bits;
  score += 0.0f;
  memcpy(&bits, &score, 4);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

static inline uint64_t order64(double score) {
  uint64_t bits;
  score += 0.0;
  memcpy(&bits, &score, 8);
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}

// Candidates for the frontier. The key holds the score and, below it, the complement of the rank
// of the parent and of the place of the token, so that larger is better and no two are equal.
struct candidate {
  uint64_t key;
  uint32_t node;
  float sum;
};

// Results: by score, then step, parent and place of the token.
struct result {
  double score;
  uint32_t step, origin, node;
  float sum;
};

static inline int is_worse(const struct result *a, const struct result *b) {
  if (a->score != b->score) return a->score < b->score;
  if (a->step != b->step) return a->step > b->step;
  return a->origin > b->origin;
}

#define HEAP(NAME, TYPE, WORSE)                                                     \
  static void NAME##_down(TYPE *heap, int64_t n, int64_t at) {                      \
    TYPE moving = heap[at];                                                         \
    for (;;) {                                                                      \
      int64_t child = 2 * at + 1;                                                   \
      if (child >= n) break;                                                        \
      if (child + 1 < n && WORSE(&heap[child + 1], &heap[child])) child++;          \
      if (!WORSE(&heap[child], &moving)) break;                                     \
      heap[at] = heap[child];                                                       \
      at = child;                                                                   \
    }                                                                               \
    heap[at] = moving;                                                              \
  }                                                                                 \
  static int64_t NAME##_push(TYPE *heap, int64_t n, int64_t room, TYPE added) {     \
    if (n == room) {                                                                \
      if (WORSE(&heap[0], &added)) {                                                \
        heap[0] = added;                                                            \
        NAME##_down(heap, n, 0);                                                    \
      }                                                                             \
      return n;                                                                     \
    }                                                                               \
    int64_t at = n;                                                                 \
    for (; at > 0 && WORSE(&added, &heap[(at - 1) / 2]); at = (at - 1) / 2)         \
      heap[at] = heap[(at - 1) / 2];                                                \
    heap[at] = added;                                                               \
    return n + 1;                                                                   \
  }                                                                                 \
  /* Sorts a heap, the best first. */                                               \
  static void NAME##_sort(TYPE *heap, int64_t n) {                                  \
    while (n-- > 1) {                                                               \
      TYPE worst = heap[0];                                                         \
      heap[0] = heap[n];                                                            \
      heap[n] = worst;                                                              \
      NAME##_down(heap, n, 0);                                                      \
    }                                                                               \
  }                                                                                 \
  /* As std::partial_sort: the best `keep` of n, sorted, in front. */               \
  __attribute__((unused)) static int64_t NAME##_partial_sort(TYPE *all, int64_t n, int64_t keep) {          \
    if (keep > n) keep = n;                                                         \
    for (int64_t at = keep / 2; at-- > 0;) NAME##_down(all, keep, at);              \
    for (int64_t i = keep; i < n && keep; i++)                                      \
      if (WORSE(&all[0], &all[i])) {                                                \
        TYPE better = all[i];                                                       \
        all[i] = all[0];                                                            \
        all[0] = better;                                                            \
        NAME##_down(all, keep, 0);                                                  \
      }                                                                             \
    NAME##_sort(all, keep);                                                         \
    return keep;                                                                    \
  }

#define LOWER_KEY(a, b) ((a)->key < (b)->key)
HEAP(beams, struct candidate, LOWER_KEY)
HEAP(results, struct result, is_worse)

// A step's proposals, tokens ascending; those at or below the threshold are left out.
struct step {
  uint32_t *tokens;
  float *logprobs;
  int64_t n;
};

static void sort_step(const struct query *q, int64_t t, struct step *s, uint64_t *spare) {
  const uint32_t *tokens = q->tokens + t * q->n_proposals;
  const float *logprobs = q->logprobs + t * q->n_proposals;
  uint64_t *from = spare, *to = spare + q->n_proposals;
  uint32_t largest = 0;
  int64_t n = 0;
  for (int64_t k = 0; k < q->n_proposals; k++)
    if (logprobs[k] > q->min_token && logprobs[k] > -__builtin_inff()) {
      from[n++] = (uint64_t)tokens[k] << 32 | (uint32_t)k;
      if (tokens[k] > largest) largest = tokens[k];
    }
  for (int shift = 32; shift < 64 && largest >> (shift - 32); shift += 11) {
    uint32_t starts[2048] = {0}, sum = 0;
    for (int64_t i = 0; i < n; i++) starts[from[i] >> shift & 2047]++;
    for (int d = 0; d < 2048; d++) {
      uint32_t count = starts[d];
      starts[d] = sum;
      sum += count;
    }
    for (int64_t i = 0; i < n; i++) to[starts[from[i] >> shift & 2047]++] = from[i];
    uint64_t *swap = from;
    from = to;
    to = swap;
  }
  s->n = n;
  for (int64_t i = 0; i < n; i++) {
    s->tokens[i] = (uint32_t)(from[i] >> 32);
    s->logprobs[i] = logprobs[(uint32_t)from[i]];
  }
}

// ---- What the searches share: a frontier, the ways it came about, and results

struct search {
  const struct trie *trie;
  const struct query *query;
  struct step step;
  int64_t at, n_beams, n_found, n_results;
  struct candidate *beams, *found;
  struct result *results;
  uint32_t *won_tokens, *won_parents;  // [T][width]
  int mode;
  // The workers of opt_search.
  pthread_spinlock_t lock;
  atomic_llong next_beam;
  atomic_ullong bound, result_bound;
};

static void start(struct search *s, const struct trie *trie, const struct query *q) {
  memset(s, 0, sizeof *s);
  s->trie = trie;
  s->query = q;
  s->beams = malloc((size_t)q->width * sizeof *s->beams);
  s->found = malloc((size_t)q->width * sizeof *s->found);
  s->results = malloc((size_t)q->max_results * sizeof *s->results);
  s->won_tokens = malloc((size_t)(q->n_steps * q->width) * 4);
  s->won_parents = malloc((size_t)(q->n_steps * q->width) * 4);
  s->step.tokens = malloc((size_t)q->n_proposals * 4);
  s->step.logprobs = malloc((size_t)q->n_proposals * 4);
  s->n_beams = 1;
  s->beams[0] = (struct candidate){0, 0, 0.0f};
}

static void release(struct search *s) {
  free(s->beams);
  free(s->found);
  free(s->results);
  free(s->won_tokens);
  free(s->won_parents);
  free(s->step.tokens);
  free(s->step.logprobs);
}

static inline uint64_t candidate_key(const struct search *s, int64_t beam, int64_t k, float sum) {
  return order32(sum) << 32 | (uint32_t)~(uint64_t)(beam * s->query->n_proposals + k);
}

// Makes sorted candidates the next frontier and notes where they came from.
static void advance(struct search *s, const struct candidate *sorted, int64_t n) {
  int64_t row = s->at * s->query->width;
  for (int64_t i = 0; i < n; i++) {
    uint32_t origin = ~(uint32_t)sorted[i].key;
    s->won_parents[row + i] = origin / (uint32_t)s->query->n_proposals;
    s->won_tokens[row + i] = s->step.tokens[origin % s->query->n_proposals];
    s->beams[i] = sorted[i];
  }
  s->n_beams = n;
}

static void trace(const struct search *s, int64_t step, uint32_t parent, uint32_t *tokens) {
  for (; step >= 0; step--) {
    int64_t place = step * s->query->width + parent;
    tokens[step] = s->won_tokens[place];
    parent = s->won_parents[place];
  }
}

// The token of a result is not known to the frontier's notes: `last` holds those of each step.
static int64_t finish(struct search *s, const uint32_t *last, struct answer *a) {
  const struct query *q = s->query;
  results_sort(s->results, s->n_results);
  for (int64_t i = 0; i < s->n_results; i++) {
    const struct result *r = &s->results[i];
    uint32_t *tokens = a->tokens + i * q->n_steps;
    int64_t k = r->origin % q->n_proposals, parent = r->origin / q->n_proposals;
    tokens[r->step] = last[r->step * q->n_proposals + k];
    if (r->step) trace(s, (int64_t)r->step - 1, (uint32_t)parent, tokens);
    a->scores[i] = r->score;
    a->sums[i] = r->sum;
    a->lengths[i] = r->step + 1;
    a->numbers[i] = s->trie ? (int64_t)key_number(s->trie, r->node) : -1;
  }
  return s->n_results;
}

static inline void add_result(struct search *s, int64_t origin, uint32_t node, float sum) {
  double score = (double)sum * s->query->factors[s->at + 1] + 0.0;
  struct result r = {score, (uint32_t)s->at, (uint32_t)origin, node, sum};
  s->n_results = results_push(s->results, s->n_results, s->query->max_results, r);
}

// ---- MARISA-Opt

enum { MERGE, BINARY, LINEAR_PROBE, PER_CHILD };

static inline void take(struct search *s, int64_t beam, int64_t k, uint32_t node) {
  float sum = s->beams[beam].sum + s->step.logprobs[k];
  if (!(sum > s->query->min_sum)) return;
  const struct bits *b = &s->trie->topology;
  double score = (double)sum * s->query->factors[s->at + 1];
  if (get_bit(&s->trie->terminal, node) &&
      order64(score) >= atomic_load_explicit(&s->result_bound, memory_order_relaxed)) {
    pthread_spin_lock(&s->lock);
    add_result(s, beam * s->query->n_proposals + k, node, sum);
    if (s->n_results == s->query->max_results)
      atomic_store_explicit(&s->result_bound, order64(s->results[0].score), memory_order_relaxed);
    pthread_spin_unlock(&s->lock);
  }
  uint64_t key = candidate_key(s, beam, k, sum);
  if (s->at + 1 == s->query->n_steps ||
      key <= atomic_load_explicit(&s->bound, memory_order_relaxed))
    return;
  // Only what may be kept is asked whether it has children.
  uint64_t zero = select_bit(b->words, b->counts, b->samples0, node, ~0ull);
  if (!get_bit(b, zero + 1)) return;
  pthread_spin_lock(&s->lock);
  struct candidate c = {key, node, sum};
  s->n_found = beams_push(s->found, s->n_found, s->query->width, c);
  if (s->n_found == s->query->width)
    atomic_store_explicit(&s->bound, s->found[0].key, memory_order_relaxed);
  pthread_spin_unlock(&s->lock);
}

static void expand(struct search *s, int64_t beam) {
  uint32_t first;
  int64_t degree = children(s->trie, s->beams[beam].node, &first), n = s->step.n;
  const uint32_t *labels = s->trie->slots + first, *tokens = s->step.tokens;
  if (s->mode == MERGE) {
    for (int64_t k = 0, c = 0; k < n && c < degree;) {
      if (tokens[k] == labels[c]) {
        take(s, beam, k++, first + (uint32_t)c++);
      } else if (tokens[k] < labels[c]) {
        k++;
      } else {
        c++;
      }
    }
  } else if (s->mode == BINARY) {
    for (int64_t k = 0; k < n; k++) {
      int64_t low = 0, count = degree;
      while (count > 1) {
        int64_t half = count / 2;
        low += labels[low + half] <= tokens[k] ? half : 0;
        count -= half;
      }
      if (degree && labels[low] == tokens[k]) take(s, beam, k, first + (uint32_t)low);
    }
  } else if (s->mode == LINEAR_PROBE) {
    for (int64_t k = 0; k < n; k++) {
      int64_t c = 0;
      while (c < degree && labels[c] < tokens[k]) c++;
      if (c < degree && labels[c] == tokens[k]) take(s, beam, k, first + (uint32_t)c);
    }
  } else {
    for (int64_t c = 0; c < degree; c++)
      for (int64_t k = 0; k < n; k++)
        if (tokens[k] == labels[c]) {
          take(s, beam, k, first + (uint32_t)c);
          break;
        }
  }
}

static void work(struct search *s) {
  enum { CHUNK = 4 };
  for (;;) {
    int64_t beam = atomic_fetch_add(&s->next_beam, CHUNK);
    if (beam >= s->n_beams) return;
    for (int64_t last = beam + CHUNK; beam < last && beam < s->n_beams; beam++) expand(s, beam);
  }
}

// A pool of workers that wait for a search, take part in one step and report back.
struct pool {
  int64_t n_workers;
  pthread_t threads[64];
  pthread_mutex_t lock;
  pthread_cond_t wake;
  struct search *search;
  int64_t round, stop;
  atomic_llong busy;
};

static void *wait_for_work(void *argument) {
  struct pool *pool = argument;
  int64_t seen = 0;
  for (;;) {
    pthread_mutex_lock(&pool->lock);
    while (pool->round == seen && !pool->stop) pthread_cond_wait(&pool->wake, &pool->lock);
    seen = pool->round;
    struct search *search = pool->search;
    int stop = (int)pool->stop;
    pthread_mutex_unlock(&pool->lock);
    if (stop) return NULL;
    work(search);
    atomic_fetch_sub(&pool->busy, 1);
  }
}

struct pool *new_pool(int64_t n_threads) {
  struct pool *pool = calloc(1, sizeof *pool);
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->wake, NULL);
  // The caller works, too.
  for (; pool->n_workers < n_threads - 1 && pool->n_workers < 64; pool->n_workers++)
    if (pthread_create(&pool->threads[pool->n_workers], NULL, wait_for_work, pool)) break;
  return pool;
}

void free_pool(struct pool *pool) {
  pthread_mutex_lock(&pool->lock);
  pool->stop = 1;
  pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->lock);
  for (int64_t i = 0; i < pool->n_workers; i++) pthread_join(pool->threads[i], NULL);
  free(pool);
}

static void run_step(struct pool *pool, struct search *s) {
  atomic_store(&s->next_beam, 0);
  // Waking the others takes longer than a few beams do.
  if (pool->n_workers && s->n_beams > 16) {
    atomic_store(&pool->busy, pool->n_workers);
    pthread_mutex_lock(&pool->lock);
    pool->search = s;
    pool->round++;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    work(s);
    while (atomic_load(&pool->busy)) __builtin_ia32_pause();
  } else {
    work(s);
  }
}

static double lap(double *since) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  double then = *since;
  *since = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
  return *since - then;
}

int64_t opt_search(const struct trie *trie, const struct query *q, struct pool *pool, int64_t mode,
                   struct answer *a) {
  struct search s;
  start(&s, trie, q);
  pthread_spin_init(&s.lock, PTHREAD_PROCESS_PRIVATE);
  s.mode = (int)mode;
  uint64_t *spare = malloc((size_t)q->n_proposals * 16);
  uint32_t *last = malloc((size_t)(q->n_steps * q->n_proposals) * 4);
  double since = 0;
  memset(a->phases, 0, sizeof a->phases);
  lap(&since);
  for (; s.at < q->n_steps && s.n_beams; s.at++) {
    sort_step(q, s.at, &s.step, spare);
    memcpy(last + s.at * q->n_proposals, s.step.tokens, (size_t)s.step.n * 4);
    s.n_found = 0;
    atomic_store(&s.bound, 0);
    a->phases[0] += lap(&since);
    run_step(pool, &s);
    a->phases[1] += lap(&since);
    beams_sort(s.found, s.n_found);
    advance(&s, s.found, s.n_found);
    a->phases[2] += lap(&since);
  }
  int64_t n = finish(&s, last, a);
  a->phases[3] += lap(&since);
  free(spare);
  free(last);
  release(&s);
  return n;
}

// ---- MARISA-Int

static inline uint64_t cache_slot(const struct trie *t, uint32_t node, uint32_t label) {
  return (node ^ (node << 5) ^ label) & (uint64_t)t->cache_mask;
}

static inline uint32_t label_of(const struct trie *t, uint32_t node) {
  return t->has_links && get_bit(&t->link, node) ? t->tail[t->slots[node]] : t->slots[node];
}

// Fills the cache with the transitions that most keys pass through.
void fill_cache(struct trie *t) {
  uint32_t *weights = calloc((size_t)t->n_nodes, 4), *parents = calloc((size_t)t->n_nodes, 4);
  uint64_t at = 2;
  uint32_t child = 1;
  for (uint32_t node = 0; node < t->n_nodes; node++, at++)
    for (; get_bit(&t->topology, at); at++) parents[child++] = node;
  uint32_t *best = calloc((size_t)t->cache_mask + 1, 4);
  for (int64_t i = 0; i <= t->cache_mask; i++) t->cache[i] = (struct cached){~0u, 0, 0};
  for (int64_t node = t->n_nodes - 1; node > 0; node--) {
    weights[node] += (uint32_t)get_bit(&t->terminal, (uint64_t)node);
    weights[parents[node]] += weights[node];
    uint32_t label = label_of(t, (uint32_t)node);
    uint64_t slot = cache_slot(t, parents[node], label);
    if (weights[node] >= best[slot]) {
      best[slot] = weights[node];
      t->cache[slot] = (struct cached){parents[node], label, (uint32_t)node};
    }
  }
  free(weights);
  free(parents);
  free(best);
}

static inline int64_t find_child(const struct trie *t, uint32_t node, uint32_t token, int scan) {
  const struct cached *hit = &t->cache[cache_slot(t, node, token)];
  if (hit->parent == node && hit->label == token) return hit->child;
  uint32_t first;
  int64_t degree = children(t, node, &first);
  if (scan) {
    for (int64_t c = 0; c < degree; c++)
      if (label_of(t, first + (uint32_t)c) == token) return first + c;
    return -1;
  }
  int64_t low = 0, count = degree;
  while (count > 1) {
    int64_t half = count / 2;
    if (label_of(t, first + (uint32_t)(low + half)) <= token) low += half;
    count -= half;
  }
  return degree && label_of(t, first + (uint32_t)low) == token ? first + low : -1;
}

// Goes from the root along tokens. Returns the node, or -1; *inside is 1 if the tokens end within
// the chain that leads to it.
static int64_t descend(const struct trie *t, const uint32_t *tokens, int64_t n, int scan,
                       int *inside) {
  uint32_t node = 0;
  for (int64_t i = 0; i < n;) {
    int64_t child = find_child(t, node, tokens[i], scan);
    if (child < 0) return -1;
    node = (uint32_t)child;
    i++;
    if (t->has_links && get_bit(&t->link, node)) {
      uint32_t place = t->slots[node];
      while (!get_bit(&t->tail_end, place)) {
        if (i == n) {
          *inside = 1;
          return node;
        }
        if (t->tail[++place] != tokens[i++]) return -1;
      }
    }
  }
  *inside = 0;
  return node;
}

int64_t int_search(const struct trie *trie, const struct query *q, int64_t scan, struct answer *a) {
  struct search s;
  start(&s, trie, q);
  uint64_t *spare = malloc((size_t)q->n_proposals * 16);
  uint32_t *last = malloc((size_t)(q->n_steps * q->n_proposals) * 4);
  uint32_t prefix[256];
  int64_t room = 1 << 16;
  struct candidate *all = malloc((size_t)room * sizeof *all);
  for (; s.at < q->n_steps && s.n_beams; s.at++) {
    sort_step(q, s.at, &s.step, spare);
    memcpy(last + s.at * q->n_proposals, s.step.tokens, (size_t)s.step.n * 4);
    int64_t n = 0;
    for (int64_t beam = 0; beam < s.n_beams; beam++) {
      if (s.at) trace(&s, s.at - 1, (uint32_t)beam, prefix);
      for (int64_t k = 0; k < s.step.n; k++) {
        float sum = s.beams[beam].sum + s.step.logprobs[k];
        if (!(sum > q->min_sum)) continue;
        prefix[s.at] = s.step.tokens[k];
        int inside;
        // Once as a key and once as a prefix.
        int64_t node = descend(trie, prefix, s.at + 1, (int)scan, &inside);
        if (node >= 0 && !inside && get_bit(&trie->terminal, (uint64_t)node))
          add_result(&s, beam * q->n_proposals + k, (uint32_t)node, sum);
        node = descend(trie, prefix, s.at + 1, (int)scan, &inside);
        uint32_t first;
        if (node < 0 || (!inside && !children(trie, (uint32_t)node, &first))) continue;
        if (n == room) all = realloc(all, (size_t)(room *= 2) * sizeof *all);
        all[n++] = (struct candidate){candidate_key(&s, beam, k, sum), (uint32_t)node, sum};
      }
    }
    n = beams_partial_sort(all, n, q->width);
    advance(&s, all, n);
  }
  int64_t n = finish(&s, last, a);
  free(all);
  free(spare);
  free(last);
  release(&s);
  return n;
}

// ---- No trie

// `filters` has a bit for every token of every step, or is NULL; a step's bits take `stride` words.
// The prefixes of all lengths are results: whether they are keys is for the caller to see.
int64_t free_search(const uint64_t *filters, int64_t stride, const struct query *q,
                    struct answer *a) {
  struct search s;
  start(&s, NULL, q);
  uint64_t *spare = malloc((size_t)q->n_proposals * 16);
  uint32_t *last = malloc((size_t)(q->n_steps * q->n_proposals) * 4);
  for (; s.at < q->n_steps && s.n_beams; s.at++) {
    sort_step(q, s.at, &s.step, spare);
    int64_t n = 0;
    for (int64_t k = 0; k < s.step.n; k++) {
      uint32_t token = s.step.tokens[k];
      const uint64_t *filter = filters ? filters + s.at * stride : NULL;
      if (filter && ((int64_t)(token >> 6) >= stride || !(filter[token >> 6] >> (token & 63) & 1)))
        continue;
      s.step.tokens[n] = token;
      s.step.logprobs[n++] = s.step.logprobs[k];
    }
    s.step.n = n;
    memcpy(last + s.at * q->n_proposals, s.step.tokens, (size_t)n * 4);
    s.n_found = 0;
    for (int64_t beam = 0; beam < s.n_beams; beam++)
      for (int64_t k = 0; k < n; k++) {
        float sum = s.beams[beam].sum + s.step.logprobs[k];
        if (!(sum > q->min_sum)) continue;
        struct candidate c = {candidate_key(&s, beam, k, sum), 0, sum};
        if (s.n_found == q->width && c.key <= s.found[0].key) continue;
        s.n_found = beams_push(s.found, s.n_found, q->width, c);
      }
    beams_sort(s.found, s.n_found);
    for (int64_t i = 0; i < s.n_found; i++)
      add_result(&s, (int64_t)~(uint32_t)s.found[i].key, 0, s.found[i].sum);
    advance(&s, s.found, s.n_found);
  }
  int64_t n = finish(&s, last, a);
  free(spare);
  free(last);
  release(&s);
  return n;
}
