//! The resolvers of the machine: `/etc/resolv.conf`, read again when it changed.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr, SocketAddrV6},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

const PORT: u16 = 53;
/// For one resolver. Shorter than the 5 s after which applications ask again, so that there is time for another.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);
const DEFAULT_ATTEMPTS: u32 = 2;
/// Largest values in resolv.conf, as in libc.
const MAX_TIMEOUT: u64 = 30;
const MAX_ATTEMPTS: u32 = 5;
/// Time for which a resolver that did not answer is asked last.
const REST: Duration = Duration::from_secs(10);

/// The resolvers of the machine.
#[derive(Debug)]
pub struct Resolvers {
    path: PathBuf,
    /// Addresses at which this server itself listens.
    own: Vec<SocketAddr>,
    read: Mutex<Read>,
}

#[derive(Debug)]
struct Read {
    stamp: Option<Stamp>,
    list: Arc<ResolverList>,
}

/// Differs when the file was written or replaced.
type Stamp = (i64, i64, u64, u64);

/// Content of the file.
#[derive(Debug)]
pub struct ResolverList {
    resolvers: Vec<Resolver>,
    pub timeout: Duration,
    pub attempts: u32,
    /// Begin with another one each time.
    rotate: bool,
    turn: AtomicUsize,
}

#[derive(Debug)]
pub struct Resolver {
    pub address: SocketAddr,
    silent: Mutex<Option<Instant>>,
}

impl Resolvers {
    pub fn new(path: PathBuf, own: Vec<SocketAddr>) -> Resolvers {
        let empty = Arc::new(ResolverList::parse(""));
        let resolvers = Resolvers { path, own, read: Mutex::new(Read { stamp: None, list: empty }) };
        if let Err(error) = resolvers.read_again() {
            let file = resolvers.path.display();
            tracing::warn!(%file, %error, "there are no resolvers; names outside of the mesh are not resolved");
        }
        resolvers
    }

    /// The resolvers of now. Looking at the file's date takes microseconds and the file is small, so there is no
    /// need to do that elsewhere.
    pub fn current(&self) -> Arc<ResolverList> {
        if let Err(error) = self.read_again() {
            tracing::debug!(%error, "cannot read resolv.conf; keeping the last resolvers");
        }
        self.read.lock().unwrap_or_else(PoisonError::into_inner).list.clone()
    }

    fn read_again(&self) -> io::Result<()> {
        let stamp = stamp(&self.path)?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.stamp == Some(stamp) {
            return Ok(());
        }
        let mut list = ResolverList::parse(&fs::read_to_string(&self.path)?);
        let file = self.path.display();
        let all = list.resolvers.len();
        list.resolvers.retain(|resolver| !self.own.contains(&resolver.address));
        if list.resolvers.len() < all {
            tracing::warn!(%file, "lists this DNS server itself as a resolver; ignoring that entry");
        }
        if list.resolvers.is_empty() {
            tracing::warn!(%file, "lists no other resolver; names outside of the mesh are not resolved");
        }
        *read = Read { stamp: Some(stamp), list: Arc::new(list) };
        Ok(())
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.mtime(), metadata.mtime_nsec(), metadata.size(), metadata.ino()))
}

impl ResolverList {
    /// Reads the format of resolv.conf(5). An address may have a port, as `127.0.0.1:5353` or `[::1]:5353`.
    fn parse(text: &str) -> ResolverList {
        let mut list = ResolverList {
            resolvers: Vec::new(),
            timeout: DEFAULT_TIMEOUT,
            attempts: DEFAULT_ATTEMPTS,
            rotate: false,
            turn: AtomicUsize::new(0),
        };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address = words.next().and_then(address);
                    list.resolvers
                        .extend(address.map(|address| Resolver { address, silent: Mutex::default() }));
                }
                Some("options") => words.for_each(|option| list.set(option)),
                _ => {}
            }
        }
        list
    }

    fn set(&mut self, option: &str) {
        let number = |text: &str| text.parse::<u64>().ok();
        match option.split_once(':') {
            Some(("timeout", text)) => {
                if let Some(seconds) = number(text) {
                    self.timeout = Duration::from_secs(seconds.clamp(1, MAX_TIMEOUT));
                }
            }
            Some(("attempts", text)) => {
                let attempts = number(text).and_then(|attempts| u32::try_from(attempts).ok());
                self.attempts = attempts.unwrap_or(self.attempts).clamp(1, MAX_ATTEMPTS);
            }
            None if option == "rotate" => self.rotate = true,
            _ => {}
        }
    }

    /// The servers to ask, one after another.
    pub fn in_order(&self, now: Instant) -> Vec<&Resolver> {
        let mut order: Vec<&Resolver> = self.resolvers.iter().collect();
        if self.rotate && !order.is_empty() {
            let first = self.turn.fetch_add(1, Ordering::Relaxed) % order.len();
            order.rotate_left(first);
        }
        order.sort_by_key(|resolver| resolver.rests(now));
        order
    }
}

