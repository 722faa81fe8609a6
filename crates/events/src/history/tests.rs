use contract::events::EventKind;
use jiff::SignedDuration;
use proptest::prelude::*;
use resources::{Key, Kind};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn of(mesh: &str, proxy: &str) -> Occurrence {
    Occurrence::of(EventKind::ProxyConnected, &Key::new(Kind::Dataplane, mesh, proxy), "it connected")
}

fn history(all: usize, of_mesh: usize) -> History {
    let extent = |events: usize| Extent { events, bytes: 1 << 20 };
    let bounds = Bounds { age: Duration::from_secs(3600), all: extent(all), of_mesh: extent(of_mesh) };
    History::new(ProcessId::random(), bounds)
}

fn kept(history: &History) -> Vec<String> {
    let all = history.after(0, usize::MAX);
    all.iter().map(|event| format!("{}/{} {}", event.mesh, event.name, event.number)).collect()
}

#[test]
fn events_are_kept_in_order_for_an_hour() {
    let mut history = history(10, 10);
    history.record(of("default", "a"), at(0));
    history.record(of("default", "b"), at(1800));
    assert_eq!(kept(&history), ["default/a 1", "default/b 2"]);
    history.expire(at(3600));
    assert_eq!((kept(&history).len(), history.forgotten(None)), (2, 0));
    history.expire(at(3601));
    assert_eq!((kept(&history), history.forgotten(None)), (vec!["default/b 2".to_owned()], 1));
    history.record(of("default", "c"), at(9000));
    assert_eq!(kept(&history), ["default/c 3"]);
    assert_eq!(history.evicted(), 0, "they were old");
}

#[test]
fn a_noisy_proxy_pushes_out_its_own_events_only() {
    let mut history = history(100, 6);
    history.record(of("default", "quiet"), at(0));
    history.record(of("default", "other"), at(0));
    for second in 1..1000 {
        history.record(of("default", "noisy"), at(second));
    }
    let all = kept(&history);
    assert_eq!(&all[..2], ["default/quiet 1", "default/other 2"]);
    assert_eq!(all[2..], (998..=1001).map(|number| format!("default/noisy {number}")).collect::<Vec<_>>());
    assert_eq!(history.evicted(), 1001 - 6);
}

#[test]
fn a_noisy_mesh_pushes_out_its_own_events_only() {
    let mut history = history(8, 6);
    history.record(of("quiet", "a"), at(0));
    history.record(of("", "zone-ingress"), at(0));
    for number in 0..500 {
        history.record(of("noisy-1", &format!("p{number}")), at(1));
        history.record(of("noisy-2", &format!("p{number}")), at(1));
    }
    let all = kept(&history);
    assert_eq!(all.len(), 8, "{all:?}");
    assert_eq!(&all[..2], ["quiet/a 1", "/zone-ingress 2"]);
    assert_eq!(history.forgotten(Some("quiet")), 0, "who follows this mesh has missed nothing");
    assert!(history.forgotten(None) > 900);
}

#[test]
fn bytes_are_bounded_as_numbers_are() {
    let most = 100_000;
    let extent = Extent { events: usize::MAX, bytes: most };
    let bounds = Bounds { age: Duration::from_secs(3600), all: extent, of_mesh: extent };
    let mut history = History::new(ProcessId::random(), bounds);
    let key = Key::new(Kind::Dataplane, "default", &"n".repeat(10_000));
    for _ in 0..1000 {
        let long = Occurrence::of(EventKind::ConfigurationRejected, &key, "\u{1}".repeat(100_000));
        history.record(long, at(0));
        assert!(history.extent.bytes <= most);
    }
    let largest = history.after(0, 1).remove(0).size();
    assert!(largest < 16 << 10, "one event is bounded, too: {largest}");
}

#[test]
fn what_is_hostile_in_names_and_messages_stays_in_its_line() {
    let mut history = history(10, 10);
    let key = Key::new(Kind::Dataplane, "default", "web\n\nid: 9\nevent: cut\r\ndata: forged");
    let hostile =
        Occurrence::of(EventKind::ConfigurationRejected, &key, "\r\n\r\ndata: {}\u{2028}\u{0}\u{1b}[2J");
    let event = history.record(hostile, at(0));
    let frame = String::from_utf8(event.frame(true).to_vec()).unwrap();
    assert_eq!(frame.lines().count(), 3, "an id, data, and the empty line: {frame}");
    let data = frame.lines().nth(1).unwrap().strip_prefix("data: ").unwrap();
    let read: contract::events::Event = serde_json::from_str(data).unwrap();
    assert_eq!(read.name, &*key.name);
}

#[test]
fn a_user_is_shown_to_those_alone_who_may_see_it() {
    let mut history = history(10, 10);
    let key = Key::new(Kind::MeshTimeout, "default", "slow");
    let write = Occurrence::of(EventKind::Written, &key, "created").by("john/dev", "create");
    let event = history.record(write, at(0));
    let read = |json: &[u8]| serde_json::from_slice::<contract::events::Event>(json).unwrap();
    assert_eq!(read(event.json(true)).user, "john/dev");
    assert_eq!(read(event.json(false)).user, "");
    assert!(!String::from_utf8_lossy(&event.frame(false)).contains("john"));
    assert_eq!(read(event.json(false)).action, "create");
}

proptest! {
    /// Whatever happens, in whatever order of time.
    #[test]
    fn bounds_hold_and_nothing_is_forgotten_unnoticed(
        steps in proptest::collection::vec((0usize..4, 0usize..6, -200i64..2000), 1..300)
    ) {
        let mut history = history(20, 8);
        let mut now = 0;
        let mut recorded = Vec::new();
        for (mesh, proxy, later) in steps {
            now += later;
            let event = history.record(of(&format!("m{mesh}"), &format!("p{proxy}")), at(now));
            recorded.push((event.number, event.mesh.clone(), event.size()));
            let there = history.after(0, usize::MAX);
            prop_assert!(there.len() <= 20);
            let bytes: usize = there.iter().map(|event| event.size()).sum();
            prop_assert_eq!(history.extent, Extent { events: there.len(), bytes });
            for mesh in 0..4 {
                let mesh = format!("m{mesh}");
                prop_assert!(there.iter().filter(|event| *event.mesh == *mesh).count() <= 8);
                let gone = recorded.iter().filter(|(number, of, _)| {
                    **of == *mesh && !there.iter().any(|event| event.number == *number)
                });
                let newest_gone = gone.map(|(number, _, _)| *number).max().unwrap_or_default();
                prop_assert!(history.forgotten(Some(&mesh)) >= newest_gone);
                prop_assert!(history.forgotten(None) >= history.forgotten(Some(&mesh)));
            }
        }
        let long_after = at(now) + SignedDuration::from_hours(100_000);
        history.expire(long_after);
        prop_assert_eq!(history.extent, Extent::default());
    }
}
