//! Names with dots, found at the beginning of a text.

use std::collections::HashMap;

/// A set of names. One step per part between dots, however many names there are and whatever they share.
///
/// The steps are in one table instead of nested ones: names come from proxies and may be absurdly deep.
#[derive(Debug)]
pub struct NameTrie<'a> {
    steps: HashMap<(usize, &'a str), usize>,
    /// By step: whether a name ends there.
    ends: Vec<bool>,
}

impl Default for NameTrie<'_> {
    fn default() -> Self {
        NameTrie { steps: HashMap::new(), ends: vec![false] }
    }
}

impl<'a> Extend<&'a str> for NameTrie<'a> {
    fn extend<I: IntoIterator<Item = &'a str>>(&mut self, names: I) {
        for name in names {
            let mut step = 0;
            for part in name.split('.') {
                let next = self.ends.len();
                step = *self.steps.entry((step, part)).or_insert(next);
                if step == next {
                    self.ends.push(false);
                }
            }
            if let Some(end) = self.ends.get_mut(step) {
                *end = true;
            }
        }
    }
}

impl NameTrie<'_> {
    /// Returns the length of the longest name that the text begins with, before a dot.
    pub fn longest(&self, text: &str) -> Option<usize> {
        let mut step = 0;
        let mut begin = 0;
        let mut found = None;
        while let Some(length) = text[begin..].find('.') {
            let end = begin + length;
            let Some(&next) = self.steps.get(&(step, &text[begin..end])) else { break };
            if self.ends.get(next) == Some(&true) {
                found = Some(end);
            }
            (step, begin) = (next, end + 1);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_before_a_dot_is_found() {
        let mut names = NameTrie::default();
        names.extend(["self_a", "self_a.b", "self_a.b.c.d", "x"]);
        let check = |text: &str, name: Option<&str>| {
            assert_eq!(names.longest(text).map(|end| &text[..end]), name, "{text}");
        };
        check("self_a.upstream_cx_total", Some("self_a"));
        check("self_a.b.upstream_cx_total", Some("self_a.b"));
        check("self_a.b.c.upstream_cx_total", Some("self_a.b"));
        check("self_a.b.c.d.upstream_cx_total", Some("self_a.b.c.d"));
        check("self_a.bc.upstream_cx_total", Some("self_a"));
        check("self_ab.upstream_cx_total", None);
        check("self_a", None);
        check("x.", Some("x"));
        check("", None);
        check("...", None);
    }

    #[test]
    fn names_of_any_depth_are_taken() {
        let deep = "a.".repeat(100_000);
        let mut names = NameTrie::default();
        names.extend([deep.as_str()]);
        assert_eq!(names.longest(&format!("{deep}.x")), Some(deep.len()));
    }
}
