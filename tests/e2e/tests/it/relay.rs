//! Links between zones and their global control plane that a test cuts, silences and restores.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use e2e::Setup;

use crate::federated::Federation;

const ADDRESS: &str = "KUMA_MULTIZONE_ZONE_GLOBAL_ADDRESS";

/// TCP relay to a port of this machine, as long as the test wants.
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    target: u16,
    is_cut: AtomicBool,
    is_silent: AtomicBool,
    is_over: AtomicBool,
    open: Mutex<Vec<Pair>>,
}

/// The two ends of a connection.
struct Pair {
    near: TcpStream,
    far: TcpStream,
    /// Loses all bytes sent while set. A connection that has lost bytes stays so.
    is_silent: Arc<AtomicBool>,
}

impl Pair {
    fn close(&self) {
        for end in [&self.near, &self.far] {
            // It may be closed already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Relay {
    pub fn to(target: u16) -> Relay {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            target,
            is_cut: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let serving = shared.clone();
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if serving.is_over.load(Ordering::SeqCst) {
                    return;
                }
                serving.join(near);
            }
        });
        Relay { port, shared }
    }

    /// Closes every connection, and new ones at once.
    pub fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::SeqCst);
        self.shared.open.lock().unwrap().drain(..).for_each(|pair| pair.close());
    }

    /// Loses whatever is sent from now on, in both directions, and closes nothing: connections are half-open.
    pub fn silence(&self) {
        self.shared.is_silent.store(true, Ordering::SeqCst);
        for pair in self.shared.open.lock().unwrap().iter() {
            pair.is_silent.store(true, Ordering::SeqCst);
        }
    }

    /// Lets new connections through again. Those that have lost bytes are of no use and are closed.
    pub fn restore(&self) {
        self.shared.is_cut.store(false, Ordering::SeqCst);
        if self.shared.is_silent.swap(false, Ordering::SeqCst) {
            self.shared.open.lock().unwrap().drain(..).for_each(|pair| pair.close());
        }
    }
}

impl Shared {
    fn join(&self, near: TcpStream) {
        if self.is_cut.load(Ordering::SeqCst) {
            return;
        }
        let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.target)) else { return };
        let is_silent = Arc::new(AtomicBool::new(self.is_silent.load(Ordering::SeqCst)));
        for (from, to) in [(&near, &far), (&far, &near)] {
            from.set_nodelay(true).unwrap();
            let from = from.try_clone().unwrap();
            let to = to.try_clone().unwrap();
            let is_silent = is_silent.clone();
            thread::spawn(move || pump(from, to, &is_silent));
        }
        let mut open = self.open.lock().unwrap();
        open.push(Pair { near, far, is_silent });
        // The link may have been cut meanwhile.
        if self.is_cut.load(Ordering::SeqCst) {
            open.drain(..).for_each(|pair| pair.close());
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, is_silent: &AtomicBool) {
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !is_silent.load(Ordering::SeqCst) && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // The end of a silent connection is not announced either.
    if !is_silent.load(Ordering::SeqCst) {
        let _ = to.shutdown(Shutdown::Both);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// Zones whose links to the global control plane go through a relay each.
pub struct Relayed {
    pub federation: Federation,
    relays: BTreeMap<String, Relay>,
}

impl Relayed {
    /// `setup` gets `global` or the name of a zone.
    pub fn start(zones: &[&'static str], setup: impl Fn(&str, Setup) -> Setup) -> Relayed {
        let relays = RefCell::new(BTreeMap::new());
        let federation = Federation::start_with(zones, false, |name, own| {
            let own = setup(name, own);
            let Some(address) = own.environment.get(ADDRESS).cloned() else { return own };
            let (host, port) = address.rsplit_once(':').unwrap();
            let relay = Relay::to(port.parse().unwrap());
            let own = own.with(ADDRESS, format!("{host}:{}", relay.port));
            relays.borrow_mut().insert(name.to_owned(), relay);
            own
        });
        Relayed { federation, relays: relays.into_inner() }
    }

    pub fn relay(&self, zone: &str) -> &Relay {
        &self.relays[zone]
    }

    pub fn relays(&self) -> impl Iterator<Item = &Relay> {
        self.relays.values()
    }
}
