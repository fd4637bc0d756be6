"""Filtering first in the library: memory, threads, plans, what arrays it takes."""

import json

import numpy as np
import pytest

from succinct import (
    DEAD,
    FormatError,
    KeyTable,
    LoudsTrie,
    Plan,
    StepMap,
    beam_search,
    calibrate,
    filter_step,
    overlap,
    recall,
)
from succinct.decode import Choice, _filter_job, filtered, filtering, plan

N_COLUMNS = 37
WIDTH = 9


@pytest.fixture(scope="module")
def index():
    rows = np.random.default_rng(3).integers(0, 40, (2000, 3))
    rows += np.array([0, 40, 80])
    return StepMap.build(KeyTable.from_rows(rows))


@pytest.fixture(scope="module")
def arguments(index):
    """Hidden states, head, index, states and scores of four requests of 30 beams."""
    random = np.random.default_rng(4)
    _, states = index.children(index.root)
    beams = random.choice(states, (4, 30))
    beams[1, 5] = DEAD
    beams[2] = DEAD
    scores = random.choice([-1.0, -0.5], (4, 30)).astype(np.float32)
    scores[3, ::2] = -np.inf
    hidden = random.standard_normal((4, 30, N_COLUMNS), np.float32) / 6
    weight = random.standard_normal((130, N_COLUMNS), np.float32)
    return hidden, weight, index, beams, scores


def flat(step):
    """Everything that a step holds, as one list of arrays."""
    return [*step.scores, *step.tokens, *step.parents, *step.states, step.offsets]


