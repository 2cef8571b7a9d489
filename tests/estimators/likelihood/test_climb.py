"""When a climb ends, and which of several is the highest: by places that are written out."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from vcomp.estimators.likelihood.climbing import Place
from vcomp.estimators.likelihood.engine import Curvature, Derivatives
from vcomp.estimators.likelihood.maximisation import (
    _ends_better,
    _Iterate,
    _kkt_residual,
    _Maximisation,
    maximise,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class At(Place):
    """A place of a path that is known beforehand."""

    number: int = 0
    height: float = 0.0
    near: frozenset = field(default_factory=frozenset)

    @property
    def value(self):
        return self.height

    def leads_to(self, end):
        return end.number in self.near


SOUGHT, STALLED = (1e-10, 1e-4), (1e-6, 1e-4)


def climbed(decrements, *, max_iter=100, known=(), **changes):
    """Climb along these decrements; return the last number, and whether it is a maximum."""
    places = [At(decrement=d, number=k, **changes) for k, d in enumerate(decrements)]

    def move(here):
        return places[here.number + 1] if here.number + 1 < len(places) else None

    path, done = places[0].climb(
        move, sought=SOUGHT, stalled=STALLED, max_iter=max_iter, known=known
    )
    assert [place.number for place in path] == list(range(len(path)))
    return len(path) - 1, done


@pytest.mark.parametrize(
    ("decrements", "changes", "end"),
    [
        ([1.0, 0.1, 1e-5, 1e-10, 1e-20], {}, (3, True)),  # at what is sought
        ([1.0, 0.1, 1e-5, 1.1e-10, 1e-20], {}, (4, True)),
        ([1e-10, 1e-20], {"violation": 1.1e-4}, (1, False)),  # until no step is left
        ([1e-10, 1e-20], {"violation": 1e-4}, (0, True)),
        ([0.0, 1.0], {"violation": 1.1e-4}, (1, False)),  # a decrement of zero that is none
        ([1e-3, 1e-6, 0.51e-6, 1e-9, 1e-12], {}, (2, True)),  # stalled: not by half
        ([1e-3, 1e-6, 0.49e-6, 1e-9, 1e-12], {}, (4, True)),
        ([1e-3, 2.0**-20, 2.0**-21, 1e-12], {}, (3, True)),  # exactly by half
        ([1e-3, 1e-6, 0.3e-6, 1e-12], {"rate": 0.2}, (2, True)),
        ([1e-3, 1.01e-6, 1.01e-6, 1e-12], {}, (3, True)),  # stalled, but too far away
        ([1.0, 0.1, 1e-4], {}, (2, True)),  # no step raises the value: rounding
        ([1.0, 0.1, 1.1e-4], {}, (2, False)),
        ([1.0, 0.1, 1e-7], {"violation": 1e-4}, (2, True)),
        ([1.0, 0.1, 1e-7], {"violation": 2e-4}, (2, False)),
        ([1.0, 0.9, 0.8, 0.7], {"max_iter": 2}, (2, False)),
        ([1.0, 0.9, 1e-12, 0.7], {"max_iter": 2}, (2, True)),
        ([1.0, 0.9], {"max_iter": 0}, (0, False)),
    ],
)
def test_ends_of_climbs(decrements, changes, end):
    assert climbed(decrements, **changes) == end


def test_a_climb_to_a_known_maximum_is_given_up():
    known = [At(decrement=0.0, number=70), At(decrement=0.0, number=71)]
    assert climbed([1.0, 0.5], known=known, near=frozenset({71})) == (-1, True)
    assert climbed([1.0, 1e-12], known=known, near=frozenset({72})) == (1, True)


@pytest.mark.parametrize(
    ("decrement", "previous", "unseen", "is_last"),
    [
        (1e-9, np.inf, 1e-9, True),
        (1.1e-9, np.inf, 1e-9, False),
        (1e-9, 1e-9, 1e-9, True),
        # What a step as good as the one before leaves: 2⁻¹⁶ · 2⁻¹⁶/2⁻⁴.
        (2.0**-16, 2.0**-4, 2.0**-28, True),
        (2.0**-16, 2.0**-4, 0.999 * 2.0**-28, False),
        (1e-4, 1e-1, 1.01e-7, True),
        (1.1e-4, 1e3, 1e-7, False),  # too far away in any case
        (2e-5, 1e-5, 1e-5, False),  # the step before was none towards the end
        (0.0, 0.0, 0.0, True),
    ],
)
def test_the_next_step_is_the_last_if_it_is_as_good_as_the_one_before(
    decrement, previous, unseen, is_last
):
    assert At(decrement=decrement).is_one_step_away(previous, unseen) is is_last


def path_to(number, height, *, done=True, steps=1):
    return [At(decrement=1.0, number=-1)] * steps + [
        At(decrement=0.0, number=number, height=height)
    ], done


def highest(first, *others):
    """Return the numbers of the highest end and of the others, and which ends were known."""
    ends, asked = iter(others), []

    def climb(start, known):
        asked.append([end.number for end in known])
        return next(ends)

    path, done, rest = Place.highest(first, range(len(others)), climb)
    return path[-1].number, done, [end.number for end in rest], asked


def test_the_highest_of_several_maxima():
    nothing = [], True
    assert highest(path_to(0, 5.0)) == (0, True, [], [])
    assert highest(path_to(0, 5.0), nothing, path_to(2, 4.0)) == (0, True, [2], [[0], [0]])
    found = highest(path_to(0, 5.0), path_to(1, 6.0), path_to(2, 5.5), path_to(3, 7.0))
    assert found == (3, True, [0, 1, 2], [[0], [0, 1], [0, 1, 2]])
    # By less than 1e-8 the first one is kept.
    assert highest(path_to(0, 5.0), path_to(1, 5.0 + 0.9e-8))[0] == 0
    assert highest(path_to(0, 5.0), path_to(1, 5.0 + 1.1e-8))[0] == 1


def test_a_climb_without_a_maximum_is_the_highest_only_if_none_has_one():
    lost = path_to(1, 9.0, done=False)
    assert highest(path_to(0, 5.0), lost)[:3] == (0, True, [1])
    assert highest(path_to(0, 5.0, done=False), path_to(2, 1.0))[:3] == (2, True, [0])
    assert highest(path_to(0, 5.0, done=False), lost)[:3] == (1, False, [0])
    assert highest(path_to(0, 5.0, done=False), path_to(1, 4.0, done=False))[:3] == (0, False, [1])
    # Where the limit of steps ended a climb, another one may go on; not so where rounding did.
    for steps, known in ((59, [[0], [0, 1]]), (60, [[0], [0]])):
        ends = path_to(0, 5.0), path_to(1, 9.0, done=False, steps=steps), path_to(2, 4.0)
        assert highest(*ends)[3] == known


def test_what_a_step_has_to_reach():
    assert Place.required(-50.0, 2.0, 0.1, 10) == pytest.approx(-50.0 + 2e-4 - 50e-14, abs=1e-15)
    assert Place.required(5.0, 0.0, 0.1, 1000) == pytest.approx(5.0 - 1e-11, abs=1e-15)
    assert Place.required(5.0, 0.0, 0.99e-3, 1000) == pytest.approx(5.0 - 1e-9, abs=1e-15)
    assert Place.required(5.0, 0.0, 1e-3, 1000) == pytest.approx(5.0 - 1e-11, abs=1e-15)
    assert Place.required(5.0, 0.0, 0.1, 10, rounding=1e-3) == pytest.approx(4.99, abs=1e-12)
    lower = Place.lowest_step(np.array([[2.0, 0.0, 4.0], [1.0, 3.0, 0.5]]))
    np.testing.assert_allclose(lower, [[-2.0, 0.0, -3.6], [-1.0, -3.0, -0.45]], rtol=1e-15)


def iterate(v, step=(0.0, 0.0), *, value=0.0, average=(1.0, 1.0), score=(0.0, 0.0), **changes):
    named = {"decrement": 1e-5, "kind": "Newton", "reached_by": "AI", "fraction": 1.0} | changes
    derivatives = Derivatives(value, np.array(score), np.diag(average))
    return _Iterate(v=np.array(v), derivatives=derivatives, step=np.array(step), **named)


def test_a_step_leads_to_an_end_within_a_third_of_its_standard_errors():
    end = iterate([2.0, 1.0], average=(4.0, 25.0))
    for step, leads in (((0.149, 0.0), True), ((0.151, 0.0), False), ((0.0, -0.059), True),
                        ((0.0, 0.061), False), ((0.149, 0.059), True)):  # fmt: skip
        assert iterate([2.0, 1.0], step).leads_to(end) is leads
    # With the same terms at zero.
    at_zero = iterate([0.0, 1.0], average=(4.0, 25.0))
    assert iterate([0.5, 1.0], (-0.5, 0.0)).leads_to(at_zero)
    assert not iterate([0.5, 1.0], (-0.49, 0.0)).leads_to(at_zero)
    assert iterate([2.0, 1.0]).leads_to(iterate([9.0, 1.0], average=(-1e-9, 1.0)))


@pytest.mark.parametrize(
    ("v", "information", "vanishes"),
    [
        # A share of 1e-5 or less, with few degrees of freedom 2 σ⁴ I left.
        ([1.0, 0.99e-5], 1.0, True),
        ([1.0, 1.01e-5], 1.0, False),
        ([1.0, 1e-6], 4e3, True),
        ([1.0, 1e-6], 6e3, False),
        ([1.0, 1e-9], 4e12, True),
        ([1.0, 1e-9], 6e12, False),
        ([1.0, 1e-14], 4.9e26, True),
        ([1.0, 1e-14], 5.1e26, False),
        ([2.0**44, 1.0], 0.05, False),  # exactly a tenth of a degree of freedom
        ([2.0**44, 1.0], 0.0499, True),
    ],
)
def test_a_residual_vanishes_if_its_freedom_is_rounding(v, information, vanishes):
    share, freedom = v[1] / sum(v), 2.0 * v[1] ** 2 * information
    assert vanishes == (share <= 1e-5 and freedom < 0.1 and freedom * share <= 1e-14)
    assert iterate(v, average=(1.0, information)).vanishes is vanishes
    for scaled, unbounded in ((-0.26, vanishes), (-0.24, False), (0.3, False)):
        score = scaled / v[1]
        found = iterate(v, average=(1.0, information), score=(0.0, score))
        assert found.is_unbounded is unbounded
    if v[1] == 1.0:  # at least half a degree of freedom is left
        assert iterate(v, average=(1.0, information), score=(0.0, -0.25)).is_unbounded is vanishes


def test_scores_show_near_the_end_what_the_rounded_value_hides():
    here = iterate([1.0, 1.0], value=-100.0, decrement=9e-5)
    for there, better in (
        ({"value": -100.0 - 0.9e-6, "decrement": 9e-6}, True),  # a billionth of 1,000 rows
        ({"value": -100.0 - 1.1e-6, "decrement": 9e-6}, False),
        ({"value": -99.0, "decrement": 9.1e-6}, False),  # not a tenth of the decrement
    ):
        assert _ends_better(here, iterate([1.0, 1.0], **there), 1000) is better
    there = iterate([1.0, 1.0], value=-100.0, decrement=1e-9)
    assert _ends_better(here, there, 1000)
    for changes in ({"kind": "AI"}, {"decrement": 1e-4}):
        start = iterate([1.0, 1.0], value=-100.0, **{"decrement": 9e-5} | changes)
        assert not _ends_better(start, there, 1000)


def test_first_order_conditions():
    v, score, free = (
        np.array([0.5, 0.0, 0.0, 3.0]),
        np.array([-0.4, 0.3, -9.0, 0.01]),
        np.zeros(4, bool),
    )
    assert _kkt_residual(v, score, free) == pytest.approx(3.5 * 0.3)
    held = np.array([False, True, False, False])
    assert _kkt_residual(v, score, held) == pytest.approx(0.2)
    assert _kkt_residual(v, score, np.ones(4, bool)) == 0.0


class Told:
    """A likelihood of twelve rows and one column of X, of which everything is told.

    `value` and `score` are functions of the components, or the same everywhere.
    """

    n, n_fixed, reml, kinds, mean_weight = 12, 1, True, ("average",), 1.0

    def __init__(self, score, average, value=0.0, *, exact=True, curvature=None):
        self.told = value, score
        self.average, self.exact_value, self.of_step = np.array(average), exact, curvature
        self.asked, self.calls = [], 0

    def _told(self, which, v):
        self.calls += 1
        told = self.told[which]
        return told(v) if callable(told) else told

    def started(self, v):
        return self

    def loglike(self, v):
        return self._told(0, v)

    def derivatives(self, v):
        score = np.array(self._told(1, v), dtype=float)
        self.calls -= 1
        return Derivatives(self._told(0, v), score, self.average)

    def curvature(self, v, decrement, squares=None):
        self.asked.append((decrement, squares))
        return self.of_step


def search_of(likelihood, sizes=(4.0, 6.0, 12.0), *, held=(), tol=0.01):
    mask = np.isin(np.arange(len(sizes)), held)
    return _Maximisation(likelihood, np.array(sizes), mask, tol, 100)


def step_of(score, average, v, moves):
    """Return step and decrement of components that no bound stops, by a solve."""
    at, step = np.ix_(moves, moves), np.zeros(len(v))
    step[moves] = np.linalg.solve(average[at], score[moves])
    return step, np.sqrt(score @ step)


AVERAGE = np.array([[4.0, 0.3, 0.2], [0.3, 0.25, 0.1], [0.2, 0.1, 9.0]])


@pytest.mark.parametrize(
    ("v", "score", "held", "moves"),
    [
        ([2.0, 1.0, 3.0], [0.6, -0.1, 0.5], (), [0, 1, 2]),
        # At zero up to a hundredth of a standard error of the score, √I: 0.005 of the second.
        ([2.0, 0.0, 3.0], [0.6, 0.0049, 0.5], (), [0, 2]),
        ([2.0, 0.0, 3.0], [0.6, 0.9, 0.5], (), [0, 1, 2]),
        ([0.0, 1.0, 3.0], [0.019, 0.2, 0.5], (), [1, 2]),
        ([0.0, 1.0, 3.0], [0.9, 0.2, 0.5], (), [0, 1, 2]),
        ([2.0, 1.0, 3.0], [0.6, -0.1, 0.5], (1,), [0, 2]),
        ([2.0, 1.0, 3.0], [0.6, -0.1, 0.5], (2,), [0, 1]),
        ([2.0, 1.0, 3.0], [0.6, -0.1, 0.5], (0, 1, 2), []),
    ],
)
def test_a_step_solves_for_the_components_that_move(v, score, held, moves):
    v, score = np.array(v), np.array(score)
    search = search_of(Told(score, AVERAGE, 7.0), held=held)
    here = search.at(v)
    step, decrement = step_of(score, AVERAGE, v, np.isin(range(3), moves))
    np.testing.assert_allclose(here.step, step, rtol=1e-9, atol=1e-12)
    assert here.decrement == pytest.approx(decrement, rel=1e-9)
    free = [abs(v[t] * score[t]) for t in range(3) if t not in held]
    assert here.violation == pytest.approx(max(free, default=0.0) / np.sqrt(12.0), rel=1e-12)
    assert (here.kind, here.rate, here.value, search.evaluations) == ("AI", 0.9, 7.0, 1)


def test_a_component_just_above_zero_moves_in_its_own_unit():
    """Half a hundredth of a standard error where √I is below one."""
    for score, moves in ((0.0049, False), (0.0051, True)):
        told = Told([0.6, score, 0.5], np.diag([4.0, 0.25, 9.0]))
        here = search_of(told).at(np.array([2.0, 0.0, 3.0]))
        assert bool(here.step[1] > 0.0) is moves
    told = Told([0.6, 0.0625, 0.5], np.diag([4.0, 0.25, 9.0]))  # exactly an eighth of it
    assert search_of(told, tol=0.125).at(np.array([2.0, 0.0, 3.0])).step[1] == 0.0


def test_a_component_that_the_information_does_not_know_falls_to_zero():
    """The decrement has the whole of its gain: 2 · 3 · 1, and its slope is no part of a solve."""
    v, score = np.array([2.0, 3.0, 4.0]), np.array([0.6, -1.0, 0.5])
    average = AVERAGE.copy()
    average[1] = average[:, 1] = 0.0
    average[1, 1] = 1e-18
    here = search_of(Told(score, average)).at(v)
    step, decrement = step_of(score, average, v, np.array([True, False, True]))
    step[1] = -3.0
    np.testing.assert_allclose(here.step, step, rtol=1e-9)
    assert here.decrement == pytest.approx(np.sqrt(decrement**2 + 6.0), rel=1e-9)
    # The residual keeps a tenth, and what is held all of itself.
    average = np.diag([4.0, 0.25, 1e-18])
    score = np.array([0.6, -0.1, -1.0])
    assert search_of(Told(score, average)).at(v).step[2] == pytest.approx(-3.6, rel=1e-12)
    assert search_of(Told(score, average), held=(2,)).at(v).step[2] == 0.0
    average = np.diag([1e-18, 0.25, 9.0])
    score = np.array([-0.6, -0.1, 0.5])
    assert search_of(Told(score, average), held=(0,)).at(v).step[0] == 0.0
    # A hundred of them are known: their coupling with the others counts.
    far, coupled = np.array([100.0, 3.0, 4.0]), np.diag([1e-18, 0.25, 9.0])
    coupled[0, 2] = coupled[2, 0] = 1e-9
    found = search_of(Told(score, coupled)).at(far).step
    assert found[0] == -100.0
    assert 9.0 * found[2] == pytest.approx(0.5 + 1e-9 * 100.0, rel=1e-10)


def test_where_the_information_is_rounding_error_the_step_is_one_of_em():
    """σ² + 2σ⁴ s/q; the information of the effects is q/2σ⁴."""
    v, score = np.array([0.5, 0.0, 3.0]), np.array([0.1, 0.4, -0.2])
    indefinite = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    here = search_of(Told(score, indefinite)).at(v)
    assert (here.kind, here.rate) == ("EM", 0.9)
    expected = [2.0 * 0.25 * 0.1 / 4.0, 0.0, -2.0 * 9.0 * 0.2 / 12.0]
    np.testing.assert_allclose(here.step, expected, rtol=1e-9)
    assert here.decrement == pytest.approx(np.sqrt(score @ expected), rel=1e-9)


def test_a_better_information_is_asked_for_inside_and_used_if_it_is_one():
    v, score, observed = np.array([2.0, 1.0, 3.0]), np.array([0.6, -0.1, 0.5]), 2.0 * AVERAGE
    every = np.ones(3, dtype=bool)
    before = Curvature("Newton", AVERAGE, squares="squares")
    for information, kind, rate in ((observed, "Newton", 0.2), (-observed, "AI", 0.9)):
        told = Told(score, AVERAGE, curvature=Curvature("Newton", information))
        here = search_of(told).at(v, "AI", 0.5, before)
        used = AVERAGE if kind == "AI" else observed
        step, decrement = step_of(score, used, v, every)
        np.testing.assert_allclose(here.step, step, rtol=1e-9)
        assert here.decrement == pytest.approx(decrement, rel=1e-9)
        assert (here.kind, here.rate, here.reached_by, here.fraction) == (kind, rate, "AI", 0.5)
        assert here.curvature is told.of_step
        ((asked, squares),) = told.asked
        assert (asked, squares) == (pytest.approx(step_of(score, AVERAGE, v, every)[1]), "squares")
    # Not where a component at zero moves, where none does, or of an EM step.
    for v, score, average in (
        ([0.0, 1.0, 3.0], [0.6, -0.1, 0.5], AVERAGE),
        ([2.0, 1.0, 3.0], [0.6, -0.1, 0.5], -AVERAGE),
    ):
        told = Told(score, average, curvature=Curvature("Newton", observed))
        assert search_of(told).at(np.array(v)).curvature is None
        assert told.asked == []
    told = Told(score, AVERAGE, curvature=Curvature("Newton", observed))
    assert search_of(told, held=(0, 1, 2)).at(np.array(v)).curvature is None


@pytest.mark.parametrize(
    ("v", "held", "goes_on"),
    [
        ([1e3, 0.0, 0.9e-17], (), False),  # 10⁻²⁰ of the total
        ([1e3, 0.0, 1.1e-17], (), True),
        ([1e3, 0.0, 0.9e-17], (2,), True),
        ([1e3, 0.0, 0.9e-17], (1,), False),
        ([1e-3, 0.0, 0.9e-23], (), False),
    ],
)
def test_a_climb_ends_where_the_residual_is_gone(v, held, goes_on):
    told = Told(np.zeros(3), np.diag([1.0, 1.0, 1e60]))  # of many degrees of freedom
    search = search_of(told, held=held)
    here = search.at(np.array(v))
    assert not here.vanishes
    assert (search.move(here) is not None) is goes_on


@pytest.mark.parametrize(("share", "goes_on"), [(0.9e-9, False), (1.1e-9, True)])
def test_a_residual_of_rounding_error_is_gone_earlier(share, goes_on):
    v = np.array([1.0, 0.0, share])
    search = search_of(Told(np.zeros(3), np.diag([1.0, 1.0, 1.0])))
    here = search.at(v)
    assert here.vanishes
    assert (search.move(here) is not None) is goes_on


@pytest.mark.parametrize("factor", [0.3, 0.49, 0.51, 1.9, 2.1, 7.0])
@pytest.mark.parametrize("held", [(), (1,)])
@pytest.mark.parametrize("reml", [True, False])
def test_components_of_another_unit_are_scaled_first(factor, held, reml):
    """By y'Py/df = 1 + 2 σ²'s/df, with eleven degrees of freedom by REML, beyond a factor of 2."""
    v = np.array([2.0, 1.0, 3.0])
    score = np.full(3, (factor - 1.0) * (11.0 if reml else 12.0) / 2.0 / v.sum())
    told = Told(score, 1e9 * np.eye(3))
    told.reml = reml
    search = search_of(told, held=held)
    here = search.at(v)
    assert search._scale_factor(here) == pytest.approx(1.0 if held else factor, rel=1e-12)
    there = search.move(here)
    if held or 0.5 <= factor <= 2.0:
        assert there.reached_by == "AI"
    else:
        np.testing.assert_allclose(there.v, factor * v, rtol=1e-12)
        assert (there.reached_by, there.fraction) == ("scale", 1.0)


def test_what_is_left_of_the_response_by_rounding_gives_no_scale():
    for score in (-6.0, -5.5, np.nan):
        search = search_of(Told(np.array([score, 0.0, 0.0]), np.eye(3)))
        assert search._scale_factor(search.at(np.array([1.0, 1.0, 1.0]))) == 1.0


HERE, STEP, SCORE = (
    np.array([2.0, 1.0, 3.0]),
    np.array([0.4, -0.2, 1.2]),
    np.array([0.3, 0.2, 0.1]),
)
EM = HERE + 2.0 * HERE**2 * SCORE / [4.0, 6.0, 12.0]
GAIN = float(STEP @ SCORE)


def uphill(values, **changes):
    """Return the next point, where the value is −1 but at some points, and 0 at the start."""

    def value(v):
        (x,) = [x for at, x in values if np.allclose(v, at, rtol=1e-9)] or [-1.0]
        if x is None:
            raise np.linalg.LinAlgError
        return x

    told = Told(SCORE, AVERAGE, value)
    search = search_of(told)
    here = replace(search.at(HERE), step=STEP, decrement=0.5, **changes)
    here = replace(here, derivatives=replace(here.derivatives, loglike=0.0))
    told.calls = search.evaluations = 0
    there = search._uphill(here)
    if all(x is not None for _, x in values):
        assert search.evaluations == told.calls
    return there


@pytest.mark.parametrize("kind", ["AI", "Newton"])
@pytest.mark.parametrize("halving", range(13))
def test_a_step_is_halved_until_it_rises(kind, halving):
    """By a ten-thousandth of what its slope promises; a half by anything. At most 11 times."""
    fraction = 0.5**halving
    at = HERE + fraction * STEP
    there = uphill([(at, 1.01e-4 * fraction * GAIN)], kind=kind)
    if halving <= 11:
        assert (there.reached_by, there.fraction) == (kind, fraction)
        np.testing.assert_allclose(there.v, at, rtol=1e-12)
    else:
        assert there is None
    if halving != 1:
        assert uphill([(at, 0.99e-4 * fraction * GAIN)], kind=kind) is None


def test_the_better_one_of_half_a_step_and_an_em_step_is_taken():
    half, quarter = HERE + 0.5 * STEP, HERE + 0.25 * STEP
    for values, kind, fraction, at in (
        ([(half, 1e-9), (quarter, 9.0)], "AI", 0.5, half),
        ([(EM, 1e-9), (quarter, 9.0)], "EM", 1.0, EM),
        ([(EM, 1e-9), (half, 2e-9)], "AI", 0.5, half),
        ([(EM, 2e-9), (half, 1e-9)], "EM", 1.0, EM),
        ([(EM, -1e-9), (half, -2e-9), (quarter, 9.0)], "AI", 0.25, quarter),
        ([(EM, None), (half, None), (quarter, 9.0)], "AI", 0.25, quarter),
        ([(HERE + STEP, None), (half, 1e-9)], "AI", 0.5, half),
    ):
        there = uphill(values, kind="AI")
        assert (there.reached_by, there.fraction) == (kind, fraction)
        np.testing.assert_allclose(there.v, at, rtol=1e-12)
    # Values that cannot be compared are none.
    assert uphill([(half, np.inf)], kind="AI") is None
    # One that is as high is not higher.
    assert uphill([(half, 0.0)], kind="AI") is None


def test_an_em_step_keeps_a_tenth_of_the_residual_and_what_is_held():
    told = Told(np.array([0.3, -9.0, -9.0]), AVERAGE)
    for held, expected in (
        ((), [2.6, 0.0, 0.3]),
        ((0, 1), [2.0, 1.0, 0.3]),
        ((2,), [2.6, 0.0, 3.0]),
    ):
        search = search_of(told, held=held)
        np.testing.assert_allclose(search._em(search.at(HERE)), expected, rtol=1e-12)


TRIED = {
    "whole": (HERE + STEP, "AI", 1.0),
    "half": (HERE + 0.5 * STEP, "AI", 0.5),
    "EM": (EM, "EM", 1.0),
    "quarter": (HERE + 0.25 * STEP, "AI", 0.25),
    "eighth": (HERE + 0.125 * STEP, "AI", 0.125),
}


@pytest.mark.parametrize(
    ("decrements", "taken"),
    [
        ({"whole": 0.5, "half": 0.1, "EM": 0.1}, "whole"),
        # The better one of half a step and an EM step; a decrement that is the same is no less.
        ({"half": 0.5, "quarter": 0.1}, "half"),
        ({"EM": 0.5, "quarter": 0.1}, "EM"),
        ({"half": 0.4, "EM": 0.5}, "half"),
        ({"half": 0.5, "EM": 0.4}, "EM"),
        ({"quarter": 0.5, "eighth": 0.1}, "quarter"),
        ({"eighth": 0.5}, "eighth"),
        # If none is smaller the smallest.
        ({"whole": 5.0, "half": 4.0, "EM": 3.0, "quarter": 2.0, "eighth": 3.0}, "quarter"),
        ({"whole": 2.0, "half": 4.0, "EM": 3.0, "quarter": 5.0, "eighth": 3.0}, "whole"),
    ],
)
def test_without_a_value_the_first_step_with_a_smaller_decrement_is_taken(decrements, taken):
    """Decrements relative to the one here, which are those of the scores."""

    def score(v):
        at = [name for name, (point, *_) in TRIED.items() if np.allclose(v, point, rtol=1e-9)]
        return decrements.get(*at, 1.0) * SCORE if at else SCORE

    search = search_of(Told(score, AVERAGE, exact=False))
    there = search.move(replace(search.at(HERE), step=STEP))
    at, kind, fraction = TRIED[taken]
    np.testing.assert_allclose(there.v, at, rtol=1e-12)
    assert (there.reached_by, there.fraction) == (kind, fraction)


def test_without_a_value_a_step_stays_within_the_total_of_the_response():
    """Twelve times the sum of the components."""
    search = search_of(Told(0.0 * SCORE, AVERAGE, exact=False))
    far = np.array([1e3, 60.0, 1e3])
    there = search.move(replace(search.at(HERE), step=far, decrement=1.0))
    np.testing.assert_allclose(there.v, [72.0, 61.0, 72.0], rtol=1e-12)


def test_without_a_value_points_that_cannot_be_computed_are_left_out():
    def score(v):
        if v[0] > 2.15:
            raise np.linalg.LinAlgError
        return SCORE

    search = search_of(Told(score, AVERAGE, exact=False))
    here = replace(search.at(HERE), step=STEP, decrement=1.0)
    assert search.move(here).fraction == 0.25
    search = search_of(Told(SCORE, AVERAGE, exact=False))
    here = search.at(HERE)

    def never(v):
        raise np.linalg.LinAlgError

    search.likelihood.told = 0.0, never
    assert search.move(here) is None


@pytest.mark.parametrize("least", [1e-9, 0.5, 1.5, 1e9])
def test_a_residual_is_raised_until_the_likelihood_can_be_computed(least):
    """By a factor of 1,000, while it is not more than the mean of all components."""

    def score(v):
        if v[-1] < least:
            raise np.linalg.LinAlgError
        return SCORE

    for first in (1e-10, 0.9, 2.0):
        tried = [first]
        while tried[-1] < least and tried[-1] <= (2.0 + 1.0 + tried[-1]) / 3.0:
            tried.append(1e3 * tried[-1])
        v = np.array([2.0, 1.0, first])
        if tried[-1] < least:
            with pytest.raises(np.linalg.LinAlgError):
                search_of(Told(score, AVERAGE)).first(v)
        else:
            found = search_of(Told(score, AVERAGE)).first(v)
            np.testing.assert_allclose(found.v, [2.0, 1.0, tried[-1]], rtol=1e-12)
        if first < least:
            with pytest.raises(np.linalg.LinAlgError):
                search_of(Told(score, AVERAGE), held=(2,)).first(v)


def test_components_within_rounding_of_zero_end_there():
    """Of 10⁻⁷ standard errors, 1/√I; not those that are held, and not the residual."""
    told = Told(np.zeros(3), np.diag([4.0, 0.25, 1.0]))
    for v, held, expected in (
        ([0.49e-7, 1.0, 2.0], (), [0.0, 1.0, 2.0]),
        ([0.51e-7, 1.0, 2.0], (), [0.51e-7, 1.0, 2.0]),
        ([1.0, 1.9e-7, 2.0], (), [1.0, 0.0, 2.0]),
        ([1.0, 2.1e-7, 2.0], (), [1.0, 2.1e-7, 2.0]),
        ([0.49e-7, 1.0, 2.0], (0,), [0.49e-7, 1.0, 2.0]),
        ([1e-9, 1e-9, 0.9e-7], (), [0.0, 0.0, 0.9e-7]),
    ):
        search = search_of(told, held=held)
        path, done = search.climbed(search.at(np.array(v), "AI", 0.5))
        assert done
        assert len(path) == 1
        np.testing.assert_array_equal(path[-1].v, expected)
        assert (path[-1].reached_by, path[-1].fraction) == ("AI", 0.5)

    # Not where the likelihood rises away from zero.
    def rising(v):
        return [1.0 if v[0] == 0.0 else 0.0, 0.0, 0.0]

    search = search_of(Told(rising, np.diag([4.0, 0.25, 1.0])))
    path, _ = search.climbed(search.at(np.array([0.49e-7, 1.0, 2.0])))
    assert path[-1].v[0] == 0.49e-7


@pytest.mark.parametrize(
    ("scores", "information", "steps"),
    [
        # Of twelve rows the violation is σ²s/√12, sought below 10⁻⁴ wherever the climb is.
        (lambda k: 0.99e-4 * 12**0.5, 1e20, 0),
        (lambda k: 1.01e-4 * 12**0.5 if k < 2 else 0.0, 1e20, 2),
        # Where the decrement √(s²/I) does not fall, 10⁻⁶ is enough, of 10⁻¹⁰ otherwise.
        (lambda k: 0.99e-6, 1.0, 1),
        (lambda k: 1.01e-6 if k < 4 else 0.9e-10, 1.0, 4),
        (lambda k: 1.01e-10 if k < 1 else 0.9e-10, 1.0, 1),
        (lambda k: 0.99e-4 * 12**0.5, 1.5e5, 1),
        (lambda k: 1.01e-4 * 12**0.5 if k < 4 else 0.0, 1.5e5, 4),
    ],
)
def test_where_a_climb_ends(scores, information, steps):
    count = []

    def score(v):
        count.append(1)
        return [0.0, scores(len(count) - 1), 0.0]

    told = Told(score, np.diag([1.0, information, 1.0]))
    search = search_of(told, tol=1e-10)
    path, done = search.climbed(search.at(np.array([0.0, 1.0, 1e-5])))
    assert (len(path) - 1, done) == (steps, True)


def test_a_climb_that_did_not_end_keeps_what_is_next_to_zero():
    search = search_of(Told([0.0, 1.0, 0.0], np.diag([4.0, 0.25, 1.0])))
    search.max_iter = 0
    path, done = search.climbed(search.at(np.array([0.49e-7, 1.0, 2.0])))
    assert not done
    assert path[-1].v[0] == 0.49e-7


def ends(values, **changes):
    """Return a search in which every point is an end, of values by the first component."""
    told = Told(np.zeros(3), np.eye(3), lambda v: dict(values)[float(v[0])])
    search = search_of(told, **changes)
    return search, [np.array([a, 1.0, 1.0]) for a, _ in values]


def test_other_ends_are_kept_if_they_are_maxima_elsewhere():
    """A third of a standard error away, which is 1; sorted by their values."""
    values = [(2.0, 5.0), (2.29, 5.0), (9.0, 3.0), (2.31, 4.0), (7.0, 4.5)]
    search, points = ends(values)
    path, done, others = search.again([search.at(points[0])], True, points[1:])
    assert done
    assert path[-1].v[0] == 2.0
    assert [(end.v[0], end.value) for end in others] == [(7.0, 4.5), (2.31, 4.0), (9.0, 3.0)]
    # Of a higher one, that of the first climb is another.
    search, points = ends([(2.0, 5.0), (9.0, 5.1)])
    path, done, others = search.again([search.at(points[0])], True, points[1:])
    assert path[-1].v[0] == 9.0
    assert [end.v[0] for end in others] == [2.0]
    # What is held stays, and where a climb did not end is no maximum.
    search, points = ends([(2.0, 5.0), (9.0, 3.0)], held=(1,))
    points[1][1] = 70.0
    (other,) = search.again([search.at(points[0])], True, points[1:])[2]
    assert other.v.tolist() == [9.0, 1.0, 1.0]
    search, points = ends([(2.0, 5.0), (9.0, 3.0)])
    search.likelihood.told = search.likelihood.told[0], lambda v: [0.0, 0.0, float(v[0] > 8.0)]
    search.max_iter = 0
    assert search.again([search.at(points[0])], True, points[1:])[2] == []


@pytest.mark.parametrize(
    ("value", "slope", "is_kept"),
    [(5.1, 0.0, True), (4.9, 0.0, False), (4.9, -1.0, True), (5.0 + 1e-9, 0.0, False)],
)
def test_an_end_without_a_residual_is_kept_if_it_is_higher_or_has_no_bound(value, slope, is_kept):
    gone = np.array([9.0, 1.0, 1e-10])

    def score(v):
        return [0.0, 0.0, slope / v[-1] if v[-1] < 1e-9 else 0.0]

    told = Told(score, np.eye(3), lambda v: value if v[-1] < 1e-9 else 5.0)
    search = search_of(told)
    # A climb that ended at a maximum is above one that did not.
    search.max_iter = 0
    first = search.at(np.array([2.0, 1.0, 1.0]))
    path, _, others = search.again([first], True, [gone])
    if path[-1] is first:
        assert len(others) == is_kept
    else:
        assert value > 5.0
        assert others == [first]


TOP, AWAY = np.array([2.0, 1.0, 3.0]), np.array([0.01, -0.02, 0.03])


def quadratic(faster):
    """Return a quadratic likelihood of value 7 at `TOP`, whose steps are too short by a factor."""
    return Told(
        lambda v: AVERAGE @ (TOP - v),
        faster * AVERAGE,
        lambda v: 7.0 - 0.5 * (TOP - v) @ AVERAGE @ (TOP - v),
    )


def maximised(told, start, **options):
    return maximise(told, start, np.array([4.0, 6.0, 12.0]), once=True, **options)


def test_the_last_step_need_not_be_evaluated():
    start = TOP + 1e-4 * AWAY
    found = maximised(quadratic(1.0), start, unseen=1.0)
    assert found.iterations == 0
    assert found.evaluations == 1
    np.testing.assert_allclose(found.v, TOP, rtol=1e-9)
    assert found.loglike == pytest.approx(7.0, abs=1e-13)
    assert found.log[-1].components == tuple(start)
    assert found.log[-1].loglike < 7.0 - 1e-11
    found = maximised(quadratic(1.0), start)
    assert found.iterations == 1
    assert found.loglike == found.log[-1].loglike


@pytest.mark.parametrize(("away", "unseen"), [(1.0, 1e-5), (1.0, 1e-7), (1e-3, 1e-5)])
def test_the_last_step_is_as_good_as_the_one_before(away, unseen):
    """Steps of 1/1.25 leave a fifth: the last is the one that leaves less than `unseen`."""
    found = maximised(quadratic(1.25), TOP + away * AWAY, unseen=unseen)
    decrements = [point.newton_decrement for point in found.log]
    np.testing.assert_allclose(np.divide(decrements[1:], decrements[:-1]), 0.2, rtol=1e-5)
    assert 0.2 * decrements[-1] <= unseen < 0.2 * decrements[-2]
    last = np.array(found.log[-1].components)
    np.testing.assert_allclose(found.v, last + (TOP - last) / 1.25, rtol=1e-12)
    assert found.loglike == pytest.approx(
        found.log[-1].loglike + 0.5 * decrements[-1] ** 2, rel=1e-15
    )
    assert found.evaluations == found.iterations + 1 == len(found.log)


@pytest.mark.parametrize(
    ("residual", "held", "saturated"),
    [(1e-9, (), True), (1e-9, (1,), True), (1e-9, (2,), False), (1e-4, (), False)],
)
def test_a_likelihood_whose_residual_vanishes_is_saturated(residual, held, saturated):
    told, mask = Told(np.zeros(3), np.eye(3)), np.isin(np.arange(3), held)
    found = maximised(told, np.array([2.0, 1.0, residual]), held=mask)
    assert found.saturated is saturated
    np.testing.assert_array_equal(found.held, mask)


def test_a_climb_is_at_its_limit_after_so_many_steps():
    """Not where no step raises the value, and not at a maximum."""
    start = HERE.copy()
    for max_iter in (0, 1):
        stuck = Told(SCORE, AVERAGE, lambda v: 0.0 if (v == start).all() else -1.0)
        found = maximised(stuck, start, max_iter=max_iter)
        assert (found.converged, found.at_limit) == (False, max_iter == 0)
        found = maximised(Told(0.0 * SCORE, AVERAGE), start, max_iter=max_iter)
        assert (found.converged, found.at_limit) == (True, False)
    found = maximised(quadratic(1.25), TOP + AWAY, max_iter=2)
    assert (found.converged, found.at_limit, found.iterations) == (False, True, 2)
