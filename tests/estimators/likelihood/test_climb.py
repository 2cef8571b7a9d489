"""When a climb ends, and which of several is the highest: by places that are written out."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from vcomp.estimators.likelihood.climbing import Place
from vcomp.estimators.likelihood.engine import Derivatives
from vcomp.estimators.likelihood.maximisation import _ends_better, _Iterate, _kkt_residual


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
        np.array([2.0, 0.0, 0.0, 3.0]),
        np.array([-0.1, 0.3, -9.0, 0.01]),
        np.zeros(4, bool),
    )
    assert _kkt_residual(v, score, free) == pytest.approx(5.0 * 0.3)
    held = np.array([False, True, False, False])
    assert _kkt_residual(v, score, held) == pytest.approx(0.2)
    assert _kkt_residual(v, score, np.ones(4, bool)) == 0.0
