//! Turns of units, without a driver.

use std::time::Duration;

use reconcile::{Moment, Next, Schedule};

const SECOND: Duration = Duration::from_secs(1);

fn next(schedule: &Schedule<&'static str>, now: Moment) -> Option<(Duration, &'static str)> {
    schedule.next(now).map(|(at, unit)| (at.saturating_duration_since(now.instant), unit))
}

#[test]
fn many_changes_of_a_unit_are_one_turn_and_the_first_comes_first() {
    let now = Moment::now();
    let mut schedule = Schedule::default();
    schedule.add("b", now.instant);
    let later = now.after(SECOND);
    for unit in ["a", "b", "a"] {
        schedule.add(unit, later.instant);
    }
    assert_eq!(schedule.backlog(), 2);
    assert_eq!(schedule.oldest(), Some(now.instant));
    for unit in ["b", "a"] {
        assert_eq!(next(&schedule, later), Some((Duration::ZERO, unit)));
        schedule.succeeded(&unit, Next::on_change(), later);
    }
    assert_eq!(next(&schedule, later), None);
    assert_eq!((schedule.backlog(), schedule.oldest()), (0, None));
}

#[test]
fn a_unit_rests_whatever_changes_and_others_do_not_wait_for_it() {
    let now = Moment::now();
    let mut schedule = Schedule::default();
    schedule.succeeded(&"a", Next::on_change().after(SECOND), now);
    assert_eq!(next(&schedule, now), None, "a rest alone is no reason to look");
    schedule.add("a", now.instant);
    assert_eq!(next(&schedule, now), Some((SECOND, "a")));
    schedule.add("b", now.instant);
    assert_eq!(next(&schedule, now), Some((Duration::ZERO, "b")));
    schedule.succeeded(&"a", Next::on_change().after(SECOND).again_if(true), now);
    schedule.succeeded(&"b", Next::on_change(), now);
    assert_eq!(next(&schedule, now), Some((SECOND, "a")), "there is more to do after the rest");
}

#[test]
fn a_deadline_is_on_the_wall_and_moves_when_the_wall_clock_is_set() {
    let now = Moment::now();
    let mut schedule = Schedule::default();
    let deadline = now.after(60 * SECOND).wall;
    schedule.succeeded(&"a", Next::on_change().at(Some(deadline)), now);
    assert_eq!(schedule.backlog(), 0, "nothing waits until then");
    assert_eq!(next(&schedule, now), Some((60 * SECOND, "a")));
    let set_forward = Moment { wall: now.after(50 * SECOND).wall, ..now };
    assert_eq!(next(&schedule, set_forward), Some((10 * SECOND, "a")));
    let suspended = Moment { wall: now.after(3600 * SECOND).wall, ..now };
    assert_eq!(next(&schedule, suspended), Some((Duration::ZERO, "a")));
    schedule.succeeded(&"b", Next::on_change().within(Some(5 * SECOND)), now);
    assert_eq!(next(&schedule, now), Some((5 * SECOND, "b")));
    assert_eq!(next(&schedule, set_forward), Some((5 * SECOND, "b")), "a delay is not on the wall");
    schedule.add("a", now.instant);
    assert_eq!(next(&schedule, now), Some((Duration::ZERO, "a")), "a change comes before");
}

#[test]
fn delays_grow_with_failures_and_start_over_after_a_success() {
    let mut now = Moment::now();
    let began = now.instant;
    let mut schedule = Schedule::default();
    schedule.add("a", now.instant);
    let mut delays = Vec::new();
    for _ in 0..5 {
        schedule.failed(&"a", now);
        schedule.add("a", now.instant);
        let (delay, _) = next(&schedule, now).unwrap();
        delays.push(delay.as_secs());
        now = now.after(delay);
    }
    assert_eq!(delays, [1, 2, 4, 5, 5]);
    assert_eq!(schedule.oldest(), Some(began), "it waits since the change");
    schedule.succeeded(&"a", Next::on_change(), now);
    schedule.outdated(&"a", now);
    let (delay, _) = next(&schedule, now).unwrap();
    assert!(delay < SECOND, "another writer was faster: {delay:?}");
}
