"""No wait for another party lasts beyond the moment that its sentence names, whatever the party does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quietmean.node.phase import Phase
from quietmean.node.session.context import FailureDetector

Deed = tuple[str, float]
DEEDS = st.tuples(
    st.sampled_from(
        ("heard", "missed", "gave_up", "delivered", "found_faulty", "presume_absent", "leave", "expect", "record_wait")
    ),
    st.floats(0.0, 50.0),
)


@given(st.lists(DEEDS, max_size=12), st.sampled_from(list(Phase)), st.booleans(), st.booleans(), st.floats(1e-3, 1e6))
def test_no_deadline_is_after_the_moment_that_is_said(
    deeds: list[Deed], phase: Phase, answer_due: bool, gone: bool, timeout: float
) -> None:
    now = 0.0
    detector, start = FailureDetector(timeout, lambda: now), 3.0 * timeout
    for deed, later in deeds:
        now += later * timeout
        match deed:
            case "heard":
                detector.heard(1, (int(phase), 1))
            case "gave_up":
                detector.gave_up(1, int(phase), start)
            case "record_wait":
                detector.record_wait(later * timeout)
            case _:
                getattr(detector, deed)(1)
        # With room for rounding.
        end = (start + detector.longest(int(phase))) * (1 + 1e-9)
        assert detector.deadline(1, int(phase), start, answer_due, gone) <= end
        assert detector.full_time(start, gone) <= end
