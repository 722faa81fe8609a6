//! Connections during a change of the rules.

use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use testkit::netns::Namespace;

use crate::{
    redirect::{LEGACY, families, redirected},
    world::{World, call_until},
};

const REPLACEMENTS: u16 = 20;
const DEADLINE: Duration = Duration::from_secs(60);

/// Rules that differ in one excluded port. Root is an application here: a thread of this process calls much more
/// often than programs of another user could.
fn settings(port: u16, programs: &str) -> String {
    format!("kumaDPUser: nobody\nredirect: {{outbound: {{excludePorts: [{port}]}}}}\n{programs}")
}

/// Waits until one more call has begun and ended.
fn wait_for_a_call(calls: &AtomicUsize) {
    let before = calls.load(Ordering::Relaxed);
    let began = Instant::now();
    while calls.load(Ordering::Relaxed) < before + 2 {
        assert!(began.elapsed() < DEADLINE, "no call ends");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Ends the callers, also when a replacement fails.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn no_call_slips_through(programs: &str, mode: &str) {
    let Some(world) = World::new() else { return };
    world.install(&settings(1, programs)).unwrap();
    let mut routes: Vec<(&Namespace, IpAddr, u16)> = Vec::new();
    for (here, there) in families(&world) {
        routes.push((&world.here.namespace, there, 15001));
        routes.push((&world.there.namespace, here, 15006));
    }
    let stop = AtomicBool::new(false);
    let counters: Vec<AtomicUsize> = routes.iter().map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        let callers: Vec<_> = routes
            .iter()
            .zip(&counters)
            .map(|(&(from, ip, envoy), calls)| {
                let target = SocketAddr::new(ip, 8080);
                let stop = &stop;
                let caller = scope.spawn(move || call_until(from, target, stop, calls));
                (caller, redirected(envoy, ip, 8080))
            })
            .collect();
        let ending = Stop(&stop);
        for port in 2..REPLACEMENTS + 2 {
            world.install(&settings(port, programs)).unwrap();
            counters.iter().for_each(wait_for_a_call);
        }
        drop(ending);
        for (caller, expected) in callers {
            assert_eq!(Vec::from_iter(caller.join().unwrap()), [expected]);
        }
    });
    let last = format!("--dport {} ", REPLACEMENTS + 1);
    assert!(world.saved(mode).contains(&last), "the last settings hold");
}

#[test]
fn no_call_slips_through_while_rules_are_replaced() {
    no_call_slips_through("", "nft");
}

#[test]
fn no_call_slips_through_while_the_legacy_programs_replace_rules() {
    no_call_slips_through(LEGACY, "legacy");
}
