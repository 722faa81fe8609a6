//! Sets of numbers that are mostly neighbours.

use std::collections::BTreeMap;

/// A set of numbers, kept as spans: by the first of each span, where it ends (not included).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spans(BTreeMap<u32, u32>);

impl Spans {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// From the lowest to the highest; no two touch each other.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.iter().map(|(start, end)| (*start, *end))
    }

    pub fn contains(&self, number: u32) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, end)| number < *end)
    }

    /// Adds the numbers from `start` up to `end`, which is not one of them.
    pub fn insert(&mut self, start: u32, end: u32) {
        if start >= end {
            return;
        }
        let mut start = start;
        let mut end = end;
        if let Some((first, last)) = self.0.range(..=start).next_back().map(|(first, last)| (*first, *last))
            && last >= start
        {
            start = first;
            end = end.max(last);
        }
        while let Some((first, last)) = self.0.range(start..=end).next().map(|(first, last)| (*first, *last))
        {
            self.0.remove(&first);
            end = end.max(last);
        }
        self.0.insert(start, end);
    }

    /// Removes the numbers from `start` up to `end`, which is not one of them.
    pub fn remove(&mut self, start: u32, end: u32) {
        if start >= end {
            return;
        }
        let before = self.0.range(..=start).next_back().map(|(first, _)| *first).unwrap_or(start);
        let touched: Vec<(u32, u32)> =
            self.0.range(before..end).map(|(first, last)| (*first, *last)).collect();
        for (first, last) in touched.into_iter().filter(|(_, last)| *last > start) {
            self.0.remove(&first);
            if first < start {
                self.0.insert(first, start);
            }
            if end < last {
                self.0.insert(end, last);
            }
        }
    }
}

impl Extend<(u32, u32)> for Spans {
    fn extend<T: IntoIterator<Item = (u32, u32)>>(&mut self, spans: T) {
        spans.into_iter().for_each(|(start, end)| self.insert(start, end));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
            #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

            #[test]
            fn spans_hold_what_a_plain_set_holds(steps in prop::collection::vec((any::<bool>(), 0u32..40, 0u32..8), 0..40)) {
                let mut spans = Spans::default();
    let mut plain = BTreeSet::new();
                for (insert, number, length) in steps {
                    if insert {
                        spans.insert(number, number + length);
                        plain.extend(number..number + length);
                    } else {
                        spans.remove(number, number + length);
                        plain.retain(|held| !(number..number + length).contains(held));
                    }
                    let held: Vec<u32> = spans.iter().flat_map(|(start, end)| start..end).collect();
                    prop_assert_eq!(held, plain.iter().copied().collect::<Vec<_>>());
                    prop_assert!((0..50).all(|number| spans.contains(number) == plain.contains(&number)));
                    let apart = spans.iter().zip(spans.iter().skip(1)).all(|(a, b)| a.1 < b.0);
                    prop_assert!(apart, "{:?}", spans);
                }
            }
        }
}
