//! Search for the resources that a NACK is about.

use std::sync::Arc;

/// The names a message speaks of.
///
/// Envoy writes `name: what is wrong`, one after the other, or quotes the name; a name found so
/// excludes names found in the running text, where one called `cluster` would be found too often.
/// Longer names are looked for first and hide the shorter ones in them.
pub(crate) fn blamed<'a>(names: impl Iterator<Item = &'a Arc<str>>, message: &str) -> Vec<Arc<str>> {
    let mut names: Vec<&Arc<str>> = names.filter(|name| !name.is_empty()).collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    let mut taken: Vec<(usize, usize)> = Vec::new();
    let mut pointed = Vec::new();
    let mut mentioned = Vec::new();
    for name in names {
        let places: Vec<usize> = occurrences(message, name)
            .filter(|start| taken.iter().all(|(from, to)| *start >= *to || start + name.len() <= *from))
            .collect();
        if places.is_empty() {
            continue;
        }
        if places.iter().any(|start| is_pointed_at(message, *start, start + name.len())) {
            pointed.push(name.clone());
        } else {
            mentioned.push(name.clone());
        }
        taken.extend(places.into_iter().map(|start| (start, start + name.len())));
    }
    if pointed.is_empty() { mentioned } else { pointed }
}

fn occurrences<'a>(message: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '_');
    message.match_indices(name).map(|(start, _)| start).filter(move |start| {
        !joins(message[..*start].chars().next_back()) && !joins(message[start + name.len()..].chars().next())
    })
}

fn is_pointed_at(message: &str, start: usize, end: usize) -> bool {
    let before = message[..start].chars().next_back();
    let after = &message[end..];
    after.starts_with(": ") || matches!(before, Some('\'' | '"' | '`')) && after.chars().next() == before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(names: &str, message: &str, expect: &str) {
        let names: Vec<Arc<str>> = names.split_whitespace().map(Arc::from).collect();
        let mut found: Vec<_> = blamed(names.iter(), message).into_iter().collect();
        found.sort();
        assert_eq!(found.join(" "), expect, "{message}");
    }

    #[test]
    fn the_names_a_proxy_complains_about_are_found_in_its_message() {
        check("a b", "Error adding/updating cluster(s) a: bad timeout", "a");
        check("a b c", "Error adding/updating cluster(s) a: bad timeout, c: bad too", "a c");
        check("web web-1", "Error adding/updating listener(s) web-1: cannot bind", "web-1");
        check("web web-1", "Error adding/updating listener(s) web: x, web-1: y", "web web-1");
        check(
            "inbound:10.0.0.1:80 10.0.0.1",
            "listener(s) inbound:10.0.0.1:80: address in use",
            "inbound:10.0.0.1:80",
        );
        check("cluster redis", "Error adding/updating cluster(s) redis: bad cluster", "redis");
        check("a b", "unknown cluster 'b' in route", "b");
        check("a b", "resource b is malformed.", "b");
        check("a b", "Proto constraint validation failed", "");
        check("a b", "", "");
        check("é ö", "cluster(s) ö: wrong", "ö");
    }
}
