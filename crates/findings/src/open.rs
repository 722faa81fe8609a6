//! Findings of a mesh over time: what is new, what is over, and since when the others are open.

use std::collections::{BTreeMap, btree_map::Entry};

use jiff::Timestamp;
use resources::{
    finding::{Code, Finding},
    naming::Kri,
};

/// Open findings of a mesh. Findings of one code about one resource are one here: their texts, with numbers of proxies
/// and times in them, may change while they are open.
#[derive(Debug, Default)]
pub struct OpenFindings(BTreeMap<Subject, OpenFinding>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    code: Code,
    about: Option<Kri>,
}

#[derive(Debug)]
struct OpenFinding {
    text: String,
    since: Timestamp,
}

/// A finding that was opened or closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FindingChange {
    Opened(Finding),
    Closed { finding: Finding, since: Timestamp },
}

impl OpenFindings {
    /// Takes in what is found now; returns what has changed.
    pub fn replace(&mut self, found: Vec<Finding>, now: Timestamp) -> Vec<FindingChange> {
        let mut before = std::mem::take(&mut self.0);
        let mut changes = Vec::new();
        for Finding { code, about, text } in found {
            let subject = Subject { code, about };
            // The first text of a subject stands for all.
            let Entry::Vacant(place) = self.0.entry(subject) else { continue };
            let since = match before.remove(place.key()) {
                Some(known) => known.since,
                None => {
                    let Subject { code, about } = place.key().clone();
                    changes.push(FindingChange::Opened(Finding { code, about, text: text.clone() }));
                    now
                }
            };
            place.insert(OpenFinding { text, since });
        }
        let closed = before.into_iter().map(|(Subject { code, about }, OpenFinding { text, since })| {
            FindingChange::Closed { finding: Finding { code, about, text }, since }
        });
        changes.extend(closed);
        changes
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn rejected(proxy: &str, text: &str) -> Finding {
        let about = format!("kri_dp_default___{proxy}_").parse().unwrap();
        Finding::about(Code::Rejected, about, text)
    }

    #[test]
    fn a_finding_is_opened_once_and_closed_with_the_time_it_was_opened() {
        let mut open = OpenFindings::default();
        let opened = open.replace(vec![rejected("web", "one"), rejected("web", "two")], at(1));
        assert_eq!(opened, [FindingChange::Opened(rejected("web", "one"))]);
        assert_eq!(open.replace(vec![rejected("web", "three")], at(2)), [], "only its words have changed");
        let changes = open.replace(vec![rejected("api", "one")], at(3));
        let closed = FindingChange::Closed { finding: rejected("web", "three"), since: at(1) };
        assert_eq!(changes, [FindingChange::Opened(rejected("api", "one")), closed]);
        let closed = FindingChange::Closed { finding: rejected("api", "one"), since: at(3) };
        assert_eq!((open.replace(Vec::new(), at(4)), open.is_empty()), (vec![closed], true));
    }
}