impl Resolver {
    /// It did not answer.
    pub fn was_silent(&self) {
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub fn answered(&self) {
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn rests(&self, now: Instant) -> bool {
        let silent = *self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.is_some_and(|since| now.duration_since(since) < REST)
    }
}

fn address(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(SocketAddr::new(address, PORT));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address);
    }
    // A resolver of the local link is found through one interface.
    let (address, interface) = text.split_once('%')?;
    let index = || fs::read_to_string(format!("/sys/class/net/{}/ifindex", plain(interface)?)).ok();
    let scope = interface.parse().ok().or_else(|| index()?.trim().parse().ok())?;
    Some(SocketAddrV6::new(address.parse().ok()?, PORT, 0, scope).into())
}

/// The name of an interface that leads nowhere else when it is part of a path.
fn plain(interface: &str) -> Option<&str> {
    (!interface.contains('/') && !interface.starts_with('.')).then_some(interface)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &ResolverList) -> Vec<String> {
        at(list, Instant::now())
    }

    fn at(list: &ResolverList, now: Instant) -> Vec<String> {
        list.in_order(now).iter().map(|resolver| resolver.address.to_string()).collect()
    }

    #[test]
    fn resolv_conf_is_read_as_libc_reads_it() {
        let list = ResolverList::parse(
            "# nameserver 9.9.9.9\n; nameserver 8.8.8.8\nsearch mesh.local\nnameserver 10.0.0.10\n  \n\
             nameserver\t2001:db8::1 # second\nnameserver nonsense\nnameserver\nnameserver 127.0.0.1:5353\n\
             nameserver [::1]:5353\nnameserver fe80::1%7\noptions ndots:5 timeout:1 attempts:9 edns0\n",
        );
        let expect = ["10.0.0.10:53", "[2001:db8::1]:53", "127.0.0.1:5353", "[::1]:5353", "[fe80::1%7]:53"];
        assert_eq!(addresses(&list), expect);
        assert_eq!((list.timeout, list.attempts), (Duration::from_secs(1), MAX_ATTEMPTS));
        let list = ResolverList::parse(
            "options timeout:0 attempts:x rotate\nnameserver 10.0.0.1\nnameserver 10.0.0.2",
        );
        assert_eq!((list.timeout, list.attempts), (Duration::from_secs(1), DEFAULT_ATTEMPTS));
        assert_ne!(addresses(&list), addresses(&list));
        assert!(address("fe80::1%../../etc").is_none());
    }

    #[test]
    fn a_resolver_that_was_silent_is_asked_last_for_a_while() {
        let list = ResolverList::parse("nameserver 10.0.0.1\nnameserver 10.0.0.2");
        list.resolvers[0].was_silent();
        assert_eq!(addresses(&list), ["10.0.0.2:53", "10.0.0.1:53"]);
        assert_eq!(at(&list, Instant::now() + REST), ["10.0.0.1:53", "10.0.0.2:53"]);
        list.resolvers[0].answered();
        assert_eq!(addresses(&list), ["10.0.0.1:53", "10.0.0.2:53"]);
    }

    #[test]
    fn a_changed_file_is_read_again_and_the_server_never_asks_itself() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let own: SocketAddr = "127.0.0.1:15053".parse().unwrap();
        fs::write(file.path(), "nameserver 127.0.0.1:15053\nnameserver 10.0.0.1\n").unwrap();
        let resolvers = Resolvers::new(file.path().to_owned(), vec![own]);
        assert_eq!(addresses(&resolvers.current()), ["10.0.0.1:53"]);
        fs::write(file.path(), "nameserver 10.0.0.200\n").unwrap();
        assert_eq!(addresses(&resolvers.current()), ["10.0.0.200:53"]);
        fs::remove_file(file.path()).unwrap();
        assert_eq!(addresses(&resolvers.current()), ["10.0.0.200:53"]);
    }
}
