//! Bounded list of a mesh's findings.

use std::collections::{BTreeMap, BTreeSet};

use resources::{
    finding::{Code, Finding},
    naming::Kri,
};

/// Maximum findings of one code that are listed of a mesh. By code, so that many of one do not hide another.
pub const MAX_PER_CODE: usize = 1000;

/// Findings of a mesh from many sources: a bounded list, and the number of all.
#[derive(Debug, Default)]
pub struct Listing {
    listed: BTreeSet<Finding>,
    counts: BTreeMap<Code, Count>,
}

/// Findings of one code.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    listed: usize,
    left_out: usize,
}

impl Listing {
    /// Takes in a finding; it is copied if it is listed.
    pub fn add(&mut self, finding: &Finding) {
        if self.listed.contains(finding) {
            return;
        }
        let count = self.counts.entry(finding.code).or_default();
        if count.listed < MAX_PER_CODE {
            count.listed += 1;
            self.listed.insert(finding.clone());
        } else {
            count.left_out += 1;
        }
    }

    /// Returns the number of findings of each code.
    pub fn counts(&self) -> impl Iterator<Item = (Code, usize)> {
        self.counts.iter().map(|(code, count)| (*code, count.listed + count.left_out))
    }

    /// The findings, the worst first. One about the mesh says of each code how many are left out.
    pub fn into_findings(self, mesh: Option<&Kri>) -> Vec<Finding> {
        let of_mesh = |(code, count): (Code, Count)| {
            let text = format!(
                "{} more findings of this code are left out: at most {MAX_PER_CODE} are listed for a mesh",
                count.left_out
            );
            (count.left_out > 0).then(|| Finding::new(code, text).or_about(mesh.cloned()))
        };
        let left_out = self.counts.into_iter().filter_map(of_mesh);
        let mut found: Vec<Finding> = self.listed.into_iter().chain(left_out).collect();
        found.sort_by_key(|finding| (std::cmp::Reverse(finding.code.severity()), finding.code));
        found
    }
}
