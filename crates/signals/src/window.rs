//! The last quarter of an hour of one edge, in few bytes.

use crate::{KEPT_TICKS, Sample, Tick, encoding};

/// Samples of an edge by the ticks in which they came.
///
/// Slots follow each other as bytes: the distance to the end of the slot before, the ticks that the slot covers, and
/// its sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    encoded: Vec<u8>,
    /// The tick from which the distance of the first slot counts.
    base: Tick,
    /// The tick that the newest slot ends with.
    newest: Tick,
    /// Begin of the newest slot in the bytes.
    tail: u16,
}

/// Calls of one or more neighbouring ticks.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slot {
    /// The last tick of the slot.
    end: Tick,
    /// Number of ticks.
    span: Tick,
    sample: Sample,
}

impl Slot {
    /// The tick in the middle, by which a slot belongs to a question or not.
    fn middle(&self) -> Tick {
        self.end.saturating_sub(self.span / 2)
    }

    /// Adds the slot before.
    fn join(&mut self, older: Slot) {
        let span = self.end.saturating_sub(older.end.saturating_sub(older.span));
        // Samples so large that only one has room would be added up forever.
        if span <= KEPT_TICKS {
            self.span = span;
            self.sample.add(&older.sample);
        }
    }
}

impl Window {
    /// Largest number of bytes of a window. A slot has at most 290.
    pub const MAX_BYTES: usize = 400;
    /// Bytes that are left free when ticks are joined, so that not every sample joins some.
    const SPARE: usize = 64;

    /// Adds a sample that came in this tick. Time does not go back: an earlier tick counts as the newest one.
    pub fn record(&mut self, tick: Tick, sample: &Sample) {
        let tick = tick.max(self.newest);
        self.forget(tick);
        if self.encoded.is_empty() {
            self.base = tick.saturating_sub(1);
            self.append(&Slot { end: tick, span: 1, sample: sample.clone() }, self.base);
        } else if tick == self.newest {
            self.add_to_newest(sample);
        } else {
            let before = self.newest;
            self.append(&Slot { end: tick, span: 1, sample: sample.clone() }, before);
        }
        if self.encoded.len() > Window::MAX_BYTES {
            self.compact();
        }
    }

    /// The calls of the last `ticks` ticks up to now.
    pub fn last(&self, now: Tick, ticks: Tick) -> Sample {
        let from = now.saturating_sub(ticks);
        let mut sum = Sample::default();
        for slot in self.slots().filter(|slot| slot.middle() > from) {
            sum.add(&slot.sample);
        }
        sum
    }

    /// The tick of the newest sample.
    pub fn newest(&self) -> Tick {
        self.newest
    }

    /// Bytes that the samples take.
    pub fn bytes(&self) -> usize {
        self.encoded.capacity()
    }

    fn slots(&self) -> Slots<'_> {
        Slots { rest: &self.encoded, end: self.base }
    }

    fn append(&mut self, slot: &Slot, before: Tick) {
        self.tail = u16::try_from(self.encoded.len()).unwrap_or(u16::MAX);
        let mut bytes = Vec::new();
        slot.put(&mut bytes, before);
        // Vectors double otherwise, and there are many.
        self.encoded.reserve_exact(bytes.len());
        self.encoded.extend_from_slice(&bytes);
        self.newest = slot.end;
    }

    /// Adds to the newest slot: another proxy reported the same edge.
    fn add_to_newest(&mut self, sample: &Sample) {
        let tail = usize::from(self.tail);
        let mut bytes = self.encoded.get(tail..).unwrap_or_default();
        let Some(distance) = encoding::take(&mut bytes) else { return };
        let Some(span) = encoding::take(&mut bytes) else { return };
        let Some(mut sum) = encoding::take_sample(&mut bytes) else { return };
        sum.add(sample);
        self.encoded.truncate(tail);
        let before = self.newest.saturating_sub(distance);
        self.append(&Slot { end: self.newest, span, sample: sum }, before);
    }

    /// Drops slots that are too old.
    fn forget(&mut self, now: Tick) {
        let mut slots = self.slots();
        let mut kept = slots.clone();
        while let Some(slot) = slots.next() {
            if slot.end.saturating_add(KEPT_TICKS) > now {
                break;
            }
            kept = slots.clone();
        }
        let dropped = self.encoded.len() - kept.rest.len();
        if dropped > 0 {
            self.base = kept.end;
            self.encoded.drain(..dropped);
            self.tail = self.tail.saturating_sub(u16::try_from(dropped).unwrap_or(u16::MAX));
        }
    }

    /// Joins neighbouring slots until there is room again: first those whose joint length is least noticed at their
    /// age, so that the last minute stays as it is while anything else can be joined.
    fn compact(&mut self) {
        let mut slots: Vec<Slot> = self.slots().collect();
        let mut bytes = self.encoded.len();
        let mut joined = Vec::new();
        while bytes > Window::MAX_BYTES - Window::SPARE && slots.len() > 1 {
            let blur = |i: &usize| {
                let (Some(older), Some(newer)) = (slots.get(*i), slots.get(*i + 1)) else { return u64::MAX };
                let span = newer.end.saturating_sub(older.end.saturating_sub(older.span));
                let age = self.newest.saturating_sub(newer.end) + 1;
                (u64::from(span) << 32) / u64::from(age)
            };
            let Some(at) = (0..slots.len() - 1).min_by_key(blur) else { break };
            let older = slots.remove(at);
            let Some(newer) = slots.get_mut(at) else { break };
            bytes = bytes.saturating_sub(older.bytes(&mut joined) + newer.bytes(&mut joined));
            newer.join(older);
            bytes += newer.bytes(&mut joined);
        }
        self.write(&slots);
    }

    /// Writes all slots anew.
    fn write(&mut self, slots: &[Slot]) {
        self.encoded.clear();
        let mut before = self.base;
        for slot in slots {
            self.tail = u16::try_from(self.encoded.len()).unwrap_or(u16::MAX);
            slot.put(&mut self.encoded, before);
            before = slot.end;
        }
        self.encoded.shrink_to_fit();
    }
}

