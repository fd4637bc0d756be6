"""Hypothesis strategies that straddle the borders of words, blocks and label halves."""

from itertools import cycle, islice

from hypothesis import strategies as st

MAX_TOKEN = 2**32 - 2
INF = float("inf")

# Bits and integers

lengths = st.one_of(
    st.sampled_from([0, 1, 63, 64, 65, 511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097]),
    st.integers(0, 200),
)


@st.composite
def bit_lists(draw):
    """Bits of any density, from empty to full, scattered or in runs."""
    n = draw(lengths)
    kind = draw(st.sampled_from(["scattered", "sparse", "dense", "runs"]))
    if kind == "scattered":
        data = draw(st.binary(min_size=(n + 7) // 8, max_size=(n + 7) // 8))
        return [data[i >> 3] >> (i & 7) & 1 == 1 for i in range(n)]
    if kind == "runs":
        runs = draw(st.lists(st.integers(1, 1100), min_size=1, max_size=6))
        bits = (bit for run, bit in zip(cycle(runs), cycle([False, True])) for _ in range(run))
        return list(islice(bits, n))
    few = set(draw(st.lists(st.integers(0, n - 1), max_size=8))) if n else set()
    return [(i in few) == (kind == "sparse") for i in range(n)]


@st.composite
def packed_values(draw):
    """A width in 0..64 and values that fit it, over several words when repeated."""
    width = draw(st.integers(0, 64))
    values = draw(st.lists(st.integers(0, 2**width - 1), max_size=20))
    return values * draw(st.sampled_from([1, 1, 7])), width


@st.composite
def sorted_values(draw):
    """Sorted integers in [0, 2**64 - 2]: dense, sparse, repeated, from 0 to the largest."""
    bound = draw(st.sampled_from([0, 5, 300, 2**16, 2**32, 2**64 - 2]))
    few = st.lists(st.integers(0, bound), max_size=12)
    many = st.lists(st.integers(0, bound), min_size=60, max_size=140)
    values = draw(st.one_of(few, many))
    return sorted(values + values[: draw(st.integers(0, len(values)))])


# Catalogs

SMALL = [0, 1, 2]
LABEL_BORDER = [65534, 65535, 65536, 65537]
LARGE = [0, 65535, 2**16, 2**31, 2**32 - 3, MAX_TOKEN]


def sequences(tokens, max_size=6):
    return st.lists(tokens, min_size=1, max_size=max_size).map(tuple)


def ragged(tokens):
    return st.lists(sequences(tokens), min_size=1, max_size=30)


@st.composite
def rows(draw, tokens):
    """Sequences of one length."""
    length = draw(st.integers(1, 4))
    return draw(st.lists(st.tuples(*[tokens] * length), min_size=1, max_size=30))


@st.composite
def cut_chains(draw, tokens):
    """A chain, some of its prefixes, and sequences that leave it on the way."""
    chain = draw(st.lists(tokens, min_size=2, max_size=40))
    catalog = [tuple(chain)]
    for end in draw(st.lists(st.integers(1, len(chain)), max_size=4)):
        leaving = draw(st.lists(tokens, max_size=3))
        catalog.append((*chain[:end], *leaving))
    return catalog


@st.composite
def shared_suffixes(draw, tokens):
    """Different beginnings before few endings, some of them endings of one another."""
    ending = draw(st.lists(tokens, min_size=2, max_size=8))
    starts = draw(st.lists(st.lists(tokens, min_size=1, max_size=3), min_size=1, max_size=8))
    return [(*start, *ending[draw(st.integers(0, len(ending) - 1)) :]) for start in starts]


@st.composite
def fans(draw, low):
    """Up to 200 children of one state, consecutive tokens from about `low` on."""
    first, width = max(0, low + draw(st.integers(-100, 0))), draw(st.integers(1, 200))
    stem = draw(st.sampled_from([(), (7,)]))
    catalog = [(*stem, token) for token in range(first, first + width)]
    longer = draw(st.lists(st.integers(0, width - 1), max_size=3))
    return catalog + [(*catalog[i], 5) for i in longer]


@st.composite
def repeated(draw, catalogs):
    """A catalog in which some sequences come more than once."""
    catalog = draw(catalogs)
    again = draw(st.lists(st.sampled_from(catalog), max_size=5))
    return catalog + again


def catalogs_over(alphabet):
    tokens = st.sampled_from(alphabet)
    return st.one_of(
        ragged(tokens), rows(tokens), cut_chains(tokens), shared_suffixes(tokens), ragged(tokens)
    )


narrow_catalogs = repeated(
    st.one_of(catalogs_over(SMALL), catalogs_over(LABEL_BORDER), fans(100), fans(65536), fans(32))
)
"""Catalogs whose vocabulary is small enough for masks."""

any_tokens = st.integers(0, MAX_TOKEN)
wide_catalogs = repeated(st.one_of(catalogs_over(LARGE), fans(MAX_TOKEN - 200), ragged(any_tokens)))
catalogs = st.one_of(narrow_catalogs, wide_catalogs)


@st.composite
def long_chains(draw):
    """Up to 2,000 tokens without a branch, one or several of them."""
    length = draw(st.sampled_from([65, 511, 2000]))
    pattern = draw(sequences(st.sampled_from([*SMALL, 65536]), max_size=4))
    chain = tuple(islice(cycle(pattern), length))
    catalog = [chain]
    if draw(st.booleans()):
        catalog.append((*chain[: draw(st.integers(1, length - 1))], 9))
    if draw(st.booleans()):
        catalog.append((8, *chain[draw(st.integers(0, length - 2)) :]))
    return catalog


# Proposals

steep_logprobs = st.sampled_from([0.0, -0.0, -0.1, -0.3, -0.5, -1.0, -1.5, -2.0, 0.25, -INF])
logprobs = st.one_of(steep_logprobs, st.floats(-20, 0, width=32))


@st.composite
def proposals(draw, catalog, duplicates=False):
    """Token ids [T][K] and log-probabilities, many of them along keys of the catalog."""
    alphabet = sorted({token for key in catalog for token in key[:8]})[:12]
    longest = min(max(map(len, catalog)), 6)
    n_steps, n_tokens = draw(st.integers(0, longest + 1)), draw(st.integers(1, 8))
    any_token = st.one_of(st.sampled_from(alphabet), st.sampled_from([3, 65533, MAX_TOKEN]))
    token_ids, values = [], []
    for _ in range(n_steps):
        tokens = draw(st.lists(any_token, min_size=0, max_size=n_tokens, unique=not duplicates))
        padding = n_tokens - len(tokens)
        row = draw(st.lists(logprobs, min_size=len(tokens), max_size=len(tokens)))
        # Padding may hold any token, also one that is proposed already or is none at all.
        token_ids.append(tokens + [draw(st.sampled_from([0, -1, *tokens]))] * padding)
        values.append(row + [-INF] * padding)
    return token_ids, values


@st.composite
def search_options(draw, n_steps):
    """Keyword arguments of a beam search."""
    width = st.integers(1, 6)
    if n_steps:
        width = st.one_of(width, st.lists(width, min_size=n_steps, max_size=n_steps))
    thresholds = st.sampled_from([-INF, -INF, -3.0, -1.0, -0.5, -0.3, -0.1, 0.0])
    return {
        "beam_width": draw(width),
        "max_results": draw(st.one_of(st.none(), st.integers(1, 10))),
        "length_penalty": draw(st.sampled_from([0.0, 0.0, 1.0, 0.6, 5.0, -1.0])),
        "min_token_logprob": draw(thresholds),
        "min_logprob": draw(thresholds),
    }


@st.composite
def searches(draw, duplicates=False):
    """A catalog, proposals [Q][T][K] for it and search options."""
    catalog = draw(catalogs)
    queries = [draw(proposals(catalog, duplicates))]
    n_steps, n_tokens = len(queries[0][0]), len(queries[0][0][0]) if queries[0][0] else 1
    for _ in range(draw(st.integers(0, 2))):
        token_ids, values = draw(proposals(catalog, duplicates))
        queries.append(reshape(token_ids, values, n_steps, n_tokens))
    options = draw(search_options(n_steps))
    return catalog, [q[0] for q in queries], [q[1] for q in queries], options


def reshape(token_ids, values, n_steps, n_tokens):
    """Cut or pad one query's proposals to a given shape."""

    def fit(row, filler):
        return (row + [filler] * n_tokens)[:n_tokens]

    token_ids = [fit(row, 0) for row in token_ids] + [[0] * n_tokens] * n_steps
    values = [fit(row, -INF) for row in values] + [[-INF] * n_tokens] * n_steps
    return token_ids[:n_steps], values[:n_steps]