def assert_equal(one, other, tolerance=0.0):
    for left, right in zip(flat(one), flat(other), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_allclose(left, right, rtol=0, atol=tolerance)


def ways(normalize="valid"):
    for mapping in filtered.MAPPINGS:
        for projection in filtered.PROJECTIONS:
            for selection in filtered.SELECTIONS:
                choice = Choice(mapping, projection, selection)
                try:
                    choice.check(normalize)
                except ValueError:
                    continue
                yield choice


def test_number_and_types_of_what_comes_out(arguments):
    step = filter_step(*arguments, WIDTH)
    assert len(step) == 4
    assert step.offsets.tolist() == [0, WIDTH, 2 * WIDTH, 2 * WIDTH, 3 * WIDTH]
    for parts, dtype in (
        (step.scores, np.float32),
        (step.tokens, np.uint32),
        (step.parents, np.int64),
        (step.states, np.uint64),
    ):
        assert {part.dtype for part in parts} == {np.dtype(dtype)}
    states, scores, tokens, parents = step.padded(WIDTH + 1)
    assert (states[:, WIDTH] == DEAD).all()
    assert (states[2] == DEAD).all()
    assert (scores[:, WIDTH] == -np.inf).all()
    np.testing.assert_array_equal(tokens[3, :WIDTH], step.tokens[3])
    np.testing.assert_array_equal(parents[0, :WIDTH], step.parents[0])
    with pytest.raises(ValueError, match=f"at least {WIDTH}"):
        step.padded(WIDTH - 1)


@pytest.mark.parametrize("choice", list(ways()), ids="/".join)
def test_neither_threads_nor_memory_change_anything(arguments, choice, monkeypatch):
    expected = filter_step(*arguments, WIDTH, plan=choice, num_threads=1)
    monkeypatch.setattr(filtering, "_WORTH_THREADS", 1)
    assert_equal(filter_step(*arguments, WIDTH, plan=choice, num_threads=3), expected)
    # Matrix products of other shapes may round otherwise.
    tolerance = 0.0 if choice.projection == "selective" else 1e-6
    for slots in (1, 50, 700, 2000):
        monkeypatch.setattr(_filter_job, "_SLOTS", slots)
        for threads in (1, 3):
            found = filter_step(*arguments, WIDTH, plan=choice, num_threads=threads)
            assert_equal(found, expected, tolerance)


@pytest.mark.parametrize("normalize", ["valid", "vocab"])
def test_ways_agree(arguments, normalize):
    expected = filter_step(*arguments, WIDTH, normalize=normalize)
    for choice in ways(normalize):
        found = filter_step(*arguments, WIDTH, normalize=normalize, plan=choice)
        assert_equal(found, expected, 1e-5)


def test_beams_in_the_same_state_share_their_tokens(arguments):
    hidden, weight, index, beams, scores = arguments
    same = np.full_like(beams, index.root)
    apart = filter_step(hidden[:1, :1], weight, index, same[:1, :1], scores[:1, :1], WIDTH)
    together = filter_step(hidden, weight, index, same, np.zeros_like(scores), 10**6)
    from_first = together.parents[0] == 0
    expected = apart.scores[0] - scores[0, 0]
    np.testing.assert_array_equal(together.tokens[0][from_first][:WIDTH], apart.tokens[0])
    np.testing.assert_allclose(together.scores[0][from_first][:WIDTH], expected, atol=1e-6)


@pytest.mark.parametrize("projection", ["selective", "full", "band", "auto"])
def test_what_arrays_it_takes(arguments, projection, monkeypatch):
    hidden, weight, index, beams, scores = arguments
    options = {"beam_width": WIDTH, "projection": projection}
    expected = filter_step(*arguments, **options)

    def step(hidden=hidden, weight=weight, beams=beams, scores=scores):
        return filter_step(hidden, weight, index, beams, scores, **options)

    for layout in (np.asfortranarray, lambda a: np.repeat(a, 2, axis=-1)[..., ::2], _read_only):
        changed = step(layout(hidden), layout(weight), layout(beams), layout(scores))
        assert_equal(changed, expected, 1e-6)
    assert_equal(step(scores=scores.astype(np.float64)), expected)
    assert_equal(step(scores=scores.tolist(), beams=beams.tolist()), expected)
    half = hidden.astype(np.float16), weight.astype(np.float16)
    rounded = step(*(a.astype(np.float32) for a in half))
    assert_equal(step(*half), rounded, 1e-6)
    assert_equal(step(half[0].astype(np.float32), half[1]), rounded, 1e-6)
    monkeypatch.setattr(_filter_job, "_reads_half", lambda: False)
    assert_equal(step(*half), rounded, 1e-6)


def _read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


class Exported:
    """Memory that is exported by DLPack only, as that of tensors; of another device, if asked."""

    def __init__(self, array, device=1):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


def test_tensors(arguments):
    expected = filter_step(*arguments, WIDTH)
    hidden, weight, index, beams, scores = arguments
    given = [Exported(a) for a in (hidden, weight, beams, scores)]
    assert_equal(filter_step(*given[:2], index, *given[2:], WIDTH), expected)
    for i, name in enumerate(("hidden", "weight", "states", "beam_scores")):
        given[i].device = 2
        with pytest.raises(ValueError, match=f"{name}: .* DLPack device 2"):
            filter_step(*given[:2], index, *given[2:], WIDTH)
        given[i].device = 1


def test_a_head_that_is_wide_is_read_in_the_band_only(index):
    states = [[index.walk((3,))]]
    weight = np.zeros((200, 1), np.float32)
    weight[120:] = np.nan
    hidden = np.ones((1, 1, 1), np.float32)
    for projection in ("band", "selective", "full"):
        step = filter_step(hidden, weight, index, states, [[0.0]], 5, projection)
        assert len(step.tokens[0]) == 5
    with pytest.raises(ValueError, match=r"hidden\[0, 0\].*look for it in weight"):
        filter_step(hidden, weight, index, states, [[0.0]], 5, normalize="vocab")
    hidden[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"hidden\[0, 0\].*in the hidden state"):
        filter_step(hidden, weight, index, states, [[0.0]], 5)


def test_large_logits_and_impossible_ones():
    index = LoudsTrie.build(KeyTable.from_sequences([(0,), (1,), (2,)]))
    hidden = np.ones((1, 1, 1), np.float32)
    weight = np.array([[500.0], [500.0], [-np.inf]], np.float32)
    for choice in ways():
        step = filter_step(hidden, weight, index, [[index.root]], [[0.0]], 5, plan=choice)
        assert step.tokens[0].tolist() == [0, 1]
        assert step.scores[0] == pytest.approx([np.log(0.5)] * 2, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"hidden": np.zeros((4, 30, N_COLUMNS))}, TypeError, "hidden: .* float64"),
        ({"hidden": [[1.0], [1.0, 2.0]]}, ValueError, "hidden: .* different lengths"),
        ({"hidden": np.zeros((30, N_COLUMNS), "f4")}, ValueError, r"hidden: .*\[Q, B, H\]"),
        ({"weight": np.zeros((130, N_COLUMNS), int)}, TypeError, "weight: .* int64"),
        ({"weight": np.zeros(130, "f4")}, ValueError, r"weight: .*\[V, H\]"),
        ({"weight": np.zeros((130, 36), "f4")}, ValueError, "weight: .* 37 columns"),
        ({"weight": np.zeros((119, N_COLUMNS), "f4")}, ValueError, "weight: .* 120 rows"),
        ({"token_offset": 50}, ValueError, "rows for 50 to 179 and token 40"),
        ({"token_offset": -1}, ValueError, "token_offset: .* -1"),
        ({"token_offset": 0.5}, TypeError, "token_offset: .* float"),
        ({"index": [(1, 2)]}, TypeError, "index: .* list"),
        ({"beams": np.zeros((4, 29), int)}, ValueError, "states: .* shape"),
        ({"beams": np.zeros((4, 30))}, TypeError, "states"),
        ({"beams": np.full((4, 30), -1)}, ValueError, "states"),
        ({"beams": np.full((4, 30), 10**9)}, ValueError, "no state"),
        ({"scores": np.zeros((4, 29))}, ValueError, "beam_scores: .* shape"),
        ({"scores": np.full((4, 30), np.nan)}, ValueError, r"beam_scores\[0, 0\]: .* nan"),
        ({"scores": np.zeros((4, 30), "U1")}, TypeError, "beam_scores"),
        ({"beam_width": 0}, ValueError, "beam_width"),
        ({"beam_width": 1.5}, TypeError, "beam_width"),
        ({"beam_width": True}, TypeError, "beam_width: expected an int, got bool"),
        ({"num_threads": 0}, ValueError, "num_threads"),
        ({"projection": "half"}, ValueError, "projection: .* 'half'"),
        ({"projection": None}, ValueError, "projection"),
        ({"normalize": "vocab", "projection": "selective"}, ValueError, "normalize"),
        ({"normalize": "vocab", "projection": "band"}, ValueError, "normalize"),
        ({"normalize": "vocab", "plan": Choice()}, ValueError, "plan: .*full"),
        ({"plan": Choice("mask")}, ValueError, "plan: .*mask"),
        ({"plan": Choice("tree")}, ValueError, "plan: .*tree"),
        ({"plan": 3}, TypeError, "plan: expected a Plan or a Choice, got int"),
        ({"plan": Choice(), "projection": "full"}, ValueError, "plan: .*auto"),
    ],
)
def test_bad_input(arguments, changes, error, message):
    names = ("hidden", "weight", "index", "beams", "scores")
    given = dict(zip(names, arguments, strict=True)) | {"beam_width": WIDTH} | changes
    positional = [given.pop(name) for name in names]
    with pytest.raises(error, match=message):
        filter_step(*positional, **given)


