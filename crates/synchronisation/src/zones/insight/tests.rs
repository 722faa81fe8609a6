use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const BACK: Duration = Duration::from_secs(10);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn state() -> ZoneState {
    ZoneState::new(DeletionGuard::default())
}

/// Writes what is known, and has it stored.
fn saved(state: &mut ZoneState, stored: ZoneInsight, instance: &str, now: Timestamp) -> ZoneInsight {
    let insight = state.written(stored, instance, now);
    state.is_stored(&insight);
    insight
}

fn waits(in_touch_since: Option<Timestamp>) -> AbsenceDelays {
    AbsenceDelays { withdraw_after: MINUTE, back: BACK, in_touch_since }
}

fn withdrawn(state: &mut ZoneState, second: i64) -> Option<bool> {
    state.judge_absence(at(second), &waits(Some(at(0))));
    state.absence.as_ref().map(|absence| absence.withdrawn)
}

#[test]
fn a_zone_that_leaves_is_withdrawn_and_back_when_it_has_stayed() {
    let mut state = state();
    state.begin(ZoneStream::GlobalToZone, "1", "g", false, at(0));
    assert_eq!(withdrawn(&mut state, 0), None);
    state.end(ZoneStream::GlobalToZone, "1", at(100));
    assert_eq!(withdrawn(&mut state, 159), Some(false));
    assert_eq!(withdrawn(&mut state, 160), Some(true));
    state.begin(ZoneStream::GlobalToZone, "2", "g", false, at(200));
    assert_eq!(withdrawn(&mut state, 209), Some(true), "it may leave again at once");
    state.end(ZoneStream::GlobalToZone, "2", at(209));
    state.begin(ZoneStream::GlobalToZone, "3", "g", false, at(210));
    assert_eq!(withdrawn(&mut state, 219), Some(true));
    assert_eq!(withdrawn(&mut state, 220), None);
}

#[test]
fn a_global_that_is_cut_off_itself_withdraws_no_zone() {
    let mut state = state();
    state.begin(ZoneStream::GlobalToZone, "1", "g", false, at(0));
    state.end(ZoneStream::GlobalToZone, "1", at(100));
    let mut withdrawn = |second, in_touch_since: Option<i64>| {
        state.judge_absence(at(second), &waits(in_touch_since.map(at)));
        state.absence.as_ref().unwrap().withdrawn
    };
    assert!(!withdrawn(10_000, None));
    assert!(!withdrawn(10_059, Some(10_000)), "others have come back before it");
    assert!(withdrawn(10_060, Some(10_000)));
}

#[test]
fn a_zone_that_comes_back_in_time_was_never_withdrawn() {
    let mut state = state();
    state.begin(ZoneStream::GlobalToZone, "1", "g", false, at(0));
    state.end(ZoneStream::GlobalToZone, "1", at(100));
    state.begin(ZoneStream::GlobalToZone, "2", "g", false, at(110));
    assert_eq!(withdrawn(&mut state, 110), None);
}

#[test]
fn an_old_stream_that_ends_late_does_not_end_the_new_one() {
    let mut state = state();
    state.begin(ZoneStream::GlobalToZone, "1", "g", false, at(0));
    state.begin(ZoneStream::GlobalToZone, "2", "g", false, at(1));
    state.end(ZoneStream::GlobalToZone, "1", at(2));
    let insight = saved(&mut state, ZoneInsight::default(), "g", at(2));
    assert!(insight.is_online() && insight.absence.is_none());
    assert_eq!(insight.kds_streams.unwrap().global_to_zone.unwrap().connect_time, Some(at(1)));
    assert_eq!(insight.subscriptions.len(), 2);
}

#[test]
fn a_restart_ends_the_connections_of_its_predecessor_only() {
    let mut before = state();
    before.begin(ZoneStream::GlobalToZone, "1", "g", false, at(0));
    let stored = saved(&mut before, ZoneInsight::default(), "g", at(0));
    for (alone, online) in [(true, false), (false, true)] {
        let mut after = ZoneState::of(&stored, DeletionGuard::default(), alone, at(10));
        assert_eq!(saved(&mut after, stored.clone(), "g", at(10)).is_online(), online);
    }
}

#[test]
fn ten_connections_are_remembered() {
    let mut state = state();
    let mut insight = ZoneInsight::default();
    for n in 0..15 {
        state.begin(ZoneStream::GlobalToZone, &n.to_string(), "g", false, at(n));
        state.end(ZoneStream::GlobalToZone, &n.to_string(), at(n));
        insight = saved(&mut state, insight, "g", at(n));
    }
    assert_eq!(insight.subscriptions.len(), SUBSCRIPTIONS);
    assert_eq!(insight.subscriptions[0].id, "5");
}

