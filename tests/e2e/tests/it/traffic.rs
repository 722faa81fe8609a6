//! Calls that go on in the background while a test does something, each kind of them counted for itself.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use e2e::{eventually, service::call};

/// Calls of a lane after which it is known to work.
const ENOUGH: usize = 20;

/// Workers that call without end, one for each lane.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    lanes: Vec<Arc<Lane>>,
    workers: Vec<JoinHandle<()>>,
}

struct Lane {
    name: &'static str,
    answered: AtomicUsize,
    failures: Mutex<Vec<String>>,
}

impl Traffic {
    /// Begins when every lane is answered: a name, and where its outbound listens.
    pub fn start(lanes: &[(&'static str, Ipv4Addr, u16)]) -> Traffic {
        let stop = Arc::new(AtomicBool::new(false));
        let mut traffic = Traffic { stop, lanes: Vec::new(), workers: Vec::new() };
        for &(name, address, port) in lanes {
            let answer = || call(address, port).is_ok_and(|answer| answer.status == 200);
            eventually(&format!("an answer on {name}"), answer).unwrap();
            let lane = Arc::new(Lane { name, answered: AtomicUsize::new(0), failures: Mutex::default() });
            let stop = traffic.stop.clone();
            let counting = lane.clone();
            traffic.lanes.push(lane);
            traffic.workers.push(thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    counting.call(address, port);
                    thread::sleep(Duration::from_millis(5));
                }
            }));
        }
        traffic
    }

    /// Waits until every lane was answered some more.
    pub fn goes_on(&self) {
        for lane in &self.lanes {
            let before = lane.answered.load(Ordering::Relaxed);
            eventually(&format!("traffic on {}", lane.name), || {
                lane.answered.load(Ordering::Relaxed) >= before + ENOUGH
            })
            .unwrap_or_else(|error| panic!("{error}: {:?}", lane.failures.lock().unwrap()));
        }
    }

    /// Waits until every lane was answered some more, and looks whether any call has failed so far.
    pub fn is_unharmed(&self, meanwhile: &str) {
        self.goes_on();
        let failures = self.failures();
        assert!(failures.is_empty(), "{meanwhile}: {failures:?}");
    }

    /// Failures since the last call of this function.
    pub fn failures(&self) -> Vec<String> {
        let of_lane = |lane: &Arc<Lane>| {
            let failures = std::mem::take(&mut *lane.failures.lock().unwrap());
            let name = lane.name;
            failures.into_iter().map(move |failure| format!("{name}: {failure}"))
        };
        self.lanes.iter().flat_map(of_lane).collect()
    }
}

impl Lane {
    fn call(&self, address: Ipv4Addr, port: u16) {
        let failure = match call(address, port) {
            Ok(answer) if answer.status == 200 => {
                self.answered.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Ok(answer) => format!("{} {}", answer.status, answer.body),
            Err(error) => format!("{error:#}"),
        };
        self.failures.lock().unwrap().push(failure);
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}