# Plans


@pytest.fixture(scope="module")
def planned(arguments, index):
    return calibrate(index, arguments[1], [1, 6], beam_width=WIDTH, repeats=1)


def test_a_plan_has_every_step_and_size(planned, index):
    assert [(one.step, one.batch) for one in planned.steps] == [
        (step, batch) for batch in (1, 6) for step in range(3)
    ]
    for one in planned.steps:
        names = {name: taken for name, taken in one.seconds.items() if taken > 0}
        assert min(names, key=names.get) == "/".join(one.choice)
        assert set(names) <= set(map("/".join, ways()))
        assert len(names) > 3
    assert planned.choice(1, 2) == planned.steps[1].choice
    assert planned.choice(1, 3) == planned.steps[4].choice
    assert planned.choice(1, 1000) == planned.steps[4].choice


def test_a_plan_changes_no_result(arguments, planned):
    expected = filter_step(*arguments, WIDTH)
    for choice in ways():
        changed = planned
        for batch in (1, 6):
            changed = changed.pin(1, **choice._asdict(), batch=batch)
        assert_equal(filter_step(*arguments, WIDTH, plan=changed), expected, 1e-5)
        assert_equal(filter_step(*arguments, WIDTH, plan=changed, step=1), expected, 1e-5)


def test_the_step_is_found_from_the_states(arguments, planned, index, monkeypatch):
    hidden, weight, *_ = arguments
    asked = []
    choice = Plan.choice
    monkeypatch.setattr(
        Plan, "choice", lambda plan, *args, **kw: asked.append(args) or choice(plan, *args, **kw)
    )
    for prefix in ((), index.key(7)[:1], index.key(7)[:2]):
        states = [[DEAD, index.walk(prefix)]]
        filter_step(hidden[:1, :2], weight, index, states, [[0.0, 0.0]], WIDTH, plan=planned)
    assert asked == [(0, 1), (1, 1), (2, 1)]
    with pytest.raises(ValueError, match=r"steps \[0, 1, 2\], got 3"):
        filter_step(*arguments, WIDTH, plan=planned, step=3)


