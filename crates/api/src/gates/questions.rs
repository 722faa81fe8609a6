//! Questions that take long to answer: each caller has one worked out and one waiting.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Error, User};

/// Questions that one caller may have at a time: one that is worked out and one that waits for it.
const PER_CALLER: usize = 2;
/// The part of an IPv6 address that an operator gives to one customer.
const IPV6_PREFIX: u32 = 64;

/// Questions in progress and their callers.
#[derive(Debug)]
pub struct Questions {
    callers: Arc<Mutex<HashMap<Caller, Queue>>>,
    /// Taking a question apart takes many times its size.
    slots: Arc<Semaphore>,
}

/// Somebody who asks: a user by name, and callers without one by address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Caller {
    User(String),
    Address(Option<IpAddr>),
}

impl Caller {
    fn of(user: &User, peer: Option<IpAddr>) -> Caller {
        if *user != User::anonymous() {
            return Caller::User(user.name.clone());
        }
        let network = |ip: Ipv6Addr| Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << (128 - IPV6_PREFIX)));
        Caller::Address(match peer {
            Some(IpAddr::V6(ip)) => Some(network(ip).into()),
            peer => peer,
        })
    }
}

/// The questions of one caller.
#[derive(Debug)]
struct Queue {
    count: usize,
    turn: Arc<Semaphore>,
}

impl Questions {
    /// Works out so many questions of all callers at a time.
    pub fn new(slots: usize) -> Questions {
        Questions { callers: Arc::default(), slots: Arc::new(Semaphore::new(slots)) }
    }

    /// Waits for the caller's turn, unless another question of the caller waits already.
    pub async fn ask(&self, user: &User, peer: Option<IpAddr>) -> Result<QuestionTurn, Error> {
        let caller = Caller::of(user, peer);
        let turn = {
            let mut callers = lock(&self.callers);
            let queue = callers.entry(caller.clone());
            let queue = queue.or_insert_with(|| Queue { count: 0, turn: Arc::new(Semaphore::new(1)) });
            if queue.count >= PER_CALLER {
                return Err(Error::TooMany(
                    "a question of yours about what changes would do is being worked out, and another one waits: ask \
                     again when one of them is answered"
                        .to_owned(),
                ));
            }
            queue.count += 1;
            queue.turn.clone()
        };
        let mut asking =
            QuestionTurn { callers: self.callers.clone(), caller, permits: Vec::with_capacity(2) };
        for semaphore in [turn, self.slots.clone()] {
            asking.permits.extend(semaphore.acquire_owned().await.ok());
        }
        Ok(asking)
    }
}

/// A question that is worked out until this is dropped.
#[derive(Debug)]
pub struct QuestionTurn {
    callers: Arc<Mutex<HashMap<Caller, Queue>>>,
    caller: Caller,
    permits: Vec<OwnedSemaphorePermit>,
}

impl Drop for QuestionTurn {
    fn drop(&mut self) {
        self.permits.clear();
        let mut callers = lock(&self.callers);
        if let Some(queue) = callers.get_mut(&self.caller) {
            queue.count -= 1;
            if queue.count == 0 {
                callers.remove(&self.caller);
            }
        }
    }
}

fn lock(callers: &Mutex<HashMap<Caller, Queue>>) -> MutexGuard<'_, HashMap<Caller, Queue>> {
    callers.lock().unwrap_or_else(PoisonError::into_inner)
}
