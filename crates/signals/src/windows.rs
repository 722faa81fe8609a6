//! Windows of many edges, as many as there is room for.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use crate::{Interner, KEPT_TICKS, Sample, Tick, Window};

/// Windows of pairs, such as a client and a destination.
///
/// A window whose newest sample is a quarter of an hour old is dropped when the next sample comes. Each window stands
/// in a queue once, so that dropping costs what is dropped.
#[derive(Debug)]
pub struct Windows<From, To> {
    windows: HashMap<PairNumber, Window>,
    froms: Interner<From>,
    tos: Interner<To>,
    /// Windows by the tick in which each was last looked at.
    aging: VecDeque<Aging>,
    limit: usize,
    /// Number of samples that there was no room for.
    dropped: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PairNumber {
    from: u32,
    to: u32,
}

#[derive(Debug)]
struct Aging {
    looked_at: Tick,
    pair: PairNumber,
}

/// The calls of a pair over the time that was asked for.
#[derive(Debug)]
pub struct Entry<'a, From, To> {
    pub from: &'a From,
    pub to: &'a To,
    pub sample: Sample,
}

impl<From: Hash + Eq + Clone, To: Hash + Eq + Clone> Windows<From, To> {
    pub fn with_limit(limit: usize) -> Windows<From, To> {
        Windows {
            windows: HashMap::new(),
            froms: Interner::default(),
            tos: Interner::default(),
            aging: VecDeque::new(),
            limit,
            dropped: 0,
        }
    }

    /// Adds a sample. Returns false, and counts it, if the pair is new and there is no room for it.
    pub fn record(&mut self, from: &From, to: &To, tick: Tick, sample: &Sample) -> bool {
        self.forget(tick);
        let known = self.froms.find(from).zip(self.tos.find(to)).map(|(from, to)| PairNumber { from, to });
        if let Some(window) = known.and_then(|pair| self.windows.get_mut(&pair)) {
            window.record(tick, sample);
            return true;
        }
        if self.windows.len() >= self.limit {
            self.dropped = self.dropped.saturating_add(1);
            return false;
        }
        let pair = PairNumber { from: self.froms.acquire(from), to: self.tos.acquire(to) };
        let mut window = Window::default();
        window.record(tick, sample);
        self.windows.insert(pair, window);
        self.aging.push_back(Aging { looked_at: tick, pair });
        true
    }

    /// Pairs with calls in the last `ticks` ticks.
    pub fn last(&self, now: Tick, ticks: Tick) -> impl Iterator<Item = Entry<'_, From, To>> {
        self.windows.iter().filter_map(move |(pair, window)| {
            let sample = window.last(now, ticks);
            if sample.is_empty() {
                return None;
            }
            let from = self.froms.get(pair.from)?;
            let to = self.tos.get(pair.to)?;
            Some(Entry { from: from.as_ref(), to: to.as_ref(), sample })
        })
    }

    pub fn len(&self) -> usize {
        self.windows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Number of samples of new pairs that there was no room for.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Drops windows without a sample in the last quarter of an hour.
    fn forget(&mut self, now: Tick) {
        while let Some(Aging { looked_at, pair }) = self.aging.front()
            && looked_at.saturating_add(KEPT_TICKS) <= now
        {
            let pair = *pair;
            self.aging.pop_front();
            let newest = self.windows.get(&pair).map_or(0, Window::newest);
            if newest.saturating_add(KEPT_TICKS) > now {
                self.aging.push_back(Aging { looked_at: newest, pair });
            } else {
                self.windows.remove(&pair);
                self.froms.release(pair.from);
                self.tos.release(pair.to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Counter;

    fn one() -> Sample {
        Sample::default().with(Counter::Requests, 1)
    }

    #[test]
    fn pairs_are_limited_and_those_left_out_are_counted() {
        let mut windows = Windows::<u32, u32>::with_limit(3);
        for from in 0..5 {
            windows.record(&from, &0, 7, &one());
        }
        assert_eq!((windows.len(), windows.dropped()), (3, 2));
        assert!(windows.record(&1, &0, 8, &one()), "a known pair goes on");
    }

    #[test]
    fn pairs_without_calls_make_room_after_a_quarter_of_an_hour() {
        let mut windows = Windows::<u32, u32>::with_limit(2);
        windows.record(&1, &1, 100, &one());
        windows.record(&2, &1, 100, &one());
        windows.record(&2, &1, 150, &one());
        assert!(!windows.record(&3, &1, 189, &one()));
        assert!(windows.record(&3, &1, 190, &one()));
        let mut froms: Vec<u32> = windows.last(190, KEPT_TICKS).map(|entry| *entry.from).collect();
        froms.sort_unstable();
        assert_eq!(froms, [2, 3]);
        // The other one makes room in its time, too.
        assert!(windows.record(&4, &4, 240, &one()));
        assert_eq!((windows.froms.len(), windows.tos.len()), (2, 2));
    }
}