#[test]
fn what_is_not_in_order_is_shown_until_it_is() {
    let mut state = state();
    state.problem(SyncProblemKind::ToZone, Kind::MeshTimeout, Some("no"));
    assert!(state.is_due(at(0), MINUTE));
    let insight = saved(&mut state, ZoneInsight::default(), "g", at(0));
    assert_eq!(insight.problems[0].kind, "MeshTimeout");
    assert_eq!(insight.problems[0].reason, "no");
    state.problem(SyncProblemKind::ToZone, Kind::MeshTimeout, Some("no"));
    assert!(!state.is_due(at(0), MINUTE), "it is known");
    state.problem(SyncProblemKind::ToZone, Kind::MeshRetry, Some(&"é".repeat(1 << 20)));
    let insight = saved(&mut state, insight, "g", at(0));
    assert_eq!(insight.problems.iter().map(|problem| problem.reason.len()).max(), Some(LONGEST_REASON));
    state.problem(SyncProblemKind::ToZone, Kind::MeshRetry, None);
    state.problem(SyncProblemKind::ToZone, Kind::MeshTimeout, None);
    assert_eq!(saved(&mut state, insight, "g", at(0)).problems, []);
}

#[test]
fn a_zone_that_moves_to_another_instance_is_not_away() {
    let mut first = state();
    let mut second = state();
    first.begin(ZoneStream::GlobalToZone, "1", "g", false, at(0));
    first.begin(ZoneStream::Stats, "2", "g", false, at(0));
    let stored = saved(&mut first, ZoneInsight::default(), "g", at(0));
    second.begin(ZoneStream::GlobalToZone, "3", "h", false, at(1));
    second.begin(ZoneStream::Stats, "4", "h", false, at(1));
    second.is_asked_at(ZoneStream::Stats, "10.0.0.2:5683");
    let stored = saved(&mut second, stored, "h", at(1));
    assert_eq!(stored.subscriptions[0].disconnect_time, Some(at(1)), "the old connection is over");

    first.end(ZoneStream::Stats, "2", at(2));
    first.end(ZoneStream::GlobalToZone, "1", at(2));
    let stored = saved(&mut first, stored, "g", at(2));
    assert!(stored.is_online() && stored.absence.is_none());
    assert_eq!(withdrawn(&mut first, 1000), None, "the zone is connected, and stays so");
    let stats = stored.kds_streams.unwrap().stats.unwrap();
    assert_eq!((stats.global_instance_id.as_str(), stats.global_address.as_str()), ("h", "10.0.0.2:5683"));
    assert_eq!(stored.envoy_admin_streams.unwrap().stats_global_instance_id, "h");
}

#[test]
fn a_zone_of_an_instance_that_died_is_away() {
    let mut died = state();
    died.begin(ZoneStream::GlobalToZone, "1", "g", false, at(0));
    let stored = saved(&mut died, ZoneInsight::default(), "g", at(0));
    let mut other = ZoneState::of(&stored, DeletionGuard::default(), false, at(0));
    other.is_lost(at(100));
    let stored = saved(&mut other, stored, "h", at(200));
    assert!(!stored.is_online() && stored.kds_streams.is_none());
    assert_eq!(stored.absence.unwrap().since, Some(at(100)));
    assert_eq!(withdrawn(&mut other, 160), Some(true));
}

#[test]
fn writes_of_a_faster_instance_are_merged_at_the_next_attempt() {
    let mut state = state();
    state.begin(ZoneStream::GlobalToZone, "1", "g", false, at(0));
    let before = saved(&mut state, ZoneInsight::default(), "g", at(0));
    state.end(ZoneStream::GlobalToZone, "1", at(5));
    state.written(before.clone(), "g", at(5));
    // It was not stored, because this one was.
    let mut other = ZoneState::of(&before, DeletionGuard::default(), false, at(5));
    other.alive(at(5));
    let stored = saved(&mut other, before, "h", at(5));
    let insight = saved(&mut state, stored, "g", at(6));
    assert_eq!(insight.subscriptions[0].disconnect_time, Some(at(5)));
    assert_eq!(insight.health_check.unwrap().time, Some(at(5)));
    assert!(insight.absence.is_some());
}