impl Slot {
    /// Length of the slot in bytes, but for the distance to the one before.
    fn bytes(&self, buffer: &mut Vec<u8>) -> usize {
        buffer.clear();
        self.put(buffer, self.end);
        buffer.len()
    }

    fn put(&self, bytes: &mut Vec<u8>, before: Tick) {
        encoding::put(bytes, self.end.saturating_sub(before));
        encoding::put(bytes, self.span);
        encoding::put_sample(bytes, &self.sample);
    }
}

/// Slots in the order of time.
#[derive(Clone)]
struct Slots<'a> {
    rest: &'a [u8],
    /// End of the slot before.
    end: Tick,
}

impl Iterator for Slots<'_> {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        let distance = encoding::take(&mut self.rest)?;
        let span = encoding::take(&mut self.rest)?;
        let sample = encoding::take_sample(&mut self.rest)?;
        self.end = self.end.saturating_add(distance);
        Some(Slot { end: self.end, span, sample })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counter, Histogram};

    fn calls(count: u64) -> Sample {
        let mut sample = Sample::default().with(Counter::Requests, count).with(Counter::Responses2xx, count);
        sample.latency.record(3.0, count);
        sample
    }

    /// A sample in which everything is large.
    fn largest() -> Sample {
        let mut sample = Sample::default();
        Counter::ALL.into_iter().for_each(|counter| sample.count(counter, u64::MAX));
        (0..Histogram::BUCKETS).for_each(|bucket| sample.latency.add_to(bucket, u64::MAX));
        sample
    }

    #[test]
    fn the_last_minute_is_what_came_within_it() {
        let mut window = Window::default();
        (100..120).for_each(|tick| window.record(tick, &calls(1)));
        assert_eq!(window.last(119, 6).get(Counter::Requests), 6);
        assert_eq!(window.last(122, 6).get(Counter::Requests), 3);
        assert_eq!(window.last(400, 6), Sample::default());
        assert_eq!(window.last(119, KEPT_TICKS).get(Counter::Requests), 20);
    }

    #[test]
    fn what_is_older_than_a_quarter_of_an_hour_is_forgotten() {
        let mut window = Window::default();
        window.record(10, &calls(5));
        window.record(11, &calls(7));
        window.record(10 + KEPT_TICKS, &calls(1));
        assert_eq!(window.last(10 + KEPT_TICKS, 1000).get(Counter::Requests), 8);
        window.record(1_000_000, &calls(2));
        assert_eq!(window.last(1_000_000, Tick::MAX), calls(2));
    }

    #[test]
    fn a_clock_that_goes_back_adds_to_the_newest_tick() {
        let mut window = Window::default();
        window.record(500, &calls(1));
        window.record(100, &calls(2));
        assert_eq!((window.newest(), window.last(500, 1)), (500, calls(3)));
    }

    #[test]
    fn busy_edges_keep_their_last_minute_as_it_was_and_all_their_counts() {
        let mut window = Window::default();
        for tick in 0..KEPT_TICKS {
            let mut sample = calls(u64::from(tick) * 1000);
            (0..12).for_each(|i| sample.latency.record(f64::from(i * i), 200));
            window.record(tick, &sample);
            assert!(window.bytes() <= Window::MAX_BYTES, "{} bytes", window.bytes());
        }
        let all: u64 = (0..90).map(|tick| tick * 1000).sum();
        assert_eq!(window.last(89, KEPT_TICKS).get(Counter::Requests), all);
        let minute: u64 = (84..90).map(|tick| tick * 1000).sum();
        assert_eq!(window.last(89, 6).get(Counter::Requests), minute);
    }

    #[test]
    fn the_largest_samples_have_room() {
        let mut window = Window::default();
        for tick in 0..200 {
            window.record(tick, &largest());
            assert!(window.bytes() <= Window::MAX_BYTES, "{} bytes", window.bytes());
        }
        assert_eq!(window.last(199, KEPT_TICKS).get(Counter::Denied), u64::from(u32::MAX));
        window.record(199 + KEPT_TICKS, &calls(1));
        assert_eq!(
            window.last(199 + KEPT_TICKS, KEPT_TICKS),
            calls(1),
            "the largest ones are forgotten in their time"
        );
    }
}
