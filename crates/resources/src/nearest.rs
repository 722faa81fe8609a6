//! "Did you mean": the known word that is closest to the one a user wrote.

/// The candidate that needs the fewest changes of single letters, unless that is another word altogether.
pub fn nearest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = wanted.chars().flat_map(char::to_lowercase).collect();
    let most = wanted.len() / 4 + usize::from(wanted.len() > 3);
    let measured = candidates.into_iter().map(|candidate| (distance(&wanted, candidate), candidate));
    measured
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, near)| near)
}

/// Number of letters to insert, delete, replace or swap with the next one.
fn distance(wanted: &[char], candidate: &str) -> usize {
    let candidate: Vec<char> = candidate.chars().flat_map(char::to_lowercase).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=candidate.len()).collect();
    for (i, &a) in wanted.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &b) in candidate.iter().enumerate() {
            let mut cost = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a == candidate[j - 1] && wanted[i - 1] == b {
                cost = cost.min(before[j - 1] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[candidate.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let known = ["MeshTimeout", "MeshTrace", "Mesh", "Zone"];
        for (wanted, expect) in [
            ("MeshTimout", Some("MeshTimeout")),
            ("meshtimeuot", Some("MeshTimeout")),
            ("Mehs", Some("Mesh")),
            ("zon", None),
            ("Deployment", None),
            ("", None),
        ] {
            assert_eq!(nearest(wanted, known), expect, "{wanted}");
        }
    }
}