def test_pinned_steps_stay(arguments, planned, index):
    pinned = planned.pin(2, projection="full", mapping="list", selection="radix", batch=6)
    assert [one.pinned for one in pinned.steps] == [False] * 5 + [True]
    assert planned.steps[5].pinned is False
    redone = calibrate(index, arguments[1], [6], beam_width=WIDTH, repeats=1, plan=pinned)
    assert redone.steps[2] == pinned.steps[5]
    assert [one.pinned for one in redone.steps] == [False, False, True]
    for wrong in ({"step": 3}, {"step": 1, "batch": 2}, {"step": 1, "projection": "none"}):
        with pytest.raises(ValueError, match="plan"):
            planned.pin(**wrong)
    with pytest.raises(ValueError, match="plan"):
        planned.pin(1, mapping="mask", projection="selective")


def test_a_plan_is_for_one_index(arguments, planned):
    other = StepMap.build(KeyTable.from_rows([[1, 2]]))
    hidden, weight, *_ = arguments
    with pytest.raises(ValueError, match="plan: made for"):
        filter_step(hidden[:1, :1], weight, other, [[0]], [[0.0]], 1, plan=planned)
    with pytest.raises(ValueError, match="plan: expected one for"):
        calibrate(other, weight, plan=planned)


def test_files_of_plans(planned, tmp_path):
    path = tmp_path / "plan.json"
    pinned = planned.pin(0, projection="full", mapping="list")
    pinned.save(path)
    assert Plan.load(path) == pinned
    good = json.loads(path.read_text())
    assert good["version"] == 1
    for wrong in (
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        json.dumps(good | {"version": 2}).encode(),
        json.dumps(good | {"steps": [{}]}).encode(),
        json.dumps(good | {"steps": [good["steps"][0] | {"mapping": "tree"}]}).encode(),
        json.dumps(good | {"steps": [good["steps"][0] | {"batch": 0}]}).encode(),
        json.dumps(good | {"steps": [good["steps"][0] | {"step": "0"}]}).encode(),
    ):
        path.write_bytes(wrong)
        with pytest.raises(FormatError, match=r"plan\.json: expected a plan"):
            Plan.load(path)
    with pytest.raises(OSError, match="absent"):
        Plan.load(tmp_path / "absent")


