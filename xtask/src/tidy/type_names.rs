//! Names of types: one that many types share says little about any of them.

use std::{collections::BTreeMap, fmt::Write};

/// A name of so many public types is shared.
const SHARED_BY: usize = 4;
/// Names such as `Config` and `Error` may be shared; these many of them.
const MOST_SHARED: usize = 15;
/// Public types in a hundred that may have a name of one word.
const ONE_WORD_PERCENT: usize = 50;

/// Collects the names of public types, each with the files that define one.
#[derive(Debug, Default)]
pub struct TypeNames(BTreeMap<String, Vec<String>>);

impl TypeNames {
    /// Adds the public types of a source file.
    pub fn add(&mut self, file: &str, text: &str) {
        for name in text.lines().filter_map(public_type) {
            self.0.entry(name.to_owned()).or_default().push(file.to_owned());
        }
    }

    pub fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        findings.extend(self.too_many_shared());
        findings.extend(self.too_many_of_one_word());
        findings
    }

    fn too_many_shared(&self) -> Option<String> {
        let mut shared: Vec<_> = self.0.iter().filter(|(_, files)| files.len() >= SHARED_BY).collect();
        if shared.len() <= MOST_SHARED {
            return None;
        }
        shared.sort_by_key(|(name, files)| (std::cmp::Reverse(files.len()), *name));
        let mut finding = format!(
            "{} names are shared by {SHARED_BY} or more public types, {MOST_SHARED} may: name each type after the \
             thing in Envoy, Kuma or Rust that it is, in two words if one has other meanings",
            shared.len()
        );
        for (name, files) in shared {
            let _ = write!(finding, "\n    {name} ×{}: {}", files.len(), files.join(", "));
        }
        Some(finding)
    }

    fn too_many_of_one_word(&self) -> Option<String> {
        let all: usize = self.0.values().map(Vec::len).sum();
        let of_one_word = self.0.iter().filter(|(name, _)| is_one_word(name));
        let count: usize = of_one_word.map(|(_, files)| files.len()).sum();
        (count * 100 > all * ONE_WORD_PERCENT).then(|| {
            format!(
                "{count} of {all} public types have a name of one word, {ONE_WORD_PERCENT} in a hundred may: a second \
                 word says which plan, state or change it is"
            )
        })
    }
}

/// The name of the type that a line defines, if the type has any `pub`.
fn public_type(line: &str) -> Option<&str> {
    let after = line.trim_start().strip_prefix("pub")?;
    let after = match after.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => after,
    };
    let after = after.strip_prefix(' ')?;
    let after = ["struct ", "enum ", "trait ", "type "].iter().find_map(|it| after.strip_prefix(it))?;
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after.len());
    let name = &after[..end];
    name.starts_with(|c: char| c.is_ascii_uppercase()).then_some(name)
}

/// True if no capital letter follows a small one.
fn is_one_word(name: &str) -> bool {
    !name.as_bytes().windows(2).any(|pair| !pair[0].is_ascii_uppercase() && pair[1].is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_types_are_those_with_any_pub() {
        for (line, name) in [
            ("pub struct Plan<'a> {", "Plan"),
            ("    pub(super) enum Verdict {", "Verdict"),
            ("pub(in crate::a) trait Follow: Sized {}", "Follow"),
            ("pub(crate) type Change = (Key, u64);", "Change"),
            ("pub struct Unit;", "Unit"),
            ("pub struct Row(u64);", "Row"),
        ] {
            assert_eq!(public_type(line), Some(name), "{line}");
        }
        for line in
            ["struct Plan;", "pub fn plan() {}", "pub struct $name {", "// pub struct A;", "pub use a::B;"]
        {
            assert_eq!(public_type(line), None, "{line}");
        }
    }

    #[test]
    fn a_second_word_begins_with_a_capital_letter() {
        for name in ["Plan", "Http", "KRI", "V4"] {
            assert!(is_one_word(name), "{name}");
        }
        for name in ["SharedPlan", "HttpRoute", "Ipv4Address"] {
            assert!(!is_one_word(name), "{name}");
        }
    }

    #[test]
    fn fifteen_names_may_be_shared_by_four_types() {
        let mut names = TypeNames::default();
        names.add("a.rs", &"pub struct SharedByThree;\n".repeat(3));
        for number in 0..MOST_SHARED {
            names.add("b.rs", &format!("pub struct NumberX{number};\n").repeat(4));
        }
        assert_eq!(names.findings(), Vec::<String>::new());
        names.add("crates/c/src/d.rs", "pub enum SharedByThree {}\n");
        let findings = names.findings();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].starts_with("16 names are shared by 4 or more"), "{findings:?}");
        assert!(
            findings[0].contains("SharedByThree ×4: a.rs, a.rs, a.rs, crates/c/src/d.rs"),
            "{findings:?}"
        );
    }

    #[test]
    fn most_names_of_one_word_are_too_many() {
        let mut names = TypeNames::default();
        for number in 0..100 - ONE_WORD_PERCENT {
            names.add("a.rs", &format!("pub struct TwoWords{number};\n"));
        }
        for number in 0..ONE_WORD_PERCENT {
            names.add("a.rs", &format!("pub struct One{number};\n"));
        }
        assert_eq!(names.findings(), Vec::<String>::new());
        names.add("b.rs", "pub trait Another {}\n");
        let finding = format!("{} of 101 public types have a name of one word", ONE_WORD_PERCENT + 1);
        assert!(names.findings()[0].starts_with(&finding), "{:?}", names.findings());
    }
}
