//! The known word that is nearest to an unknown one.

/// The candidate that takes the fewest edits, if it is near enough to be a likely slip.
pub(super) fn nearest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (wanted.chars().count() / 4).clamp(2, 3);
    let lower = wanted.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (distance(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(edits, _)| *edits <= allowed)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance: insertions, deletions and replacements.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let keys = ["store.type", "store.unsafeDelete", "mode"];
        assert_eq!(nearest("store.tpye", keys), Some("store.type"));
        assert_eq!(nearest("store.unsafedelete", keys), Some("store.unsafeDelete"));
        assert_eq!(nearest("modes", keys), Some("mode"));
        assert_eq!(nearest("colour", keys), None);
    }

    #[test]
    fn distance_counts_edits() {
        for (a, b, expect) in [("", "", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)] {
            assert_eq!(distance(a, b), expect);
        }
    }
}