def test_a_head_for_each_step(arguments, index):
    weight = arguments[1]
    heads = [weight[:40], weight[40:80], weight[80:120]]
    planned = calibrate(
        index, heads, [2], beam_width=WIDTH, repeats=1, token_offset=[0, 40, 80], normalize="vocab"
    )
    assert {one.choice.projection for one in planned.steps} == {"full"}
    with pytest.raises(ValueError, match="weight: expected one for each of 3 steps, got 2"):
        calibrate(index, heads[:2], token_offset=[0, 40, 80])
    with pytest.raises(ValueError, match="token_offset: expected one for each of 3 steps"):
        calibrate(index, heads, token_offset=[0, 40])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_sizes": 1}, TypeError, "batch_sizes: expected ints, got int"),
        ({"batch_sizes": []}, ValueError, "batch_sizes: expected at least one"),
        ({"batch_sizes": [2, 0]}, ValueError, "batch_sizes: expected at least 1, got 0"),
        ({"plan": 3}, TypeError, "plan: expected a Plan, got int"),
        ({"repeats": 0}, ValueError, "repeats"),
    ],
)
def test_bad_input_to_calibrate(arguments, index, options, error, message):
    with pytest.raises(error, match=message):
        calibrate(index, arguments[1], **options)


@pytest.mark.parametrize(
    ("ticks", "calls"),
    [
        ({"selective": 50, "full": 10, "band": 30}, {"selective": 2, "full": 6, "band": 2}),
        ({"selective": 50, "full": 30, "band": 31}, {"selective": 6, "full": 24, "band": 24}),
    ],
)
def test_the_fastest_option_is_chosen(ticks, calls):
    now = iter(range(10**6))
    called = dict.fromkeys(calls, 0)

    def call(plan):
        called[plan.projection] += 1
        for _ in range(ticks[plan.projection]):
            next(now)

    class Clock:
        perf_counter = staticmethod(lambda: next(now))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "time", Clock)
        patch.setattr(plan, "_HICCUP", 0)
        patch.setattr(plan, "_ENOUGH", 10**6)
        options = [Choice(projection=p) for p in filtered.PROJECTIONS]
        seconds = plan._measure(call, options, 3)
    assert min(seconds, key=seconds.get).projection == "full"
    assert set(seconds) == set(options)
    assert called == calls


# Metrics


def test_overlap_and_recall():
    first, second = [[1, 2, 3], [], [5], [(1, 2)]], [np.array([3, 1]), [], [], [(1, 2), (3,)]]
    np.testing.assert_array_equal(overlap(first, second), [2 / 3, 1, 0, 0.5])
    np.testing.assert_array_equal(overlap(second, first), [2 / 3, 1, 0, 0.5])
    np.testing.assert_array_equal(overlap(first, second, k=1), [0, 1, 0, 1])
    np.testing.assert_array_equal(recall(first, second), [1, np.nan, np.nan, 0.5])
    np.testing.assert_array_equal(recall(first, second, k=1), [0.5, np.nan, np.nan, 0.5])
    with pytest.raises(ValueError, match="second: expected 4 queries"):
        overlap(first, second[:3])
    with pytest.raises(ValueError, match="k: expected at least 1"):
        recall(first, second, k=0)


def test_metrics_take_results(index):
    token_ids = np.tile(np.arange(120), (2, 3, 1))
    logprobs = -np.random.default_rng(1).random((2, 3, 120), np.float32)
    narrow, wide = (beam_search(index, token_ids, logprobs, beam_width=w) for w in (5, 200))
    ids = [query.key_ids for query in wide]
    np.testing.assert_array_equal(overlap(wide, ids), [1, 1])
    np.testing.assert_array_equal(recall(narrow, ids, k=5), [5 / 200] * 2)
